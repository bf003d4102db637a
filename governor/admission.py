"""Decides one request: may it start now, and how large. Pure; the order is docs/governor.md's.

The steps before sizing are a table of checks, first refusal wins. Sizing is in
``governor.sizing``; reserving what was granted in ``governor.ledger``.
"""

from collections.abc import Callable

from governor.budget import charge_of, live_budget, most_gpu_memory_bytes, most_memory_bytes, remaining
from governor.model import Decision, DecisionReason, Estimate, Pressure, Snapshot, Verdict
from governor.pressure import PressureState, is_at_limit, observe
from governor.request import Case, Request, Situation
from governor.sizing import size
from governor.wording import impossible_line, pressure_line

SNAPSHOT_MAX_AGE_NS = 1_000_000_000
"""Inclusive: a snapshot of exactly this age is fresh."""


def decide(request: Request, situation: Situation) -> tuple[Decision, PressureState]:
    """Answer a request and return the pressure state that holds afterwards.

    An invalid estimate and a stale snapshot change nothing. Every other
    decision observes the snapshot first, whatever its answer.
    """
    refusal = _refuse_invalid(request.estimate) or _wait_for_fresh(situation.snapshot, situation.now_ns)
    if refusal is not None:
        return refusal, situation.pressure
    pressure = observe(situation.pressure, situation.snapshot, situation.policy)
    case = _case(request, situation, pressure)
    for check in _CHECKS:
        refusal = check(case)
        if refusal is not None:
            return refusal, pressure
    return size(case), pressure


def is_fresh(snapshot: Snapshot, now_ns: int) -> bool:
    """Tell whether a snapshot may be decided on: not too old, not of the future."""
    return 0 <= now_ns - snapshot.captured_at_ns <= SNAPSHOT_MAX_AGE_NS


def _case(request: Request, situation: Situation, pressure: PressureState) -> Case:
    budget = live_budget(situation.profile, situation.policy, situation.snapshot)
    return Case(
        request=request,
        situation=situation,
        pressure=pressure,
        charge=charge_of(request.estimate, situation.profile.gpu),
        budget=budget,
        free=remaining(budget, situation.reserved),
    )


def _refuse_invalid(estimate: Estimate) -> Decision | None:
    if estimate.is_valid():
        return None
    return _reject(DecisionReason.INVALID_ESTIMATE, "an amount is out of range, or the parts do not agree")


def _wait_for_fresh(snapshot: Snapshot, now_ns: int) -> Decision | None:
    if is_fresh(snapshot, now_ns):
        return None
    age_ns = now_ns - snapshot.captured_at_ns
    return _wait(
        DecisionReason.STALE_SNAPSHOT, f"the snapshot is {age_ns} ns old, {SNAPSHOT_MAX_AGE_NS} at most"
    )


def _wait_while_red(case: Case) -> Decision | None:
    if case.pressure.colour is not Pressure.RED:
        return None
    return _wait(DecisionReason.PRESSURE_RED, "the machine is out of memory or swapping")


def _refuse_without_gpu(case: Case) -> Decision | None:
    if case.request.estimate.gpu_slots == 0 or case.situation.profile.gpu is not None:
        return None
    return _reject(DecisionReason.NO_GPU, "it needs a GPU, this node has none")


def _refuse_out_of_range(case: Case) -> Decision | None:
    min_batch = case.request.estimate.min_batch
    if case.charge.memory.is_in_range(min_batch) and case.charge.gpu_memory.is_in_range(min_batch):
        return None
    return _reject(DecisionReason.ESTIMATE_TOO_LARGE, "the smallest batch needs 2^64 bytes or more")


def _refuse_impossible(case: Case) -> Decision | None:
    """Compare with the physical totals: the only refusal for size, and final for this node."""
    profile, policy, min_batch = case.situation.profile, case.situation.policy, case.min_batch
    most_bytes, most_gpu_bytes = most_memory_bytes(profile, policy), most_gpu_memory_bytes(profile, policy)
    if case.charge.memory.bytes_for(min_batch) > most_bytes:
        return _impossible(case, most_bytes, most_gpu_bytes, of_gpu=False)
    if most_gpu_bytes is not None and case.charge.gpu_memory.bytes_for(min_batch) > most_gpu_bytes:
        return _impossible(case, most_bytes, most_gpu_bytes, of_gpu=True)
    return None


def _wait_for_cpu(case: Case) -> Decision | None:
    return _wait_for_psi(
        DecisionReason.CPU_PSI,
        "CPU",
        case.situation.snapshot.cpu_psi_percent,
        case.situation.policy.cpu_psi_limit_percent,
    )


def _wait_for_memory(case: Case) -> Decision | None:
    return _wait_for_psi(
        DecisionReason.MEMORY_PSI,
        "memory",
        case.situation.snapshot.memory_psi_percent,
        case.situation.policy.memory_psi_limit_percent,
    )


def _wait_for_io(case: Case) -> Decision | None:
    if case.request.estimate.io_slots == 0:
        return None
    return _wait_for_psi(
        DecisionReason.IO_PSI,
        "IO",
        case.situation.snapshot.io_psi_percent,
        case.situation.policy.io_psi_limit_percent,
    )


def _wait_for_gpu_reading(case: Case) -> Decision | None:
    if case.request.estimate.gpu_slots == 0 or case.free.gpu_memory_bytes is not None:
        return None
    return _wait(DecisionReason.GPU_MEMORY_UNKNOWN, "the GPU's free memory cannot be read")


_CHECKS: tuple[Callable[[Case], Decision | None], ...] = (
    _wait_while_red,
    _refuse_without_gpu,
    _refuse_out_of_range,
    _refuse_impossible,
    _wait_for_cpu,
    _wait_for_memory,
    _wait_for_io,
    _wait_for_gpu_reading,
)


def _wait_for_psi(
    reason: DecisionReason, name: str, measured_percent: float | None, limit_percent: float | None
) -> Decision | None:
    if measured_percent is None or limit_percent is None or not is_at_limit(measured_percent, limit_percent):
        return None
    return _wait(reason, pressure_line(name, measured_percent, limit_percent))


def _impossible(case: Case, most_bytes: int, most_gpu_bytes: int | None, *, of_gpu: bool) -> Decision:
    needed_bytes = case.charge.memory.bytes_for(case.min_batch)
    needed_gpu_bytes = case.charge.gpu_memory.bytes_for(case.min_batch)
    return Decision(
        verdict=Verdict.REJECT,
        reason=DecisionReason.IMPOSSIBLE_ON_NODE,
        detail=(
            impossible_line(needed_gpu_bytes, most_gpu_bytes or 0, of_gpu=True)
            if of_gpu
            else impossible_line(needed_bytes, most_bytes)
        ),
        needed_memory_bytes=needed_bytes,
        available_memory_bytes=most_bytes,
        needed_gpu_memory_bytes=needed_gpu_bytes,
        available_gpu_memory_bytes=most_gpu_bytes,
    )


def _wait(reason: DecisionReason, detail: str) -> Decision:
    return Decision(verdict=Verdict.WAIT, reason=reason, detail=detail)


def _reject(reason: DecisionReason, detail: str) -> Decision:
    return Decision(verdict=Verdict.REJECT, reason=reason, detail=detail)

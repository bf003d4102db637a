"""Tests of the decision: each refusal, its pair, and the order of them all."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governor.admission import SNAPSHOT_MAX_AGE_NS, decide
from governor.model import UINT64_MAX, Decision, DecisionReason, Estimate, Pressure, Resources, Verdict
from governor.pressure import PressureState
from governor.request import Request
from tests.unit.governor.builders import (
    GIB,
    MIB,
    a_dedicated_gpu,
    a_policy,
    a_profile,
    a_request,
    a_situation,
    a_snapshot,
    a_uma_gpu,
)

R = DecisionReason


def answer(request: Request | None = None, **situation: Any) -> Decision:
    """Decide on an idle, calm node, with changes."""
    return decide(request or a_request(), a_situation(**situation))[0]


def gpu_node(**snapshot: Any) -> dict[str, Any]:
    """Describe a node with a dedicated card of 4 GiB, 512 MiB of it in reserve."""
    return {
        "profile": a_profile(gpu=a_dedicated_gpu(4 * GIB)),
        "policy": a_policy(gpu_slots=1, gpu_memory_reserve_bytes=512 * MIB),
        "snapshot": a_snapshot(**snapshot),
    }


@pytest.mark.parametrize(
    ("age_ns", "is_fresh"),
    [(-1, False), (0, True), (SNAPSHOT_MAX_AGE_NS, True), (SNAPSHOT_MAX_AGE_NS + 1, False)],
)
def test_a_snapshot_is_fresh_for_exactly_one_second(age_ns: int, is_fresh: bool) -> None:  # noqa: FBT001
    """Both ends: of the future by 1 ns, and too old by 1 ns."""
    decision = answer(now_ns=5 * GIB + age_ns, snapshot=a_snapshot(captured_at_ns=5 * GIB))

    assert (decision.reason is not R.STALE_SNAPSHOT) is is_fresh


def test_a_stale_snapshot_changes_nothing() -> None:
    """No baseline, no streak: the very same state comes back, though the reading is terrible."""
    situation = a_situation(
        now_ns=SNAPSHOT_MAX_AGE_NS + 1,
        snapshot=a_snapshot(memory_available_bytes=0, cpu_psi_percent=100.0),
        pressure=PressureState(healthy_streak=2),
    )

    assert decide(a_request(), situation)[1] is situation.pressure


def test_an_invalid_estimate_changes_nothing() -> None:
    """It is refused before the snapshot is looked at."""
    situation = a_situation(snapshot=a_snapshot(memory_available_bytes=0))

    decision, pressure = decide(a_request(min_batch=0), situation)

    assert (decision.verdict, decision.reason) == (Verdict.REJECT, R.INVALID_ESTIMATE)
    assert pressure is situation.pressure


def test_every_other_refusal_observes_the_snapshot() -> None:
    """Even a job that never fits here sees the machine for the others."""
    situation = a_situation(snapshot=a_snapshot(memory_available_bytes=GIB))

    decision, pressure = decide(a_request(memory_fixed_bytes=65 * GIB), situation)

    assert (decision.reason, pressure.colour) == (R.IMPOSSIBLE_ON_NODE, Pressure.YELLOW)


@pytest.mark.parametrize(
    ("reading", "limit", "limit_percent", "reason"),
    [
        ("cpu_psi_percent", "cpu_psi_limit_percent", 20, R.CPU_PSI),
        ("memory_psi_percent", "memory_psi_limit_percent", 1, R.MEMORY_PSI),
        ("io_psi_percent", "io_psi_limit_percent", 80, R.IO_PSI),
    ],
)
def test_psi_waits_from_its_limit_on(reading: str, limit: str, limit_percent: int, reason: R) -> None:
    """Just below passes, equality waits; unknown or switched off never waits."""

    def reason_at(percent: float | None, policy_limit: int | None = limit_percent) -> R:
        policy, snapshot = a_policy(**{limit: policy_limit}), a_snapshot(**{reading: percent})
        return answer(a_request(io_slots=1), policy=policy, snapshot=snapshot).reason

    assert reason_at(limit_percent - 0.01) is not reason
    assert reason_at(float(limit_percent)) is reason
    assert reason_at(None) is not reason
    assert reason_at(100.0, None) is not reason


def test_io_pressure_stops_only_who_wants_io() -> None:
    """A job without an IO slot goes on."""
    busy = {"policy": a_policy(io_psi_limit_percent=80), "snapshot": a_snapshot(io_psi_percent=99.0)}

    assert answer(a_request(io_slots=1), **busy).reason is R.IO_PSI
    assert answer(a_request(io_slots=0), **busy).is_admitted


def test_a_wait_on_cpu_pressure_says_the_numbers() -> None:
    """The user is told what is too high, and over what."""
    decision = answer(snapshot=a_snapshot(cpu_psi_percent=36.0))

    assert decision.sentence() == "WAIT CPU_PSI: CPU pressure 36 % >= 20 %"


def test_the_physical_total_decides_what_is_impossible() -> None:
    """14 GiB can be offered: 7 GiB per item times 2 fits one day, one byte more never."""
    fits = answer(a_request(memory_per_item_bytes=7 * GIB))
    never = answer(a_request(memory_per_item_bytes=7 * GIB, memory_fixed_bytes=1))

    assert (fits.verdict, fits.reason) == (Verdict.WAIT, R.INSUFFICIENT_MEMORY)
    assert (never.verdict, never.reason) == (Verdict.REJECT, R.IMPOSSIBLE_ON_NODE)
    assert (never.needed_memory_bytes, never.available_memory_bytes) == (14 * GIB + 1, 14 * GIB)
    assert never.detail == "needs 14.1 GiB, this node offers at most 14.0 GiB"


def test_a_fixed_need_alone_can_be_impossible() -> None:
    """With nothing per item the fixed part decides."""
    at = a_request(memory_fixed_bytes=14 * GIB, memory_per_item_bytes=0)
    above = a_request(memory_fixed_bytes=14 * GIB + 1, memory_per_item_bytes=0)
    idle = {"snapshot": a_snapshot(memory_available_bytes=16 * GIB)}

    assert (answer(at, **idle).batch, answer(above, **idle).reason) == (8, R.IMPOSSIBLE_ON_NODE)


def test_a_job_that_wants_a_gpu_is_refused_without_one() -> None:
    """A slot is a wish too, even with no memory."""
    decision = answer(a_request(gpu_slots=1))

    assert (decision.verdict, decision.reason) == (Verdict.REJECT, R.NO_GPU)


def test_unknown_gpu_memory_waits_on_a_dedicated_card_only() -> None:
    """Unified memory is known from the RAM."""
    request = a_request(gpu_slots=1, gpu_memory_fixed_bytes=1)
    unified = {"profile": a_profile(gpu=a_uma_gpu()), "policy": a_policy(gpu_slots=1)}

    assert answer(request, **gpu_node()).reason is R.GPU_MEMORY_UNKNOWN
    assert answer(request, **unified).is_admitted
    assert answer(a_request(), **gpu_node()).is_admitted


def test_the_size_of_the_card_decides_what_is_impossible_on_it() -> None:
    """3.5 GiB can be offered; a card of unknown size refuses nothing for good."""
    at = a_request(gpu_slots=1, gpu_memory_per_item_bytes=1792 * MIB)
    above = a_request(gpu_slots=1, gpu_memory_per_item_bytes=1792 * MIB + 1)
    node = gpu_node(gpu_memory_available_bytes=GIB)

    assert answer(at, **node).reason is R.INSUFFICIENT_MEMORY
    assert answer(at, **node).detail == "needs 3.50 GiB of GPU memory, 0.50 GiB free of 0.50 GiB"
    assert answer(above, **node).reason is R.IMPOSSIBLE_ON_NODE
    assert "of GPU memory, this node offers at most 3.50 GiB" in answer(above, **node).detail
    unknown_size = node | {"profile": a_profile(gpu=a_dedicated_gpu(None))}
    assert answer(above, **unknown_size).reason is R.INSUFFICIENT_MEMORY


@pytest.mark.parametrize(
    ("estimate", "reason"),
    [
        ({"memory_fixed_bytes": UINT64_MAX, "memory_per_item_bytes": 0}, R.IMPOSSIBLE_ON_NODE),
        ({"memory_fixed_bytes": UINT64_MAX, "memory_per_item_bytes": 1}, R.ESTIMATE_TOO_LARGE),
        ({"memory_per_item_bytes": 2**63 - 1}, R.IMPOSSIBLE_ON_NODE),
        ({"memory_per_item_bytes": 2**63}, R.ESTIMATE_TOO_LARGE),
    ],
)
def test_a_charge_of_2_to_the_64_is_too_large(estimate: dict[str, int], reason: R) -> None:
    """One byte below is impossible here, at the limit no node can count it."""
    decision = answer(a_request(**estimate))

    assert (decision.verdict, decision.reason) == (Verdict.REJECT, reason)


def test_the_fold_of_unified_memory_is_range_checked() -> None:
    """Two amounts in range whose sum is not."""
    node = {"profile": a_profile(gpu=a_uma_gpu()), "policy": a_policy(gpu_slots=1)}

    def reason_of(gpu_bytes: int) -> R:
        request = a_request(
            memory_fixed_bytes=2**63,
            memory_per_item_bytes=0,
            gpu_slots=1,
            gpu_memory_fixed_bytes=gpu_bytes,
        )
        return answer(request, **node).reason

    assert (reason_of(2**63 - 1), reason_of(2**63)) == (R.IMPOSSIBLE_ON_NODE, R.ESTIMATE_TOO_LARGE)


def test_a_huge_ceiling_does_not_overflow() -> None:
    """Only the smallest batch must be countable; the largest is lowered to what fits."""
    decision = answer(a_request(min_batch=1, max_batch=UINT64_MAX, memory_per_item_bytes=GIB))

    assert (decision.verdict, decision.batch) == (Verdict.REDUCE, 8)


STEPS: list[tuple[R, dict[str, Any]]] = [
    (R.INVALID_ESTIMATE, {"request": {"cpu_threads": 0}}),
    (R.STALE_SNAPSHOT, {"now_ns": SNAPSHOT_MAX_AGE_NS + 1}),
    (R.PRESSURE_RED, {"pressure": {"colour": Pressure.RED}}),
    (R.NO_GPU, {"request": {"gpu_slots": 1}, "profile": {"gpu": None}}),
    (R.ESTIMATE_TOO_LARGE, {"request": {"memory_per_item_bytes": UINT64_MAX}}),
    (R.IMPOSSIBLE_ON_NODE, {"request": {"memory_fixed_bytes": 65 * GIB}}),
    (R.CPU_PSI, {"snapshot": {"cpu_psi_percent": 20.0}}),
    (R.MEMORY_PSI, {"snapshot": {"memory_psi_percent": 1.0}}),
    (R.IO_PSI, {"request": {"io_slots": 1}, "snapshot": {"io_psi_percent": 80.0}}),
    (R.GPU_MEMORY_UNKNOWN, {"request": {"gpu_slots": 1}, "snapshot": {"gpu_memory_available_bytes": None}}),
    (R.PRESSURE_CAP, {"pressure": {"growth_cap": 1}}),
    (R.INSUFFICIENT_MEMORY, {"snapshot": {"memory_available_bytes": 4 * GIB - 1}}),
    (R.SLOTS_BUSY, {"reserved": {"cpu_threads": 15}}),
]


def answer_to_steps(*steps: dict[str, Any]) -> Decision:
    """Decide where the conditions of several steps hold at once, on a node with a card."""
    merged: dict[str, Any] = {}
    for step in reversed(steps):
        for part, changes in step.items():
            merged[part] = {**merged.get(part, {}), **changes} if isinstance(changes, dict) else changes
    situation = a_situation(
        now_ns=merged.get("now_ns", 0),
        profile=replace(a_profile(gpu=a_dedicated_gpu()), **merged.get("profile", {})),
        policy=a_policy(gpu_slots=1, io_psi_limit_percent=80),
        snapshot=replace(a_snapshot(gpu_memory_available_bytes=GIB), **merged.get("snapshot", {})),
        pressure=replace(PressureState(), **merged.get("pressure", {})),
        reserved=Resources(**merged.get("reserved", {})),
    )
    return decide(a_request(**merged.get("request", {})), situation)[0]


@pytest.mark.parametrize(("reason", "step"), STEPS)
def test_each_step_alone_refuses_for_its_reason(reason: R, step: dict[str, Any]) -> None:
    """The conditions of the order test below are each sufficient."""
    decision = answer_to_steps(step)

    assert decision.reason is reason
    assert (decision.batch, decision.cpu_threads, decision.gpu_slots, decision.io_slots) == (0, 0, 0, 0)


@pytest.mark.parametrize(("earlier", "later"), list(combinations(STEPS, 2)), ids=lambda step: step[0].value)
def test_the_earlier_step_wins(earlier: tuple[R, dict[str, Any]], later: tuple[R, dict[str, Any]]) -> None:
    """For every two reasons that hold at once the documented order decides."""
    assert answer_to_steps(earlier[1], later[1]).reason is earlier[0]


estimates = st.builds(
    Estimate,
    memory_fixed_bytes=st.integers(0, 20 * GIB),
    memory_per_item_bytes=st.integers(0, 8 * GIB),
    min_batch=st.integers(1, 4),
    max_batch=st.integers(4, 16),
    cpu_threads=st.integers(1, 32),
    io_slots=st.integers(0, 3),
)


@given(
    estimate=estimates,
    available_bytes=st.integers(0, 20 * GIB),
    reserved=st.builds(Resources, memory_bytes=st.integers(0, 14 * GIB), cpu_threads=st.integers(0, 15)),
    waiting_items=st.one_of(st.none(), st.integers(0, 100)),
    nodes=st.integers(0, 4),
)
def test_nothing_is_granted_beyond_what_is_free(
    estimate: Estimate, available_bytes: int, reserved: Resources, waiting_items: int | None, nodes: int
) -> None:
    """Whatever is asked: the grant fits the memory, threads and slots, and the estimate's own limits."""
    decision = answer(
        Request(estimate=estimate, waiting_items=waiting_items, nodes=nodes),
        snapshot=a_snapshot(memory_available_bytes=available_bytes),
        reserved=reserved,
    )

    if not decision.is_admitted:
        assert (decision.batch, decision.cpu_threads) == (0, 0)
        return
    free_bytes = max(0, min(available_bytes, 16 * GIB) - 2 * GIB - reserved.memory_bytes)
    assert estimate.min_batch <= decision.batch <= estimate.max_batch
    assert decision.needed_memory_bytes == estimate.memory_bytes(decision.batch)
    assert estimate.memory_bytes(decision.batch) <= free_bytes
    assert 1 <= decision.cpu_threads <= min(estimate.cpu_threads, 15 - reserved.cpu_threads)
    assert decision.io_slots <= estimate.io_slots


@given(estimate=estimates, waiting_items=st.integers(1, 100), nodes=st.integers(1, 4))
def test_a_share_is_never_more_than_all(estimate: Estimate, waiting_items: int, nodes: int) -> None:
    """Sharing lowers the batch or leaves it, and never turns an admission into a refusal."""
    alone = answer(Request(estimate=estimate))
    shared = answer(Request(estimate=estimate, waiting_items=waiting_items, nodes=nodes))

    assert shared.is_admitted == alone.is_admitted
    assert shared.batch <= alone.batch


@given(estimate=estimates, available_bytes=st.integers(0, 20 * GIB))
def test_a_verdict_and_its_reason_belong_together(estimate: Estimate, available_bytes: int) -> None:
    """START and REDUCE tell which limit applied, WAIT and REJECT which condition failed."""
    decision = answer(Request(estimate=estimate), snapshot=a_snapshot(memory_available_bytes=available_bytes))

    reduced = {R.LIMITED_BY_MEMORY, R.LIMITED_BY_THREADS, R.LIMITED_BY_SLOTS}
    assert (decision.verdict is Verdict.REDUCE) == (decision.reason in reduced)
    assert (decision.verdict is Verdict.REJECT) == (decision.reason is R.IMPOSSIBLE_ON_NODE)

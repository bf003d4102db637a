"""Runs one batch in a child: validate, call the kind's callback once, stream the outcomes, measure.

Does not cover where the request comes from (:mod:`worker.child`) nor what
becomes of the outcomes (:mod:`worker.item_endings`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded
from pydantic import ValidationError

from tasks.allocation_failures import is_allocation_failure
from tasks.errors import Failure, Reason, StoreError
from tasks.kind import Done, Elsewhere, Failed, Kind, Needs, NotReady, Outcome, Payload
from tasks.opencl import switch_off
from tasks.store import Store
from tasks.store.probe import fault_behind
from worker import time_limits
from worker.contracts import NOTHING_SAID, SentContract, read_contract
from worker.deaths import Ending
from worker.envelope import to_push
from worker.frames import BatchReport, BatchRequest, Place
from worker.logs import get_logger
from worker.memory_meter import MemoryMeter, private_bytes
from worker.process_tree import has_children
from worker.quarantine import clear_failure, record_failure
from worker.soft_limit import SoftLimit

log = get_logger(__name__)

Emit = Callable[[int, dict[str, Any]], None]


class BatchRunner:
    """Runs batches one after the other in one child."""

    def __init__(self, kinds: dict[str, Kind], store: Store, meter: MemoryMeter | None = None) -> None:
        self._kinds = kinds
        self._store = store
        self._meter = meter or MemoryMeter()
        self._warm: set[str] = set()
        self._soft_limit = SoftLimit()
        self._was_interrupted = False
        """At any point of its code: what it holds may be in disorder."""
        # ORB alone would load every OpenCL driver that is installed.
        switch_off()

    def listen(self) -> None:
        """Heed the main process's signal that an item takes too long."""
        self._soft_limit.listen()

    def run(
        self, request: BatchRequest, emit: Emit, on_warm: Callable[[], None] = lambda: None
    ) -> BatchReport:
        """Run a batch, emitting each item's outcome as it is there.

        ``on_warm`` is called where this child has just loaded what the kind needs.
        """
        kind = self._kinds[request.kind]
        self._store.expect(request.store_id)
        if kind.name not in self._warm:
            self._warm_up(kind)
            on_warm()
        self._meter.start()
        recorded = self._run_items(kind, request, emit)
        peak_bytes = self._meter.peak_bytes()
        if peak_bytes or self._meter.retains_too_much():
            self._meter.trim()
        # What a job has started holds memory that nothing is reserved for any more.
        retire = self._meter.retains_too_much() or self._was_interrupted or has_children()
        return BatchReport(
            peak_bytes=peak_bytes,
            recorded_items=sum(recorded),
            retire=retire,
            worked_items=sum(units > 0 for units in recorded),
        )

    def _warm_up(self, kind: Kind) -> None:
        """Load what the kind needs once, so that the baseline includes it."""
        before_bytes = private_bytes()
        kind.warm_up()
        self._meter.grow_baseline(before_bytes)
        self._warm.add(kind.name)

    def _run_items(self, kind: Kind, request: BatchRequest, emit: Emit) -> list[int]:
        """Return how many units the kind's history counts of each item that is done."""
        valid: list[int] = []
        payloads: list[Payload] = []
        for index, raw in enumerate(request.payloads):
            payload = _validated(kind, raw, _name(request, index))
            if isinstance(payload, Failed):
                self._publish(request, index, payload, emit)
            else:
                valid.append(index)
                payloads.append(payload)
        return self._call(kind, request, valid, payloads, emit) if valid else []

    def _call(
        self, kind: Kind, request: BatchRequest, valid: list[int], payloads: list[Payload], emit: Emit
    ) -> list[int]:
        """Call the callback once; whatever it, or publishing an outcome, raises costs the item it was at."""
        unfinished = deque(valid)
        recorded: list[int] = []
        cause: Exception = RuntimeError("it ended without an outcome for this item")
        try:
            self._store.check()
            outcomes = self._soft_limit.watched(
                lambda: kind.run(payloads, request.grant, self._store), request.soft_seconds
            )
            for outcome in outcomes:
                # What was read or written in the folder that an unmounted store leaves counts for nothing.
                self._store.check()
                # Published first: an outcome that cannot be is the fault of its own item.
                self._publish(request, unfinished[0], outcome, emit)
                unfinished.popleft()
                if isinstance(outcome, Done):
                    recorded.append(outcome.recorded_items)
        except Exception as error:  # the task boundary: a bug costs one item, not the node
            cause = error
            if not isinstance(cause, StoreError) and not is_allocation_failure(error):
                log.exception("job_raised", kind=kind.name)
        if isinstance(cause, SoftTimeLimitExceeded):
            self._end_at_the_limit(request, list(unfinished)[: kind.window(request.grant)], emit)
        elif unfinished:
            self._blame(request, unfinished[0], cause, emit)
        return recorded

    def _end_at_the_limit(self, request: BatchRequest, at_work: list[int], emit: Emit) -> None:
        """Fail the item that took too long; where it is one of several, each is tried alone."""
        self._was_interrupted = True
        cause = time_limits.cause(time_limits.Overrun.SOFT, request.soft_seconds)
        for index in at_work:
            if len(at_work) == 1:
                failure = time_limits.failure(_name(request, index), cause)
                self._publish(request, index, Failed(failure=failure), emit)
            else:
                emit(index, {"action": "suspect", "ending": Ending.TIME_LIMIT, "cause": cause})

    def _blame(self, request: BatchRequest, index: int, cause: Exception, emit: Emit) -> None:
        """Tell what an error makes of the item that the callback was at."""
        match cause:
            case StoreError():
                emit(index, self._store_trouble(cause, request))
            case _ if is_allocation_failure(cause):
                emit(index, self._out_of_memory(cause))
            case _:
                self._publish(request, index, _internal_error(cause, _name(request, index)), emit)

    def _out_of_memory(self, cause: Exception) -> dict[str, Any]:
        """Tell of memory that was asked for and refused: no fault of the item, it runs again with more."""
        log.warning("allocation_failed", error=f"{type(cause).__name__}: {cause}")
        return {
            "action": "suspect",
            "ending": Ending.ALLOCATION_FAILED,
            "cause": "the job ran out of memory",
            "peak_bytes": self._meter.peak_bytes() or None,
        }

    def _publish(self, request: BatchRequest, index: int, outcome: Outcome, emit: Emit) -> None:
        """Bring the project's record of failures up to date, then tell the main process."""
        try:
            self._keep_record(request.places[index], outcome)
        except StoreError as error:
            emit(index, self._store_trouble(error, request))
            return
        emit(index, outcome_frame(outcome, read_contract(request.contract(index))))

    def _keep_record(self, place: Place | None, outcome: Outcome) -> None:
        if isinstance(outcome, Failed) and not isinstance(outcome, Elsewhere):
            self._store.check()
            record_failure(self._store, place, outcome.failure)
        elif isinstance(outcome, Done):
            clear_failure(self._store, place)

    def _store_trouble(self, error: StoreError, request: BatchRequest) -> dict[str, Any]:
        """Tell a fault of the whole store, which costs no attempt, from one of a single file.

        Asked here, in the child: a store that hangs hangs the job, not the node.
        """
        fault = fault_behind(error, self._store.root, request.store_id)
        if fault is not None:
            return {"action": "store_away", "fault": asdict(fault)}
        return {"action": "transient", "cause": str(error)}


def _name(request: BatchRequest, index: int) -> str:
    """Return what a failure calls an item before the callback knows better."""
    place = request.places[index]
    return place.told_as if place else request.kind


def _validated(kind: Kind, raw: dict[str, Any], name: str) -> Payload | Failed:
    try:
        return kind.payload.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Failed(
            failure=Failure(
                name=name,
                reason=Reason.INVALID_ARGUMENTS,
                cause=f"the arguments of {kind.name} are not valid: {where or 'payload'}: {first['msg']}",
                cure="Correct the arguments and submit the job again.",
            )
        )


def _internal_error(error: Exception, name: str) -> Failed:
    return Failed(
        failure=Failure(
            name=name,
            reason=Reason.INTERNAL_ERROR,
            cause=f"the job raised {type(error).__name__}: {error}",
            cure="Report this with the worker's log; the item is left out of the project.",
        )
    )


def outcome_frame(outcome: Outcome, contract: SentContract = NOTHING_SAID) -> dict[str, Any]:
    """Return an outcome as the JSON object that the main process settles; what follows has its contract."""
    match outcome:
        case Done():
            pushes = [to_push(job, contract) for job in outcome.follow_ups]
            frame: dict[str, Any] = {"action": "done", "pushes": pushes}
            if outcome.continuation is not None:
                frame["continuation"] = to_push(outcome.continuation, contract)
                frame["continue_at"] = outcome.continue_at
            if outcome.progress:
                frame["progress"] = dict(outcome.progress)
            if outcome.counts:
                frame["counts"] = dict(outcome.counts)
            return frame
        case Elsewhere():
            return {
                "action": "elsewhere",
                "failure": outcome.failure.to_dict(),
                "source": outcome.source,
                "counts_attempt": outcome.counts_attempt,
            }
        case Failed():
            return {"action": "failed", "failure": outcome.failure.to_dict()}
        case Needs():
            return {"action": "needs", "estimate": outcome.estimate.to_header()}
        case NotReady():
            return {"action": "not_ready", "cause": outcome.cause}

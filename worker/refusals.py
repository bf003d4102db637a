"""Words the failures that the main process itself finds: what no child ever ran. Pure."""

from dataclasses import replace

from governor.model import Decision, DecisionReason, Estimate
from tasks.errors import Failure, Reason
from tasks.estimate_forms import EstimateForms, difference
from tasks.kind import Kind
from worker.claim import Head
from worker.deaths import LastEnd

_MOST_CHARACTERS = 200
"""Of a text from outside: whoever sends nonsense does not fill the list of dead jobs."""
_MOST_OF_A_DIFFERENCE = 800
"""Nine fields fit, each with a number of 64 bits and what two forms have instead."""


def malformed(head: Head, kind: Kind) -> Failure:
    """Return the failure of a message that is unreadable, or whose estimate its kind does not accept."""
    if head.mark == "bad":
        return undecodable(head.kind, "not a task message")
    sent = head.sent_estimate()
    if sent is not None and kind.forms is not None and head.estimate(kind) is None:
        return _of_no_form(sent, kind, kind.forms)
    return Failure(
        name=head.kind,
        reason=Reason.INVALID_ESTIMATE,
        cause=f"the header `estimate` is not a valid estimate: {_quoted(head.estimate_text)}",
        cure="Leave the header out, or send an estimate as docs/payloads.md describes it.",
    )


def _of_no_form(sent: Estimate, kind: Kind, forms: EstimateForms) -> Failure:
    named = difference(sent, kind.estimate, forms)
    return Failure(
        name=kind.name,
        reason=Reason.INVALID_ESTIMATE,
        cause=f"the estimate is of no form that {kind.name} accepts: {_quoted(named, _MOST_OF_A_DIFFERENCE)}",
        cure=f"Leave the header `estimate` out, or send {kind.estimate.to_header()}",
    )


def undecodable(name: str, cause: str) -> Failure:
    """Return the failure of a message that cannot be read."""
    return Failure(
        name=name,
        reason=Reason.UNDECODABLE_MESSAGE,
        cause=f"the message cannot be read: {_quoted(cause)}",
        cure="Send it with a Celery client, as JSON and not compressed.",
    )


def stale(name: str, age_ms: int, max_age_ms: int) -> Failure:
    """Return the failure of an item of a project that came too late for its contract."""
    return Failure(
        name=name,
        reason=Reason.STALE,
        cause=f"its result would be {age_ms} ms old, and of no use after {max_age_ms} ms (its max age)",
        cure="Submit the project again with a greater max age, or without one; or add machines.",
    )


def positional_arguments(name: str) -> Failure:
    """Return the failure of a job that was called with positional arguments."""
    return Failure(
        name=name,
        reason=Reason.INVALID_ARGUMENTS,
        cause="the job has positional arguments, which no kind takes",
        cure="Use keyword arguments: kwargs={...} instead of args=[...].",
    )


def invalid_task(name: str) -> Failure:
    """Return the failure of a job of a known task that Celery finds invalid; only its log says why."""
    return Failure(
        name=name,
        reason=Reason.INVALID_ARGUMENTS,
        cause="Celery finds one of its headers invalid (`expires`, for example)",
        cure="Look at the worker's log for the header, correct it and send the job again.",
    )


def too_large(decision: Decision, memory_option: str | None) -> Failure:
    """Return the failure of an item that this node, and no other, can take.

    ``memory_option`` is the ``--memory`` that would do, where the node is a
    partition of a machine that has it.
    """
    if _is_short_of_gpu(decision):
        cure = "Resume the project on a machine whose GPU offers that, or run it with --matcher cpu."
    elif memory_option:
        cure = f"Resume the project with --memory {memory_option} or more."
    else:
        cure = "Resume the project on a machine with more free memory, or use smaller photos."
    return Failure(name="", reason=Reason.NEEDS_BIGGER_NODE, cause=decision.detail, cure=cure)


def never_free(decision: Decision, memory_option: str | None) -> Failure:
    """Return the failure of an item that has waited for memory in vain, with no job in its way."""
    failure = too_large(decision, memory_option)
    why = "for 30 s, with no job running: other programs have the memory, or too little is left to jobs"
    return replace(failure, cause=f"{failure.cause} {why}")


def _is_short_of_gpu(decision: Decision) -> bool:
    """Tell whether more RAM would not help: there is no GPU, or its own memory is too small."""
    needed_bytes, available_bytes = decision.needed_gpu_memory_bytes, decision.available_gpu_memory_bytes
    is_memory_short = needed_bytes is not None and needed_bytes > (available_bytes or 0)
    has_memory = (decision.needed_memory_bytes or 0) <= (decision.available_memory_bytes or 0)
    return decision.reason is DecisionReason.NO_GPU or (is_memory_short and has_memory)


def after_memory_kill(failure: Failure, last_end: LastEnd | None) -> Failure:
    """Return the same failure, with its root cause where the item once ran out of memory."""
    if (
        failure.reason is not Reason.NEEDS_BIGGER_NODE
        or last_end is None
        or not last_end.ending.is_for_memory
    ):
        return failure
    return replace(failure, cause=f"{failure.cause}; before, {last_end.sentence()}")


def unknown_task(name: str, task: str, queue: str | None = None) -> Failure:
    """Return the failure of a task that is not known here, or came through the wrong queue."""
    where = f"does not belong into the queue {queue}" if queue else "is not known here"
    return Failure(
        name=name,
        reason=Reason.UNKNOWN_TASK,
        cause=f"the task {_quoted(task)} {where}",
        cure="Send each kind to the queue of its own name.",
    )


def cancelled(name: str) -> Failure:
    """Return the failure of a job that was revoked or has expired."""
    return Failure(
        name=name,
        reason=Reason.CANCELLED,
        cause="the job was revoked, or expired before it started",
        cure="Resume the project to run it again; a job without a project is sent anew.",
    )


def too_many_lost_nodes(name: str, lost: int, last: str | None) -> Failure:
    """Return the failure of a job that was held by too many nodes, or their spawners, when they were lost."""
    at_last = f"; the last: {_quoted(last)}" if last else ""
    return Failure(
        name=name,
        reason=Reason.WORKER_LOST,
        cause=f"{lost} nodes were lost while they held it, or their processes that start jobs{at_last}",
        cure="Look at the nodes' logs; resume the project, or retry the job, to try again.",
    )


def named(failure: Failure, name: str) -> Failure:
    """Return the same failure under the name of its item."""
    return replace(failure, name=name)


def _quoted(text: str, most_characters: int = _MOST_CHARACTERS) -> str:
    """Return the beginning of a text from outside, as text that can be stored and printed."""
    return text[:most_characters].encode(errors="backslashreplace").decode()

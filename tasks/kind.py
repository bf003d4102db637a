"""Holds what a job kind is: its estimate, its payload, its callback, its outcomes.

A callback is a plain function: it gets the payloads of one batch, the grant
and the store, and yields one outcome per payload, in order, each as soon as
its artefact is published. It runs without Celery, Redis or a governor.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from governor.model import Estimate, Grant
from tasks.errors import Failure
from tasks.estimate_forms import EstimateForms, normalised
from tasks.store import Store


class Payload(BaseModel):
    """Base of every kind's keyword arguments: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One item of work to publish: a future message of the queue ``kind``.

    ``estimate`` is None where the kind's default holds. ``project``,
    ``stage`` and ``item`` name the entry in the project's stage set that is
    removed, once, when the job is settled.
    """

    kind: str
    payload: Mapping[str, Any]
    project: str
    stage: str
    item: str
    name: str = ""
    """What the user calls the item (a photo's name), for messages; empty = the item itself."""
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The item's artefact is published (or was already there)."""

    recorded_items: int = 1
    """How many units the kind's history counts (spec: "recorded size"); 0 for a no-op."""
    follow_ups: tuple[Job, ...] = ()
    """Jobs that settling this item pushes, in the same atomic step."""
    continuation: Job | None = None
    """``pipeline.expand`` only: its successor, pushed exactly once, as soon as
    at most ``continue_at`` jobs of the project are outstanding."""
    continue_at: int = 0
    progress: Mapping[str, str] = field(default_factory=dict)
    """``pipeline.expand`` only: fields of the project's live state to set in the same step."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Added to fields of the project's live state in the same step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The item cannot succeed; it is quarantined with its reason."""

    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere(Failed):
    """This node does not see a file that another may see; a failure only where no other node does."""

    source: str
    """The file: an absolute path, or one relative to the store's root."""
    counts_attempt: bool
    """It should be seen here (so it may be gone), and is not; False: this node was never meant to see it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The item needs more than the grant; it goes back with this estimate, no attempt counted."""

    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """An input is missing or corrupt.

    The item leaves the queue without a result; the next ``pipeline.expand``
    sees from the store what has to be made again, and plans this item anew.
    """

    cause: str


Outcome = Done | Failed | Elsewhere | Needs | NotReady

Callback = Callable[[Sequence[Any], Grant, Store], Iterator[Outcome]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How long one item may be at work; None = for ever.

    Only for what hangs: never derived from a plan or from what was measured
    (a limit that ends what is merely slow would hide it from who plans).
    """

    soft_seconds: float | None = 3_600.0
    """The callback gets an exception then, and may leave things in order."""
    hard_seconds: float | None = 4_500.0
    """Its process is killed then, with all that it has started."""


OF_WHOLE_PROJECTS = TimeLimit(soft_seconds=14 * 86_400.0, hard_seconds=15 * 86_400.0)
"""One item is the whole project, of thousands of photos: days are not too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row of the catalogue."""

    name: str
    version: int
    stage: str
    """The pipeline stage that this kind belongs to (several kinds may share one)."""
    estimate: Estimate
    """The default estimate; also the floor of every computed one."""
    forms: EstimateForms | None = None
    """What a message's own estimate may be, besides the default; None = any valid one.
    Restrict it only if every estimate that :class:`Needs` answers is of these forms."""
    payload: type[Payload]
    run: Callback
    powers_of_two: bool = False
    """Batches are 1, 2, 4, 8, ... items only."""
    window: Callable[[Grant], int] = lambda _grant: 1
    """How many unfinished items the callback works on at a time: those are the
    suspects when its process dies."""
    warm_up: Callable[[], None] = lambda: None
    """Imports the kind's libraries and does one tiny product, so that a child's
    baseline memory includes them."""
    time_limit: TimeLimit = field(default_factory=TimeLimit)
    """Of each item; what a kind loads first is not counted."""
    needs_opencl: bool = False
    """Only nodes whose GPU OpenCV can use through OpenCL take such jobs."""

    def estimate_for(self, sent: Estimate, *, is_moved: bool = False) -> Estimate | None:
        """Return the estimate that a message's own stands for; None where it is of no accepted form.

        ``is_moved``: not its sender wrote it, but a node that gave the item more memory.
        """
        return sent if self.forms is None else normalised(sent, self.estimate, self.forms, is_moved=is_moved)

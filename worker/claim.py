"""Holds what a node sees of its queues and takes from them: heads, wishes, claimed messages.

Does not cover how they are asked for (:mod:`worker.queue_view`) nor what is
claimed (:mod:`worker.intake`).
"""

import json
from dataclasses import dataclass

from governor.model import Estimate
from tasks.kind import Kind
from worker import keys
from worker.contracts import NOTHING_SAID, NS_PER_MS, SentContract, read_contract
from worker.estimates import admitted_estimate, parsed_estimate

BEST_EFFORT = 6
"""kombu priority of the class best effort."""


class LeaseLostError(Exception):
    """The lease has ended: nothing was claimed, it must be taken anew first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What waits next in one list, or the largest fitting entry of a large set."""

    kind: str
    source: str
    """The list's or the large set's key."""
    is_large: bool
    count: int
    """How many messages wait there."""
    estimate_text: str
    """As a claim compares it; empty = the kind's default. Bytes that are no UTF-8 are kept as surrogates."""
    mark: str
    """``ok``, ``solo`` (a suspect: runs alone) or ``bad`` (cannot be read); ``moved`` and ``moved_solo``:
    the same, under an estimate that a node has written into the message."""
    priority: int
    charged_bytes: int = 0
    """Of a large entry: what it was set aside with, which finds it again."""
    identity: str = ""
    """Tells this message from the next one like it."""
    project: str = ""
    """What the message's header says; empty for a job without a project."""
    is_drained_for: bool = False
    """A large entry that a node makes room for: claimed as itself, not as the largest that fits."""
    contract: SentContract = NOTHING_SAID
    """What the message says of time; its class is its list's."""

    @property
    def due_ms(self) -> int:
        """Return when its result is due, by the server's clock; far away where it has no deadline."""
        captured_ns = (self.contract.captured_at_ms or 0) * NS_PER_MS
        return self.contract.contract.absolute_deadline_ns(captured_ns) // NS_PER_MS

    @property
    def estimate_bytes(self) -> bytes:
        """Return the estimate's text as it is in the message, byte by byte."""
        return self.estimate_text.encode(errors="surrogateescape")

    def estimate(self, kind: Kind) -> Estimate | None:
        """Return what the message is admitted with, or None where the kind does not accept its estimate.

        What is admitted may differ from what is written (an old form): a claim
        goes on comparing the text.
        """
        is_moved = self.mark in {"moved", "moved_solo"}
        return admitted_estimate(kind, self.estimate_text, is_moved=is_moved)

    @property
    def runs_alone(self) -> bool:
        """Tell whether what is behind it is not alike: a large entry, or a suspect."""
        return self.is_large or self.mark in {"solo", "moved_solo"}

    def sent_estimate(self) -> Estimate | None:
        """Return the estimate as it is written, or None where there is none or the text is not one."""
        return parsed_estimate(self.estimate_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """One message that now belongs to this node's lease."""

    tag: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a node wants to take, a reservation at hand: up to ``batch`` messages like a head."""

    head: Head
    batch: int
    powers_of_two: bool = False
    """1, 2, 4, 8, ... messages only, the most that are there."""


def head_of(
    kind: str,
    source: str,
    is_large: bool,  # noqa: FBT001 - a row of a table
    reply: list[bytes],
    *,
    is_drained_for: bool = False,
) -> Head:
    """Return a head as the scripts ``peek`` and ``drain`` have told it."""
    count, estimate_text, mark, message_class, charged_bytes, identity, came_from, project, contract = reply
    priority = keys.priority_of_list(came_from.decode())
    if priority == 0 and not message_class:
        # kombu's own default is 0, which Redis serves first; without our
        # `class` header nobody asked for that.
        priority = BEST_EFFORT
    return Head(
        kind=kind,
        source=source,
        is_large=is_large,
        count=int(count),
        estimate_text=estimate_text.decode(errors="surrogateescape"),
        mark=mark.decode(),
        priority=priority,
        charged_bytes=int(float(charged_bytes)),
        identity=identity.decode(),
        project=project.decode(errors="surrogateescape"),
        is_drained_for=is_drained_for,
        contract=_contract_of(contract),
    )


def _contract_of(text: bytes) -> SentContract:
    """Return what a script has told; one that makes no sense is refused when its message is claimed."""
    if not text:
        return NOTHING_SAID
    try:
        return read_contract(json.loads(text))
    except ValueError:
        return NOTHING_SAID

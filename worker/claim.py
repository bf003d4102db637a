"""Looks at the queues' heads and claims messages; every claim follows a reservation.

Does not decide what to claim (:mod:`worker.puller`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import redis
from redis.exceptions import NoScriptError

from governor.model import Estimate
from tasks.kind import Kind
from worker import keys
from worker.connections import TrackedClient
from worker.lease import Lease
from worker.redis_scripts import Script, enqueue, load_all, run

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
    """``ok``, ``solo`` (a suspect: runs alone) or ``bad`` (cannot be read)."""
    priority: int
    charged_bytes: int = 0
    """Of a large entry: what it was set aside with, which finds it again."""
    identity: str = ""
    """Tells this message from the next one like it."""

    @property
    def estimate_bytes(self) -> bytes:
        """Return the estimate's text as it is in the message, byte by byte."""
        return self.estimate_text.encode(errors="surrogateescape")

    def estimate(self, kind: Kind) -> Estimate | None:
        """Return what the message is admitted with, or None where the kind does not accept its estimate.

        What is admitted may differ from what is written (an old form): a claim
        goes on comparing the text.
        """
        if not self.estimate_text:
            return kind.estimate
        sent = self.sent_estimate()
        return None if sent is None else kind.estimate_for(sent)

    def sent_estimate(self) -> Estimate | None:
        """Return the estimate as it is written, or None where there is none or the text is not one."""
        try:
            return Estimate.from_header(self.estimate_text)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """One message that now belongs to this node's lease."""

    tag: str
    payload: bytes


class QueueView:
    """Peeks and claims over the tracked connection; main thread only."""

    def __init__(self, tracked: TrackedClient, lease: Lease) -> None:
        self._tracked = tracked
        self._lease = lease

    def look(self, kinds: Sequence[Kind], most_bytes: int) -> list[Head]:
        """Return what waits for these kinds, and arm the wake-up for whatever changes after.

        ``most_bytes`` bounds the large entries looked for.
        """
        if not kinds:
            return []
        sources = [
            (kind.name, source, is_large)
            for kind in kinds
            for source, is_large in [
                *((name, False) for name in keys.queue_lists(kind.name)),
                (keys.large(kind.name), True),
            ]
        ]
        names = [source for _, source, _ in sources]
        bounds = [str(most_bytes) if is_large else "list" for _, _, is_large in sources]
        replies = self._peek_and_arm(names, bounds)
        return [
            _head(kind, source, is_large, reply)
            for (kind, source, is_large), reply in zip(sources, replies, strict=True)
            if reply[0]
        ]

    def _peek_and_arm(self, names: list[str], bounds: list[str]) -> list[list[bytes]]:
        with self._tracked.client.pipeline(transaction=False) as pipeline:
            # Arm first, so that there is no gap. A plain EXISTS is tracked for
            # sure; reads inside a script are not relied on.
            pipeline.exists(*names)
            enqueue(pipeline, Script.PEEK, names, *bounds)
            try:
                _, replies = pipeline.execute()
            except NoScriptError:
                load_all(self._tracked.client)
                return self._peek_and_arm(names, bounds)
        return list(replies)

    def claim(self, head: Head, batch: int, *, powers_of_two: bool = False) -> list[Claimed]:
        """Claim up to ``batch`` messages like this head; fewer, or none, where others were faster.

        With ``powers_of_two`` 1, 2, 4, 8, ... messages, the most that are there.

        Raises:
            LeaseLostError: the lease has ended.
        """
        script, bounds = (
            (Script.CLAIM_LARGE, (head.charged_bytes,))
            if head.is_large
            else (Script.CLAIM, (batch, keys.MAX_CLAIM_BYTES, int(powers_of_two)))
        )
        held, *flat = run(
            self._tracked.client,
            script,
            [keys.LEASES, self._lease.inflight_key, head.source],
            self._lease.incarnation,
            self._lease.next_claim(),
            head.estimate_bytes,
            head.mark,
            *bounds,
        )
        if not held:
            raise LeaseLostError
        return [
            Claimed(tag=tag.decode(), payload=payload)
            for tag, payload in zip(flat[::2], flat[1::2], strict=True)
        ]


def set_aside(client: redis.Redis, head: Head, charged_bytes: int, *, only_if_it_blocks: bool) -> bool:
    """Move a head that this node cannot take to the kind's large set.

    False where it had gone, or (with ``only_if_it_blocks``) where only others
    like it wait behind it.
    """
    return bool(
        run(
            client,
            Script.SET_ASIDE,
            [head.source, keys.large(head.kind)],
            head.estimate_bytes,
            head.mark,
            charged_bytes,
            int(only_if_it_blocks),
        )
    )


def _head(kind: str, source: str, is_large: bool, reply: list[bytes]) -> Head:  # noqa: FBT001 - a row of a table
    count, estimate_text, mark, message_class, charged_bytes, identity, came_from = reply
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
    )

"""Keeps what a node knows of its queues current, and claims: one round trip for all that a turn needs.

What was looked at stays known until Redis tells of a change or the node has
changed it itself; so an idle node asks nothing, and a busy one asks only for
the lists it takes from. Does not decide what to claim (:mod:`worker.intake`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import NoScriptError

from tasks.kind import Kind
from worker import keys
from worker.claim import Claimed, Head, LeaseLostError, Wish, head_of
from worker.connections import TrackedClient
from worker.lease import Lease
from worker.redis_scripts import Command, Script, command, source
from worker.settle import Settler

MostBytes = Callable[[], int]
"""Bounds the large entries that are looked for; asked only where there may be some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """One list of a kind, or its large set."""

    kind: str
    is_large: bool


@dataclass(slots=True, kw_only=True)
class Turn:
    """What one round trip has brought: for each wish the messages that are ours now."""

    claimed: list[list[Claimed]] = field(default_factory=list)
    error: Exception | None = None
    """What some wish has met: the lease has ended, or Redis refuses. What others have brought is ours."""


class QueueView:
    """Looks and claims over the tracked connection; main thread only.

    A source is *stale* when it may have changed since it was looked at. A
    large set that is not empty always is: what of it fits changes with every
    reservation.
    """

    def __init__(self, tracked: TrackedClient, lease: Lease, settler: Settler) -> None:
        self._tracked = tracked
        self._lease = lease
        self._settler = settler
        self._sources: dict[str, _Source] = {}
        self._heads: dict[str, Head] = {}
        self._stale: set[str] = set()
        self._filled_large: set[str] = set()

    def watch(self, kinds: Sequence[Kind]) -> None:
        """Look at the queues of these kinds from now on, and at no other."""
        self._sources = {}
        for kind in kinds:
            for name in keys.queue_lists(kind.name):
                self._sources[name] = _Source(kind=kind.name, is_large=False)
            self._sources[keys.large(kind.name)] = _Source(kind=kind.name, is_large=True)
        self._heads.clear()
        self._filled_large.clear()
        self.forget_all()

    def forget_all(self) -> None:
        """Look at every source again with the next turn."""
        self._stale = set(self._sources)

    def forget(self, names: Iterable[str]) -> None:
        """Look at these again with the next turn: they may have changed."""
        self._stale.update(name for name in names if name in self._sources)

    def forget_what_has_changed(self) -> bool:
        """Read which sources have changed since they were looked at; False where it was something else.

        Redis tells of all that a script has read on this connection: leases, projects.
        """
        names = self._tracked.drain()
        if names is None:
            self.forget_all()
            return True
        self.forget(names)
        return not names.isdisjoint(self._sources)

    @property
    def needs_look(self) -> bool:
        """Tell whether the heads may be others than the known ones."""
        return bool(self._stale or self._filled_large)

    @property
    def is_stale(self) -> bool:
        """Tell whether any source may have changed since it was looked at."""
        return bool(self._stale)

    def large_sets(self) -> list[str]:
        """Return the large sets that were not empty when they were last looked at."""
        return sorted(self._filled_large)

    def heads(self) -> list[Head]:
        """Return what waits, as it was when it was last looked at."""
        return list(self._heads.values())

    def look(self, most_bytes: MostBytes) -> None:
        """Bring what is known up to date; see :meth:`turn`."""
        # Once more where settling has pushed to a list, or the server had to be told the scripts.
        for _ in range(2):
            turn = self.turn([], most_bytes)
            if turn.error is not None:
                raise turn.error
            if not self._stale:
                return

    def turn(self, wishes: Sequence[Wish], most_bytes: MostBytes) -> Turn:
        """Settle what is finished, claim, and look at what was stale or is claimed from, in this order.

        Every source that is looked at is armed first: its next change wakes
        the node. ``most_bytes`` bounds the large entries looked for.

        Raises:
            redis.RedisError: Redis cannot be reached; what was claimed is given back as stray.
        """
        looked_at = self._to_look_at(wishes)
        settling = self._settler.next_command()
        commands = [] if settling is None else [settling[1]]
        commands += [self._claim(wish) for wish in wishes]
        commands += self._look(looked_at, most_bytes)
        replies = self._exchange(commands)
        if settling is not None:
            self._on_settled(replies.pop(0), settling[0])
        return self._taken(wishes, looked_at, replies)

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        try:
            replies = self._tracked.exchange(commands)
        except BaseException:
            self.forget_all()
            raise
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # The server has been restarted or flushed: nothing of those has happened.
            self._tracked.exchange([("SCRIPT", "LOAD", source(script)) for script in Script])
        return replies

    def run_script(self, script: Script, names: list[str], *arguments: str | bytes | int) -> Any:
        """Run one script by itself; None where the server had to be told the scripts first.

        Raises:
            redis.RedisError: Redis cannot be reached, or refuses.
        """
        (reply,) = self._exchange([command(script, names, *arguments)])
        if isinstance(reply, NoScriptError):
            return None
        if isinstance(reply, Exception):
            raise reply
        return reply

    def set_aside(
        self, head: Head, charged_bytes: int, *, only_if_it_blocks: bool, waited_ms: int = 0
    ) -> bool:
        """Move a head that this node cannot take to the kind's large set; it has waited so long already.

        False where it had gone, or (with ``only_if_it_blocks``) where only others
        like it wait behind it.
        """
        reply = self.run_script(
            Script.SET_ASIDE,
            [head.source, keys.large(head.kind)],
            head.estimate_bytes,
            head.mark,
            charged_bytes,
            int(only_if_it_blocks),
            waited_ms,
        )
        if reply == 1:
            self.forget([head.source, keys.large(head.kind)])
        return bool(reply == 1)

    def _to_look_at(self, wishes: Sequence[Wish]) -> list[str]:
        claimed_from = {wish.head.source for wish in wishes}
        return sorted(self._stale | self._filled_large | claimed_from)

    def _claim(self, wish: Wish) -> Command:
        head = wish.head
        script, bounds = (
            (Script.CLAIM_LARGE, (head.charged_bytes,))
            if head.is_large
            else (Script.CLAIM, (wish.batch, keys.MAX_CLAIM_BYTES, int(wish.powers_of_two)))
        )
        return command(
            script,
            [
                keys.LEASES,
                self._lease.inflight_key,
                head.source,
                *([keys.DRAIN] if head.is_drained_for else []),
            ],
            self._lease.incarnation,
            self._lease.next_claim(),
            head.estimate_bytes,
            head.mark,
            *bounds,
        )

    def _look(self, names: list[str], most_bytes: MostBytes) -> list[Command]:
        if not names:
            return []
        bounds = [str(most_bytes()) if self._sources[name].is_large else "list" for name in names]
        # Armed before it is looked at, so that there is no gap. A plain EXISTS is tracked for sure;
        # reads inside a script are not relied on.
        return [("EXISTS", *names), command(Script.PEEK, names, *bounds)]

    def _on_settled(self, reply: Any, entries: int) -> None:
        if not isinstance(reply, NoScriptError):
            self.forget(self._settler.on_reply(reply, entries))

    def _taken(self, wishes: Sequence[Wish], looked_at: list[str], replies: list[Any]) -> Turn:
        turn = Turn()
        for reply in replies[: len(wishes)]:
            turn.claimed.append(self._claimed(reply, turn))
        if looked_at:
            self._on_look(looked_at, replies[-1], turn)
        return turn

    def _claimed(self, reply: Any, turn: Turn) -> list[Claimed]:
        if isinstance(reply, NoScriptError):
            return []
        if isinstance(reply, Exception):
            turn.error = reply
            return []
        held, *flat = reply
        if not held:
            turn.error = LeaseLostError()
        return [
            Claimed(tag=tag.decode(), payload=payload)
            for tag, payload in zip(flat[::2], flat[1::2], strict=True)
        ]

    def _on_look(self, names: list[str], reply: Any, turn: Turn) -> None:
        if isinstance(reply, Exception):
            self.forget(names)
            if not isinstance(reply, NoScriptError):
                turn.error = turn.error or reply
            return
        self._stale.difference_update(names)
        for name, told in zip(names, reply, strict=True):
            self._note(name, told)

    def _note(self, name: str, told: list[bytes]) -> None:
        place, (count, *rest) = self._sources[name], told
        if rest:
            self._heads[name] = head_of(place.kind, name, place.is_large, told)
        else:
            self._heads.pop(name, None)
        if place.is_large and count:
            self._filled_large.add(name)
        else:
            self._filled_large.discard(name)

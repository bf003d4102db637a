"""Deals with heads that cannot run on this node: moves them out of the way, or fails them.

Does not cover the order in which heads are tried, nor what may start
(:mod:`worker.intake`).
"""

import time

from governor.model import UINT64_MAX, Decision, DecisionReason, Estimate
from tasks.errors import Failure
from worker import refusals
from worker.beside import need_of
from worker.candidates import WaitingTimes
from worker.claim import Head, Wish
from worker.drain import DRAIN_AFTER_NS
from worker.node import Node
from worker.overtaking import Waiting
from worker.queue_view import QueueView
from worker.reception import Reception

_SET_ASIDE_AFTER_NS = 1_000_000_000
_MS = 1_000_000
_BLOCKED_AFTER_NS = 30_000_000_000
_SHORT_OF_MEMORY = {DecisionReason.INSUFFICIENT_MEMORY, DecisionReason.PRESSURE_RED}


class Misfits:
    """What the loop does with heads that it may not start; main thread only."""

    def __init__(self, node: Node, reception: Reception) -> None:
        self._node = node
        self._reception = reception
        self._blocked_times = WaitingTimes()

    def refuse_malformed(self, queues: QueueView, head: Head) -> None:
        """Fail a message that is unreadable, or whose estimate its kind does not accept."""
        self._refuse(queues, head, refusals.malformed(head, self._node.kinds[head.kind]))

    def reject(self, queues: QueueView, head: Head, decision: Decision) -> bool:
        """Fail what no node can run, or move what this one cannot out of the way; False: it stays."""
        if decision.reason is DecisionReason.INVALID_ESTIMATE:
            self.refuse_malformed(queues, head)
            return True
        if self._node.settings.single_node or decision.reason is DecisionReason.ESTIMATE_TOO_LARGE:
            self._refuse_as_too_large(queues, head, decision)
            return True
        is_for_another_node = decision.reason in {DecisionReason.IMPOSSIBLE_ON_NODE, DecisionReason.NO_GPU}
        if head.is_large or not is_for_another_node:
            return False
        queues.set_aside(head, decision.needed_memory_bytes or 0, only_if_it_blocks=False)
        return True

    def on_wait(self, queues: QueueView, head: Head, decision: Decision, waiting: Waiting) -> None:
        """Move a head out of the way that has waited for memory for a second and blocks others.

        One that blocks none stays among those like it, with which it shares
        batches; unless others take the memory that it waits for: then it has
        to be drained for.
        """
        is_short = decision.reason is DecisionReason.INSUFFICIENT_MEMORY
        if not is_short or head.is_large or waiting.tried_since_ns is None:
            return
        now_ns = time.monotonic_ns()
        is_starved = waiting.is_starved(now_ns, DRAIN_AFTER_NS)
        if is_starved or now_ns - waiting.tried_since_ns > _SET_ASIDE_AFTER_NS:
            queues.set_aside(
                head,
                decision.needed_memory_bytes or 0,
                only_if_it_blocks=not is_starved,
                waited_ms=(now_ns - (waiting.seen_since_ns or now_ns)) // _MS,
            )

    def fail_blocked(self, queues: QueueView, *, is_idle: bool) -> None:
        """Fail what has not fitted for 30 s, though nothing runs here and no other node will come.

        A head that waits alone is in nobody's way and stays in its list: it counts as a large entry does.
        """
        now_ns = time.monotonic_ns()
        queues.look(lambda: UINT64_MAX)
        unfit: list[tuple[Head, Estimate]] = []
        for head in queues.heads():
            kind = self._node.kinds[head.kind]
            estimate = head.estimate(kind)
            if estimate is None:
                self.refuse_malformed(queues, head)
                continue
            charged = self._node.charged(kind, estimate)
            if is_idle and not self._fits(charged):
                unfit.append((head, charged))
        self._blocked_times.note([head for head, _ in unfit], now_ns)
        for head, charged in unfit:
            since_ns = self._blocked_times.since_ns(head)
            if since_ns is not None and now_ns - since_ns >= _BLOCKED_AFTER_NS:
                self._fail_if_short(queues, head, charged)

    def _fits(self, charged: Estimate) -> bool:
        """Tell whether what the machine has left by its last reading suffices; what is unknown does."""
        if not charged.is_valid():
            return True  # The governor refuses it.
        need = need_of(charged, self._node.governor.profile.gpu)
        left = self._node.governor.availability().available
        is_gpu_full = (
            left.gpu_memory_bytes is not None and (need.gpu_memory_bytes or 0) > left.gpu_memory_bytes
        )
        return not is_gpu_full and need.memory_bytes <= left.memory_bytes

    def _fail_if_short(self, queues: QueueView, head: Head, charged: Estimate) -> None:
        """Fail a head unless it waits for something else just now: a busy machine is no reason to fail."""
        decision = self._node.governor.decide(self._node.snapshot(), charged, head.kind)
        if decision.reason in _SHORT_OF_MEMORY:
            memory_option = self._node.memory_option_for(decision)
            self._refuse(queues, head, refusals.never_free(decision, memory_option))

    def _refuse_as_too_large(self, queues: QueueView, head: Head, decision: Decision) -> None:
        self._refuse(queues, head, refusals.too_large(decision, self._node.memory_option_for(decision)))

    def _refuse(self, queues: QueueView, head: Head, failure: Failure) -> None:
        """Claim one message without a reservation, to fail it: no code of a job runs."""
        turn = queues.turn([Wish(head=head, batch=1)], self._node.free_memory_bytes)
        for claimed in turn.claimed:
            for message in claimed:
                self._reception.refuse(message, head.kind, failure)
        if turn.error is not None:
            raise turn.error

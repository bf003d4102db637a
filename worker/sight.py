"""Holds what this node knows of who sees which photos: what it does not see itself, and who else may.

Does not cover what becomes of an item that is not seen
(:mod:`worker.item_endings`), nor the check at submission (:mod:`worker.submission`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tasks.errors import Failure
from worker.live_nodes import LiveNode, names_of
from worker.logs import get_logger
from worker.project_queue import QueueError

log = get_logger(__name__)

_LOOK_ELSEWHERE_NS = 30_000_000_000
"""How long a node leaves a project's imports to others, once it has met a photo that it does not see."""
_REGISTRY_IS_FRESH_NS = 2_000_000_000


class Sight:
    """What one node sees, and what others may; main thread only.

    ``nodes`` reads the registry; it is asked at most every two seconds, and
    only once a photo was not seen.
    """

    def __init__(self, name: str, nodes: Callable[[], list[LiveNode]], now_ns: Callable[[], int]) -> None:
        self._name = name
        self._nodes = nodes
        self._now_ns = now_ns
        self._known: list[LiveNode] = []
        self._read_at_ns: int | None = None
        self._blind_until_ns: dict[tuple[str, str], int] = {}

    def others(self, source: str) -> list[LiveNode] | None:
        """Return the other live nodes of this store that may read a source; None while nobody can tell."""
        now_ns = self._now_ns()
        if self._read_at_ns is None or now_ns - self._read_at_ns > _REGISTRY_IS_FRESH_NS:
            try:
                self._known, self._read_at_ns = self._nodes(), now_ns
            except QueueError as error:
                log.warning("registry_not_read", error=str(error), cure="the item is given back")
                return None
        ours = {node.store_id for node in self._known if node.name == self._name}
        return [
            node
            for node in self._known
            if node.name != self._name and node.store_id in ours and node.may_import(source)
        ]

    def note_blind(self, kind: str, project: str) -> None:
        """Leave jobs of a kind and project to other nodes for a while."""
        now_ns = self._now_ns()
        self._blind_until_ns = {key: end for key, end in self._blind_until_ns.items() if end > now_ns}
        self._blind_until_ns[kind, project] = now_ns + _LOOK_ELSEWHERE_NS

    def is_blind_to(self, kind: str, project: str) -> bool:
        """Tell whether jobs of a kind and project are left to other nodes for now."""
        until_ns = self._blind_until_ns.get((kind, project))
        return until_ns is not None and until_ns > self._now_ns()

    def failure(self, failure: Failure, others: Sequence[LiveNode]) -> Failure:
        """Return a failure that says which nodes do not see the photo, or were left."""
        seen_by_none = (
            f"; other nodes that may read it: {names_of(others)}"
            if others
            else "; no other live node may read it"
        )
        cause = f"{failure.cause.rstrip('.')} (node {self._name}{seen_by_none})."
        return replace(failure, cause=cause)

"""Measures what a project of a million pairs takes of a server: its largest memory, and what waits at most.

Planning is real: `pipeline.expand` and `candidate_pair.generate` run on a real
store, and the real scripts settle what comes of them. The photos are made up,
a few keypoints each, and nobody matches: the message of a pair is claimed and
settled as done (so is its verification, whose message would take its place).
One node does it all; the others are leases, which let windows be larger.
"""

import json
import time
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import Any

import redis

from governor.model import Grant
from tasks.catalog import load_kinds
from tasks.kind import Done
from tasks.pair_jobs import MATCH_KIND
from tasks.store import Store
from tests.bench.retrieval_scale import ROW_PROJECT, Row, build_row
from tests.bench.scale_cluster import Place
from tests.bench.scale_server import peak_memory_bytes, usage
from worker import keys
from worker.batch import outcome_frame
from worker.claim import Claimed, Wish
from worker.connections import TrackedClient
from worker.lease import Lease
from worker.project_queue import ProjectQueue
from worker.queue_view import QueueView
from worker.settle import Settler

_ROW = Row(features_each=8, strategy="exhaustive", has_sources=False)
_MOST_PAIRS = 256
"""Of one claim."""
_GRANT = Grant(batch=1, cpu_threads=1, memory_bytes=1 << 30)
_LEASE_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFigures:
    """What a project took of the server, beside what it held before."""

    images: int
    pairs: int
    nodes: int
    most_waiting: int
    """Messages in the lists."""
    most_keys: int
    most_memory_bytes: int
    kept_keys: int
    """When the last pair is done: the project's own."""
    kept_memory_bytes: int
    seconds: float


def images_for(pairs: int) -> int:
    """Return how many images have at least so many pairs."""
    images = 2
    while images * (images - 1) // 2 < pairs:
        images += 1
    return images


class _Worker:
    """The one node that claims, plans and settles."""

    def __init__(self, queues: QueueView, settler: Settler, store: Store) -> None:
        self.pairs = 0
        """Done by now."""
        self._queues = queues
        self._settler = settler
        self._store = store
        self._kinds = load_kinds(())
        queues.watch(list(self._kinds.values()))

    def turn(self) -> int:
        """Claim from what waits, and settle it; return how much waited.

        Pairs are done only where nothing can be planned: so as many wait as ever may.
        """
        self._queues.look(lambda: 0)
        heads = self._queues.heads()
        plans = [Wish(head=head, batch=1) for head in heads if head.kind != MATCH_KIND]
        wishes = plans or [Wish(head=head, batch=_MOST_PAIRS) for head in heads]
        turn = self._queues.turn(wishes, lambda: 0)
        if turn.error is not None:
            raise turn.error
        for wish, claimed in zip(wishes, turn.claimed, strict=True):
            for message in claimed:
                self._finish(wish.head.kind, message)
        return sum(head.count for head in heads)

    def _finish(self, kind: str, message: Claimed) -> None:
        fields = json.loads(message.payload)
        place = {name: fields["headers"][name] for name in ("project", "stage", "item")}
        frame = {"action": "done"} if kind == MATCH_KIND else self._run(kind, json.loads(fields["body"])[1])
        self.pairs += kind == MATCH_KIND
        self._settler.add({"tag": message.tag, **place, **_settled(frame)})

    def _run(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        known = self._kinds[kind]
        (outcome,) = known.run([known.payload.model_validate(payload)], _GRANT, self._store)
        if not isinstance(outcome, Done):
            raise TypeError(f"{kind} has not been done: {outcome}")
        return outcome_frame(outcome)


def _settled(frame: dict[str, Any]) -> dict[str, Any]:
    """Return what a child tells in the form that settles it."""
    if "continuation" not in frame:
        return frame
    return {**frame, "continuation": json.dumps(frame["continuation"])}


def measure_window(place: Place, *, pairs: int, nodes: int) -> WindowFigures:
    """Run the matching of a project of at least so many pairs on a server that is used for nothing else."""
    images, server, redis_url = images_for(pairs), place.server, place.redis_url
    store, _, _ = build_row(images, place.folder, _ROW)
    lease = Lease(redis_url, "scale", _LEASE_SECONDS, lambda: {"name": "scale"})
    with ExitStack() as stack:
        stack.callback(lease.release, server)
        lease.ensure(server)
        tracked = stack.enter_context(closing(TrackedClient(redis_url)))
        settler = Settler(lease, on_added=lambda: None)
        worker = _Worker(QueueView(tracked, lease, settler), settler, store)
        _let_others_live(server, nodes - 1)
        begin, begin_seconds = usage(server), time.monotonic()
        stack.enter_context(closing(ProjectQueue(redis_url))).start(ROW_PROJECT, until="matching")
        most_waiting, most_keys = _run_all(worker, server, images * (images - 1) // 2)
        settler.flush(server)
        end = usage(server)
    return WindowFigures(
        images=images,
        pairs=worker.pairs,
        nodes=nodes,
        most_waiting=most_waiting,
        most_keys=most_keys - begin.keys,
        most_memory_bytes=peak_memory_bytes(server) - begin.memory_bytes,
        kept_keys=end.keys - begin.keys,
        kept_memory_bytes=end.memory_bytes - begin.memory_bytes,
        seconds=time.monotonic() - begin_seconds,
    )


def _run_all(worker: _Worker, server: "redis.Redis", pairs: int) -> tuple[int, int]:
    """Run until so many pairs are done; return the most messages that waited, and the most keys."""
    most_waiting = most_keys = 0
    while worker.pairs < pairs:
        most_waiting = max(most_waiting, worker.turn())
        most_keys = max(most_keys, server.dbsize())
    return most_waiting, most_keys


def _let_others_live(server: "redis.Redis", nodes: int) -> None:
    """Hold leases for nodes that do nothing: a window is the larger, the more nodes there are."""
    if nodes:
        end_ms = 1000 * (server.time()[0] + _LEASE_SECONDS * 100)
        server.zadd(keys.LEASES, {f"other-{number}|1": end_ms for number in range(nodes)})


def to_dict(figures: WindowFigures) -> dict[str, Any]:
    """Return figures as JSON has them, rounded."""
    return asdict(figures) | {"seconds": round(figures.seconds, 1)}

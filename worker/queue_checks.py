"""Checks a queue: its server, how that is set up, what its user may do, and what is in it.

Each check is a function from a :class:`Queue` to one finding of its own name. Does not cover
this machine (:mod:`worker.machine_checks`) nor in which order and how long is
checked (:mod:`worker.doctor`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import redis
from redis.exceptions import NoPermissionError

from governor.wording import in_binary_units
from tasks.kind import Kind
from worker.findings import Finding, fine, problem, warning
from worker.live_nodes import LiveNode, names_of, on_other_stores
from worker.planning import NodePlanning
from worker.project_queue import ProjectQueue, headers_of
from worker.redis_scripts import load_all
from worker.rights import CLIENT_PROBES, WORKER_PROBES, lacking
from worker.stream_checks import of_streams
from worker.waiting_jobs import blocked_jobs

OLDEST_VERSION = (6, 2)
SLOW_MILLISECONDS = 20.0
"""Each claim takes a round trip, and each settlement that no claim takes along."""
NEARLY_FULL_PERMILLE = 800
SKEWED_SECONDS = 5.0
_PINGS = 9
_MOST_NAMED = 4
_DOCUMENT = "docs/operations.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue to be checked."""

    client: redis.Redis
    projects: ProjectQueue
    kinds: Mapping[str, Kind]
    store_id: str | None = None
    """The store that the client works on; None where none is named, or it cannot be read."""
    planning: NodePlanning | None = None
    """How this machine would plan jobs; None where it plans none."""


Check = Callable[[Queue], Finding]


def check_server(queue: Queue) -> Finding:
    """Check that the server knows all commands that are needed."""
    return of_version(_info(queue.client, "server"))


def of_version(info: Mapping[str, Any]) -> Finding:
    """Return what is to be said of a server that describes itself so."""
    version = str(info.get("redis_version", "0.0"))
    told = f"{_product(info)} answers"
    if tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_VERSION:
        return fine("server", told)
    return problem("server", f"{told}; 6.2 or newer is needed", "update it")


def check_latency(queue: Queue) -> Finding:
    """Check how long a round trip takes."""
    return of_latency(median(_round_trip_ms(queue.client) for _ in range(_PINGS)))


def of_latency(milliseconds: float) -> Finding:
    """Return what is to be said of a round trip that takes so long."""
    told = f"a round trip takes {milliseconds:.1f} ms"
    if milliseconds <= SLOW_MILLISECONDS:
        return fine("latency", told)
    return warning("latency", told, "put it nearer to the workers: short jobs wait for it")


def persistence_of(client: redis.Redis) -> Finding:
    """Tell whether what is in the queue outlives the server's process."""
    info = _info(client, "persistence")
    if str(info.get("aof_enabled")) != "1":
        return warning(
            "persistence",
            "the append-only file is off: a restart of the server loses every waiting job",
            "start it with --appendonly yes; without, `tiepoint resume` starts each project again",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return problem(
            "persistence", "the server cannot write its append-only file", "look at its disk and its log"
        )
    return fine("persistence", "the append-only file is on")


def eviction_of(client: redis.Redis) -> Finding:
    """Tell whether a full memory makes the server refuse, and not forget."""
    info = _info(client, "memory")
    policy, most_bytes = str(info.get("maxmemory_policy", "unknown")), int(info.get("maxmemory", 0))
    told = f"its maxmemory-policy is {policy}"
    if policy == "noeviction":
        return fine("eviction", told)
    cure = "set maxmemory-policy to noeviction, and give Tiepoint a server of its own"
    if not most_bytes:
        return warning("eviction", f"{told}, which forgets leases and projects once maxmemory is set", cure)
    return problem("eviction", f"{told}: when its memory is full it forgets leases and projects", cure)


def memory_of(client: redis.Redis) -> Finding:
    """Tell how far the server is from refusing what is new."""
    info = _info(client, "memory")
    used_bytes, most_bytes = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most_bytes:
        return fine("memory", f"{in_binary_units(used_bytes)} used, no maxmemory")
    told = f"{in_binary_units(used_bytes)} used of {in_binary_units(most_bytes)} (maxmemory)"
    cure = "raise its maxmemory; what runs is still settled, and makes room"
    if used_bytes >= most_bytes:
        return problem("memory", f"{told}: nothing new can be submitted or planned", cure)
    if used_bytes * 1000 >= most_bytes * NEARLY_FULL_PERMILLE:
        return warning("memory", told, cure)
    return fine("memory", told)


def check_persistence(queue: Queue) -> Finding:
    """Check that what is in the queue outlives the server's process."""
    return persistence_of(queue.client)


def check_eviction(queue: Queue) -> Finding:
    """Check that a full memory makes the server refuse, and not forget."""
    return eviction_of(queue.client)


def check_memory(queue: Queue) -> Finding:
    """Check how far the server is from refusing what is new."""
    return memory_of(queue.client)


def check_rights(queue: Queue) -> Finding:
    """Check that the user of the URL may do all that a client does; a worker needs more."""
    kinds = list(queue.kinds)
    try:
        forbidden = lacking(queue.client, CLIENT_PROBES, kinds)
        is_for_workers = not forbidden and not lacking(queue.client, WORKER_PROBES, kinds)
    except NoPermissionError:
        forbidden, is_for_workers = ["MULTI"], False
    if is_for_workers:
        return fine("rights", "its user may do all that workers and clients do")
    if not forbidden:
        return fine("rights", "its user may do all that a client does, and is none for workers")
    more = f" and {len(forbidden) - _MOST_NAMED} more" if len(forbidden) > _MOST_NAMED else ""
    return problem(
        "rights",
        f"its user may not: {', '.join(forbidden[:_MOST_NAMED])}{more}",
        f"give it the rights that {_DOCUMENT} lists",
    )


def check_scripts(queue: Queue) -> Finding:
    """Check that the server takes our scripts."""
    load_all(queue.client)
    return fine("scripts", "the server takes our scripts")


def check_clock(queue: Queue) -> Finding:
    """Tell how far this machine's clock is from the server's; nothing depends on it but what people read."""
    seconds, microseconds = queue.client.time()
    apart_seconds = abs(time.time() - seconds - microseconds / 1e6)
    told = f"this machine's clock and the server's are {apart_seconds:.1f} s apart"
    if apart_seconds > SKEWED_SECONDS:
        told += "; nothing depends on it but the times you read"
    return fine("clock", told)


def check_workers(queue: Queue) -> Finding:
    """Check that somebody works, and on this store."""
    nodes = queue.projects.nodes()
    if not nodes:
        return warning(
            "workers", "no worker is connected", "start one: tiepoint worker --broker URL --store DIR"
        )
    strangers = _strangers(nodes, queue.store_id)
    if strangers:
        return problem(
            "workers",
            f"these work on another store: {names_of(strangers)}",
            "start them with this store as --store",
        )
    return fine("workers", f"alive: {names_of(nodes)}")


def _strangers(nodes: list[LiveNode], store_id: str | None) -> list[LiveNode]:
    return [] if store_id is None else on_other_stores(nodes, store_id)


def check_jobs(queue: Queue) -> Finding:
    """Count what is in the queue."""
    counts = queue.projects.counts(list(queue.kinds))
    told = (
        f"{sum(counts.waiting.values())} waiting, {sum(counts.large.values())} large, "
        f"{counts.delayed} delayed, {counts.claimed} claimed, {counts.dead} dead"
    )
    if counts.dead:
        return warning(
            "jobs",
            told,
            "`tiepoint dead` says which and why, `tiepoint retry` tries them again",
        )
    return fine("jobs", told)


def check_blocked(queue: Queue) -> Finding:
    """Check that every job has a machine that could run it."""
    found = blocked_jobs(queue.projects, queue.kinds, queue.projects.nodes())
    if not found:
        return fine("blocked", "nothing that waits is blocked")
    return warning(
        "blocked",
        "; ".join(one.sentence() for one in found[:_MOST_NAMED]),
        "add a machine that has as much, or raise --memory of one",
    )


def check_streams(queue: Queue) -> Finding:
    """Check that what the next jobs ask of time can be."""
    waiting = queue.projects.first_waiting(list(queue.kinds))
    return of_streams(((one.kind, headers_of(one.payload)) for one in waiting), queue.planning)


def check_drain(queue: Queue) -> Finding:
    """Tell whether a node makes room for a large job."""
    holder = queue.projects.drained_by()
    if holder is None:
        return fine("drain", "no node makes room for a large job")
    return fine("drain", f"{holder} makes room for a large job and takes only what ends before")


def check_leftovers(queue: Queue) -> Finding:
    """Check that no stock worker has left messages behind that nobody will look at."""
    left = queue.projects.unacked()
    if not left:
        return fine("leftovers", "no stock worker has left unfinished messages behind")
    return warning(
        "leftovers",
        f"{left} messages of stock Celery workers are in `unacked`: "
        "if none of those runs any more, nobody gives them back",
        f"give them back once, as {_DOCUMENT} shows",
    )


SERVER_CHECKS: tuple[Check, ...] = (
    check_server,
    check_latency,
    check_persistence,
    check_eviction,
    check_memory,
    check_rights,
    check_scripts,
    check_clock,
)
CONTENT_CHECKS: tuple[Check, ...] = (
    check_workers,
    check_jobs,
    check_blocked,
    check_streams,
    check_drain,
    check_leftovers,
)
SETUP_CHECKS: tuple[Callable[[redis.Redis], Finding], ...] = (persistence_of, eviction_of, memory_of)
"""What a worker tells in its log when it connects."""


def _info(client: redis.Redis, section: str) -> dict[str, Any]:
    found: Any = client.info(section)
    return dict(found)


def used_memory_bytes(client: redis.Redis) -> int:
    """Return how much memory the server uses, as it compares it with its bound."""
    return int(_info(client, "memory").get("used_memory", 0))


def _product(info: Mapping[str, Any]) -> str:
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of an unknown version')}"


def _round_trip_ms(client: redis.Redis) -> float:
    started_ns = time.monotonic_ns()
    client.ping()
    return (time.monotonic_ns() - started_ns) / 1e6

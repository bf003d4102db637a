"""Reads what a server says of itself: commands, CPU time, memory, keys. Measures nothing by itself."""

from dataclasses import dataclass
from typing import cast

import redis


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A server at one moment."""

    keys: int
    memory_bytes: int
    cpu_seconds: float
    tracked_items: int
    """Entries of the table of who has read what, for client-side caching."""
    calls: dict[str, int]
    """Of each command since its figures were reset."""

    def calls_since(self, before: "Usage", name: str) -> int:
        """Return how often a command was called between two moments."""
        return self.calls.get(name, 0) - before.calls.get(name, 0)


def usage(server: "redis.Redis") -> Usage:
    """Read it."""
    info = server.info("everything")
    return Usage(
        keys=server.dbsize(),
        memory_bytes=int(info["used_memory"]),
        cpu_seconds=float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
        tracked_items=int(info["tracking_total_items"]),
        calls={
            name.removeprefix("cmdstat_"): int(told["calls"])
            for name, told in info.items()
            if name.startswith("cmdstat_")
        },
    )


def key_names(server: "redis.Redis") -> set[str]:
    """Return the names of all keys of a small database."""
    return {name.decode() for name in cast("list[bytes]", server.keys())}


def script_usec_per_call(server: "redis.Redis") -> float:
    """Return the server's own time per script call since its figures were reset.

    All scripts share one figure: between the reset and this only one may be called.
    """
    info = server.info("commandstats")
    told = info["cmdstat_evalsha"]
    return float(told["usec"]) / int(told["calls"])


def peak_memory_bytes(server: "redis.Redis") -> int:
    """Return the most memory that a server has used since its start."""
    return int(server.info("memory")["used_memory_peak"])

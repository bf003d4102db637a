"""Drives the Lua scripts as a node does, without a worker; a lease is ended by hand, not by waiting."""

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import redis

from worker import keys
from worker.redis_scripts import Script, run

LIST = "noop"
LEASE_MS = 60_000
Held = tuple[str, bytes]
"""Tag and payload of a claimed message."""


def message(number: int, *, estimate: Any = None, message_class: str | None = None, **headers: Any) -> bytes:
    """Return a queue message in kombu's form; the number tells messages apart."""
    if estimate is not None:
        headers["estimate"] = estimate
    if message_class is not None:
        headers["class"] = message_class
    return json.dumps({"body": "[]", "headers": {"id": str(number), "task": LIST, **headers}}).encode()


def number_of(payload: bytes) -> int:
    """Return the number of a message, whatever was spliced into it."""
    return int(json.loads(payload)["headers"]["id"])


def spliced(
    payload: bytes, *, attempts: int = 0, lost: int = 0, estimate: str = "{}", lost_on: str = ""
) -> bytes:
    """Return a message with its history, as the scripts write it."""
    history = '{"tiepoint":{"attempts":%d,"lost":%d,"estimate":%s' % (attempts, lost, estimate)  # noqa: UP031 - the braces are the text
    behind = f',"lost_on":"{lost_on}"}},' if lost_on else "},"
    return history.encode() + behind.encode() + payload[1:]


def job(item: str, *, stage: str = "match", project: str = "p") -> dict[str, str]:
    """Return a job as the scripts push it."""
    payload = json.dumps({"body": "[]", "headers": {"id": "0", "task": LIST, "item": item, "stage": stage}})
    return {"list": LIST, "payload": payload, "project": project, "stage": stage, "item": item}


@dataclass
class ScriptedNode:
    """One incarnation with a lease; what it holds is in ``held``."""

    server: "redis.Redis"
    incarnation: str = "one|1"
    held: list[Held] = field(default_factory=list)
    serials: Any = field(default_factory=lambda: count(1))

    @property
    def inflight(self) -> str:
        """Return the key of what this node holds."""
        return keys.inflight(self.incarnation)

    def renew(self, *, create: int = 0, lease_ms: int = LEASE_MS) -> tuple[int, int, int, int, int]:
        """Renew; return (owned, given back, due, ms to the next due message, live nodes)."""
        entry = keys.node(self.incarnation.partition("|")[0])
        names = [keys.LEASES, keys.TICK, keys.DELAYED, entry]
        arguments = (self.incarnation, lease_ms, int(create), keys.INFLIGHT_PREFIX)
        owned, given_back, due, next_due_ms, nodes, _ = run(self.server, Script.RENEW, names, *arguments)
        return owned, given_back, due, next_due_ms, nodes

    def expire(self) -> None:
        """Let this node's lease have ended, while others kept renewing theirs."""
        self.server.zadd(keys.LEASES, {self.incarnation: 1})
        self.server.set(keys.TICK, now_ms(self.server))

    def claim(
        self,
        most: int = 1,
        *,
        source: str = LIST,
        estimate: str = "",
        mark: str = "ok",
        most_bytes: int = 1 << 20,
        powers_of_two: bool = False,
    ) -> list[Held] | None:
        """Claim from a list; None without a lease."""
        return self._claim(Script.CLAIM, source, estimate, mark, most, most_bytes, int(powers_of_two))

    def claim_large(self, most_bytes: int, *, estimate: str = "", mark: str = "ok") -> list[Held] | None:
        """Claim the largest entry that fits; None without a lease."""
        return self._claim(Script.CLAIM_LARGE, keys.large(LIST), estimate, mark, most_bytes)

    def _claim(self, script: Script, source: str, *arguments: Any) -> list[Held] | None:
        names = [keys.LEASES, self.inflight, source]
        estimate, mark, *bounds = arguments
        serial = f"{next(self.serials):012x}"
        has_lease, *flat = run(self.server, script, names, self.incarnation, serial, estimate, mark, *bounds)
        claimed = [(tag.decode(), payload) for tag, payload in zip(flat[::2], flat[1::2], strict=True)]
        self.held += claimed
        return claimed if has_lease else None

    def settle(
        self, *entries: dict[str, Any], most_dead: int = 100, most_dead_bytes: int = keys.MAX_DEAD_BYTES
    ) -> tuple[int, int]:
        """Settle; return (settled, refused)."""
        names = [self.inflight, keys.DELAYED, keys.DEAD]
        bounds = (most_dead, most_dead_bytes)
        settled, refused, *_ = run(self.server, Script.SETTLE, names, json.dumps(entries), *bounds)
        return settled, refused

    def release(self, *, lost: int = 0) -> int:
        """End the lease, as it leaves or as one known to be dead; return how many messages went back."""
        return int(run(self.server, Script.RELEASE, [keys.LEASES, self.inflight], self.incarnation, lost))


def leased_node(server: "redis.Redis", name: str = "one") -> ScriptedNode:
    """Return a node that holds a lease."""
    node = ScriptedNode(server, incarnation=f"{name}|1")
    node.renew(create=1)
    return node


def now_ms(server: "redis.Redis") -> int:
    """Return the server's time."""
    seconds, microseconds = server.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def put(server: "redis.Redis", *payloads: bytes, source: str = LIST) -> None:
    """Send messages as kombu does: the first one sent is the next in line."""
    for payload in payloads:
        server.lpush(source, payload)


def waiting(server: "redis.Redis", source: str = LIST) -> list[bytes]:
    """Return what waits in a list, the next in line first."""
    texts: list[Any] = server.lrange(source, 0, -1)
    return texts[::-1]


def numbers(server: "redis.Redis", source: str = LIST) -> list[int]:
    """Return the numbers of what waits in a list, the next in line first."""
    return [number_of(payload) for payload in waiting(server, source)]

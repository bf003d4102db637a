"""Keeps what a node has learned in Redis, behind its back, and finds it again at the next start.

No decision waits for it: the main thread only puts a copy down, a thread with
a connection of its own writes it. Does not decide what is still believed
(:mod:`worker.factor_verdicts`).
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, cast

import redis

from worker import keys
from worker.connections import plain_client
from worker.factor_verdicts import Judgement, KeptFactors, UnreadableFactorsError, Verdict, judge, read_kept
from worker.fingerprint import digest, fingerprint_of
from worker.lease import Lease
from worker.logs import get_logger
from worker.node import Node
from worker.planning import NodePlanning
from worker.redis_scripts import Script, run

log = get_logger(__name__)

_EVERY_OBSERVATIONS = 16
FLUSH_SECONDS = 5.0
_LAST_WRITE_SECONDS = 3.0
"""A node that ends waits so long, at most, for its last state to be written."""
_TIMEOUT_SECONDS = 2.0
_TTL_SECONDS = 90 * 24 * 3600
"""For garbage only: nodes that never come back."""


class FactorKeeper:
    """One node's kept factors; all but the writing thread's part is for the main thread."""

    def __init__(
        self,
        redis_url: str,
        node_name: str,
        fingerprint: Mapping[str, str],
        planning: NodePlanning,
        lease: Lease,
    ) -> None:
        self._url = redis_url
        self._fingerprint = dict(fingerprint)
        self._planning = planning
        self._identities = planning.identities()
        self.key = keys.factors(node_name, digest(fingerprint), digest(self._identities))
        self._index = keys.factor_index(node_name)
        self._lease = lease
        self._sequence = self._observations_kept = 0
        self._waiting: dict[str, str] | None = None
        """What the thread is to write next."""
        self._wake = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None
        self.failures = self.refused = 0
        self.judgement = Judgement(verdict=Verdict.NOTHING_KEPT)

    def restore(self, client: redis.Redis) -> None:
        """Find what was kept, judge it, go on with what is believed; once, before anything is planned.

        Raises:
            redis.RedisError: Redis cannot be reached.
        """
        if self._thread is not None:
            return
        kept = self._find(client)
        if kept is not None:
            self.judgement = judge(kept, self._fingerprint, self._identities)
            self._sequence = kept.sequence
            self._planning.restore(kept, self.judgement)
        log.info("factors", verdict=str(self.judgement.verdict), reason=self.judgement.reason)
        self._thread = threading.Thread(target=self._write_on, name="factors", daemon=True)
        self._thread.start()

    def _find(self, client: redis.Redis) -> KeptFactors | None:
        """Return what this node kept: for what it is now, or else what it wrote last for what it was."""
        found = []
        for name in [self.key, *(key for key in kept_keys(client, self._index) if key != self.key)]:
            kept = self._read(name, kept_fields(client, name))
            if kept is not None and name == self.key:
                return kept
            if kept is not None:
                found.append(kept)
        return max(found, key=lambda kept: kept.sequence, default=None)

    def _read(self, name: str, fields: Mapping[str, str]) -> KeptFactors | None:
        """Return what a hash holds; None where it is gone, or nobody can read it."""
        if not fields:
            return None
        try:
            return read_kept(fields)
        except UnreadableFactorsError as error:
            log.warning("factors_unreadable", key=name, error=str(error), cure="they are learned anew")
            self.judgement = Judgement(verdict=Verdict.UNREADABLE, reason=str(error))
            # What is written from now on takes their place.
            sequence = fields.get("sequence", "")
            self._sequence = max(self._sequence, int(sequence) if sequence.isdecimal() else 0)
            return None

    def note(self) -> None:
        """Put a copy down if there are enough new observations; cheap, for it is called after each batch."""
        if self._planning.observations - self._observations_kept >= _EVERY_OBSERVATIONS:
            self.put_down()

    def put_down(self) -> None:
        """Put a copy down if there is anything new."""
        if self._planning.observations == self._observations_kept or self._thread is None:
            return
        self._observations_kept = self._planning.observations
        self._sequence += 1
        kept = self._planning.kept(self._sequence, self._fingerprint, self._identities)
        self._waiting = kept.to_fields()
        self._wake.set()

    def close(self) -> None:
        """Write the last state, if Redis answers soon; the lease must still be held."""
        self.put_down()
        self._is_over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_LAST_WRITE_SECONDS)
            self._thread = None

    def describe(self) -> dict[str, Any]:
        """Return what ``inspect stats`` tells of it."""
        return {
            "verdict": str(self.judgement.verdict),
            "verdict_reason": self.judgement.reason,
            "fingerprint": digest(self._fingerprint),
            "persist_failures": self.failures,
            "persist_refused": self.refused,
        }

    # -- The writing thread -----------------------------------------------------------

    def _write_on(self) -> None:
        client = plain_client(self._url, _TIMEOUT_SECONDS)
        while not self._is_over or self._waiting is not None:
            self._wake.wait()
            self._wake.clear()
            fields, self._waiting = self._waiting, None
            if fields is not None and not self._write(client, fields) and not self._is_over:
                self._waiting = self._waiting or fields
                time.sleep(FLUSH_SECONDS / 5)
                self._wake.set()
        client.close()

    def _write(self, client: redis.Redis, fields: Mapping[str, str]) -> bool:
        """Write one state; False where it may be tried again."""
        told = [text for pair in fields.items() for text in pair]
        arguments: list[str | int] = [self._lease.incarnation, fields["sequence"], _TTL_SECONDS, *told]
        try:
            written = run(client, Script.KEEP_FACTORS, [keys.LEASES, self.key, self._index], *arguments)
        except redis.RedisError as error:
            self.failures += 1
            log.warning("factors_not_written", error=str(error), failures=self.failures)
            return False
        if written == 0:
            self.refused += 1
            log.warning("factors_refused", cause="a later state of this node is there")
        return int(written) >= 0


def kept_keys(client: redis.Redis, index: str) -> list[str]:
    """Return the keys of the hashes that a node's index names, sorted."""
    return sorted(key.decode() for key in cast("set[bytes]", client.smembers(index)))


def kept_fields(client: redis.Redis, key: str) -> dict[str, str]:
    """Return what a hash of kept factors holds; nothing where it is gone."""
    fields = cast("dict[bytes, bytes]", client.hgetall(key))
    return {name.decode(): text.decode("utf-8", "replace") for name, text in fields.items()}


def keeper_of(node: Node, lease: Lease) -> FactorKeeper | None:
    """Return who keeps what a node learns; None where it learns nothing, or is not to keep it."""
    planning, settings = node.planning, node.settings
    learning = None if planning is None else planning.settings.margin_learning
    if planning is None or learning is None or not learning.persist:
        return None
    keeper = FactorKeeper(settings.redis_url, settings.name, fingerprint_of(node), planning, lease)
    planning.on_observation = keeper.note
    return keeper

"""Holds whether this node's store can be worked on; while it cannot, the node claims nothing and probes it.

A fault of the store costs no item anything: nobody but the disk is to blame.
The probes run in a thread of their own, for a network folder that hangs must
hold up neither the node's loop nor its lease. Does not cover what a probe is
(:mod:`tasks.store.probe`).
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from governor.wording import in_binary_units
from tasks.errors import StoreError
from tasks.store import Store
from tasks.store.identity import SameStore, identity_of
from tasks.store.probe import StoreFault, fault_behind, find_fault, free_bytes
from worker.claimed_item import ClaimedItem
from worker.logs import get_logger
from worker.settle import settlement
from worker.store_wait import WAITS_FOR_STORE

log = get_logger(__name__)

_FIRST_PROBE_SECONDS = 1.0
_MOST_SECONDS = 30.0
_SILENT_AFTER_NS = 5 * 10**9
_MORE_ROOM_BYTES = 2**20
_PARKED_MS = 1_000
"""By then the node that has met the fault claims nothing; another, whose store is well, may take the item."""


class StoreAwayError(Exception):
    """The store as a whole cannot be used from this node now; the text says why."""


def until_it_is_back(item: ClaimedItem) -> dict[str, Any]:
    """Return the settlement of an item that could not be worked on for want of the store: nothing counts."""
    return {**settlement(item, "park"), "attempts": 0, "delay_ms": _PARKED_MS}


def _in_a_thread(run: Callable[[], None]) -> None:
    # A daemon: a probe that hangs must not hold up the end of the worker.
    threading.Thread(target=run, name="store", daemon=True).start()


def _sweep(root: Path) -> int:
    return Store(root).sweep_temporaries(time.time_ns())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSenses:
    """How a store is looked at, when, and by whom; fakes in tests."""

    find_fault: Callable[[Path, str], StoreFault | None] = find_fault
    fault_behind: Callable[[StoreError, Path, str], StoreFault | None] = fault_behind
    free_bytes: Callable[[Path], int | None] = free_bytes
    sweep: Callable[[Path], int] = _sweep
    identity_of: Callable[[Path], str] = identity_of
    now_ns: Callable[[], int] = time.monotonic_ns
    start: Callable[[Callable[[], None]], None] = _in_a_thread


class StoreHealth:
    """The health of one node's store.

    Asked by the main thread and by the lease's; :meth:`probe` belongs to the
    probing thread, which lives as long as the fault does.
    """

    def __init__(
        self, root: Path, store_id: str, on_change: Callable[[], None], senses: StoreSenses | None = None
    ) -> None:
        """``store_id`` is what the store calls itself, "" where that could not be read yet.

        ``on_change`` is called, from any thread, when the store goes or comes back.
        """
        self.store_id = store_id
        self._root = root
        self._on_change = on_change
        self._senses = senses or StoreSenses()
        self._same = SameStore(root)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._fault: StoreFault | None = None
        self._since_ns = 0
        self._room_bytes = 0
        """So much was free and did not suffice."""
        self._next_seconds = _FIRST_PROBE_SECONDS
        self._asking_since_ns: int | None = None

    @property
    def is_away(self) -> bool:
        """Tell whether the store cannot be worked on."""
        return self._fault is not None

    def waits_for(self) -> str:
        """Return e.g. "the store: the disk is full (0 B free of 20 MiB); free space"; "" while it is well."""
        with self._lock:
            fault, asking_since_ns = self._fault, self._asking_since_ns
        if fault is None:
            return ""
        sentence = f"{WAITS_FOR_STORE}{fault.cause}{_room(fault)}"
        silent_ns = 0 if asking_since_ns is None else self._senses.now_ns() - asking_since_ns
        if silent_ns > _SILENT_AFTER_NS:
            return f"{sentence}; it has not answered for {silent_ns // 10**9} s"
        return f"{sentence}; {fault.cure}"

    # -- What the main thread tells ------------------------------------------------------

    def check(self) -> None:
        """Check that the store's folder still is this store.

        Raises:
            StoreError: it is not.
        """
        self._same.expected_id = self.store_id
        self._same.check()

    def judge(self, error: StoreError) -> None:
        """Find out, by a probe, whether an error of the main process's own comes from the store as a whole.

        At once: a store that answers with an error does not hang.

        Raises:
            StoreAwayError: it does; the node waits for the store from now on.
        """
        fault = self._senses.fault_behind(error, self._root, self.store_id)
        if fault is not None:
            self.note_fault(fault)
            raise StoreAwayError(fault.cause) from error

    def note_fault(self, fault: StoreFault) -> None:
        """Claim nothing more until a probe succeeds; told by whoever has met the fault."""
        with self._lock:
            self._room_bytes = max(self._room_bytes, fault.free_bytes or 0)
            if self._fault is not None or self._closed.is_set():
                return
            self._fault, self._since_ns = fault, self._senses.now_ns()
        log.error("store_away", cause=fault.cause, cure=fault.cure, until="a probe succeeds")
        self._on_change()
        self._senses.start(self._keep_probing)

    def note_result(self) -> None:
        """Forget earlier faults: a job has published its result since."""
        if self._fault is None:
            self._room_bytes, self._next_seconds = 0, _FIRST_PROBE_SECONDS

    def close(self) -> None:
        """Probe no more."""
        self._closed.set()

    # -- The probing thread --------------------------------------------------------------

    def _keep_probing(self) -> None:
        self._make_room()
        while not self._closed.wait(self.next_wait_seconds()):
            if self.probe():
                return

    def _make_room(self) -> None:
        """Remove what killed processes have left long ago, where the disk is full."""
        fault = self._fault
        if fault is None or fault.free_bytes is None:
            return
        try:
            log.warning("store_swept", temporaries=self._senses.sweep(self._root))
        except StoreError as error:
            log.warning("store_not_swept", error=str(error))

    def next_wait_seconds(self) -> float:
        """Return how long to wait before the next probe: 1, 2, 4 ... 30 s, from the last result on."""
        seconds = self._next_seconds
        self._next_seconds = min(2 * seconds, _MOST_SECONDS)
        return seconds

    def probe(self) -> bool:
        """Ask the store once; True where it is well again and the node goes on."""
        self._asking_since_ns = self._senses.now_ns()
        fault = self._ask()
        with self._lock:
            self._asking_since_ns = None
            before, self._fault = self._fault, fault
        if fault is None:
            log.warning("store_is_back", seconds=(self._senses.now_ns() - self._since_ns) // 10**9)
        elif before is None or fault.cause != before.cause:
            log.error("store_still_away", cause=fault.cause, cure=fault.cure)
        if fault != before:
            self._on_change()
        return fault is None

    def _ask(self) -> StoreFault | None:
        fault = self._senses.find_fault(self._root, self.store_id)
        return fault or self._lack_of_room() or self._not_identified()

    def _lack_of_room(self) -> StoreFault | None:
        """Return the fault of a full disk as long as there is no more room than has not sufficed.

        Once the waits are at their longest it is tried all the same: what is missing may be something
        that no count of bytes shows, such as a quota, or names of files.
        """
        fault = self._fault
        if fault is None or fault.free_bytes is None or self._next_seconds >= _MOST_SECONDS:
            return None
        free = self._senses.free_bytes(self._root)
        if free is None or free >= self._room_bytes + _MORE_ROOM_BYTES:
            return None
        return replace(fault, free_bytes=free)

    def _not_identified(self) -> StoreFault | None:
        """Learn what the store calls itself where it could not be read when the worker started."""
        if not self.store_id:
            try:
                self.store_id = self._senses.identity_of(self._root)
            except StoreError as error:
                return StoreFault(cause=str(error), cure="make it readable")
        return None


def _room(fault: StoreFault) -> str:
    if fault.free_bytes is None or fault.total_bytes is None:
        return ""
    return f" ({in_binary_units(fault.free_bytes)} free of {in_binary_units(fault.total_bytes)})"

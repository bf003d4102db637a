"""While its store is away a node claims nothing, probes ever more seldom, and says what it waits for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.errors import StoreError
from tasks.store.probe import StoreFault
from tests.unit.worker.builders import an_item
from worker.store_health import StoreAwayError, StoreHealth, StoreSenses, until_it_is_back

MIB = 2**20
READ_ONLY = StoreFault(cause="the disk is read-only", cure="mount it so that it can be written")
FULL = StoreFault(cause="the disk is full", cure="free space on its disk", free_bytes=0, total_bytes=20 * MIB)


class Scene:
    """A store whose faults and room a test decides, and the health that a node sees."""

    def __init__(self, *, store_id: str = "s1") -> None:
        self.found: StoreFault | None = None
        """What a probe finds."""
        self.free_bytes = 10 * MIB
        self.now_ns = 0
        self.changes = self.sweeps = 0
        self.threads: list[Callable[[], None]] = []
        self.identity = "s1"
        senses = StoreSenses(
            find_fault=lambda _root, _id: self.found,
            fault_behind=lambda _error, _root, _id: self.found,
            free_bytes=lambda _root: self.free_bytes,
            sweep=self._sweep,
            identity_of=lambda _root: self.identity,
            now_ns=lambda: self.now_ns,
            start=self.threads.append,
        )
        self.health = StoreHealth(Path("/store"), store_id, self._on_change, senses)

    def _on_change(self) -> None:
        self.changes += 1

    def _sweep(self, _root: Path) -> int:
        self.sweeps += 1
        return 0

    def waits(self, count: int) -> list[float]:
        """Return the waits before the next probes."""
        return [self.health.next_wait_seconds() for _ in range(count)]


def test_a_fault_stops_the_node_and_says_why() -> None:
    """At once: whoever looks at the registry sees it."""
    scene = Scene()
    scene.health.note_fault(FULL)

    assert (scene.health.is_away, scene.changes, len(scene.threads)) == (True, 1, 1)
    assert scene.health.waits_for() == (
        "the store: the disk is full (0 bytes free of 20.0 MiB); free space on its disk"
    )


def test_many_items_that_meet_one_fault_are_one() -> None:
    """Each child had a batch when the disk went."""
    scene = Scene()
    for _ in range(5):
        scene.health.note_fault(READ_ONLY)

    assert (scene.changes, len(scene.threads)) == (1, 1)


def test_a_probe_that_succeeds_lets_the_node_go_on() -> None:
    """And the node hears of it."""
    scene = Scene()
    scene.health.note_fault(READ_ONLY)

    assert scene.health.probe()
    assert (scene.health.is_away, scene.health.waits_for(), scene.changes) == (False, "", 2)


def test_a_probe_that_fails_leaves_the_node_waiting_for_what_it_has_found() -> None:
    """The share may be gone by now, where the disk was full before."""
    scene = Scene()
    scene.health.note_fault(FULL)
    scene.found = READ_ONLY

    assert not scene.health.probe()
    assert scene.health.waits_for() == "the store: the disk is read-only; mount it so that it can be written"


def test_probes_become_more_seldom_up_to_half_a_minute() -> None:
    """A disk that is away for days costs nothing."""
    assert Scene().waits(7) == [1, 2, 4, 8, 16, 30, 30]


def test_a_store_that_fails_again_without_a_result_is_probed_no_more_often() -> None:
    """It has not been well in between."""
    scene = Scene()
    scene.health.note_fault(READ_ONLY)
    scene.waits(3)
    scene.health.probe()
    scene.health.note_fault(READ_ONLY)

    assert scene.waits(1) == [8]


def test_a_result_forgets_earlier_faults() -> None:
    """It was written, so the store is well."""
    scene = Scene()
    scene.health.note_fault(READ_ONLY)
    scene.waits(3)
    scene.health.probe()
    scene.health.note_result()

    assert scene.waits(1) == [1]


def test_a_result_of_a_job_that_ran_before_the_fault_forgets_nothing() -> None:
    """It had written before."""
    scene = Scene()
    scene.health.note_fault(READ_ONLY)
    scene.waits(3)
    scene.health.note_result()

    assert scene.waits(1) == [8]


@pytest.mark.parametrize(("free_bytes", "goes_on"), [(4 * MIB - 1, False), (4 * MIB, True)])
def test_a_full_disk_needs_more_room_than_has_not_sufficed(free_bytes: int, goes_on: bool) -> None:  # noqa: FBT001
    """A probe fits into 3 MiB, the artefact did not: a MiB more is worth a try."""
    scene = Scene()
    scene.health.note_fault(replace(FULL, free_bytes=3 * MIB))
    scene.free_bytes = free_bytes

    assert scene.health.probe() is goes_on


def test_of_several_artefacts_that_did_not_fit_the_most_room_counts() -> None:
    """The one that met the fullest disk does not know best."""
    scene = Scene()
    for free_mib in (2, 8, 0):
        scene.health.note_fault(replace(FULL, free_bytes=free_mib * MIB))
    scene.free_bytes = 8 * MIB

    assert not scene.health.probe()


def test_a_full_disk_is_tried_now_and_then_all_the_same() -> None:
    """What was short may be something that no count of bytes shows: a quota, names of files."""
    scene = Scene()
    scene.health.note_fault(replace(FULL, free_bytes=10 * MIB))
    waits = scene.waits(4)
    before, _ = scene.health.probe(), scene.waits(1)

    assert (sum(waits), before, scene.health.probe()) == (15, False, True)


def test_what_killed_processes_have_left_is_swept_from_a_full_disk_only() -> None:
    """It may be all that is in the way."""
    full, read_only = Scene(), Scene()
    for scene, fault in ((full, FULL), (read_only, READ_ONLY)):
        scene.health.note_fault(fault)
        scene.health.close()
        scene.threads[0]()

    assert (full.sweeps, read_only.sweeps) == (1, 0)


@pytest.mark.parametrize(("seconds", "told"), [(5, False), (6, True)])
def test_a_probe_without_an_answer_is_told(seconds: int, told: bool) -> None:  # noqa: FBT001
    """A network folder that hangs says nothing itself."""
    scene = Scene()
    sentences: list[str] = []

    def hang(_root: Path, _id: str) -> StoreFault | None:
        scene.now_ns += seconds * 10**9
        sentences.append(scene.health.waits_for())
        return None

    scene.health = StoreHealth(
        Path("/store"), "s1", lambda: None, replace(scene.health._senses, find_fault=hang)
    )
    scene.health.note_fault(READ_ONLY)
    scene.health.probe()

    assert ["has not answered for 6 s" in sentence for sentence in sentences] == [told]


def test_an_error_of_the_main_process_is_the_stores_where_a_probe_fails() -> None:
    """Then nobody is failed for it."""
    scene = Scene()
    scene.found = READ_ONLY

    with pytest.raises(StoreAwayError, match="the disk is read-only"):
        scene.health.judge(StoreError("cannot write x"))
    assert scene.health.is_away


def test_an_error_of_one_file_stops_nobody() -> None:
    """The store is well."""
    scene = Scene()
    scene.health.judge(StoreError("cannot write x"))

    assert not scene.health.is_away


def test_a_store_that_could_not_be_read_at_the_start_is_known_once_it_can() -> None:
    """A worker may be started before its share is mounted."""
    scene = Scene(store_id="")
    scene.health.note_fault(READ_ONLY)
    scene.health.probe()

    assert scene.health.store_id == "s1"


def test_a_waiting_item_counts_nothing() -> None:
    """Nobody but the disk is to blame."""
    entry = until_it_is_back(an_item("a"))

    assert (entry["item"], entry["action"], entry["attempts"]) == ("a", "park", 0)

"""The query finds what counting finds, however the sets were cut, read and delivered."""

from pathlib import Path

import numpy as np
import pytest

from tasks import index_memberships, retrieval
from tasks.binary_codes import TABLES
from tasks.errors import MissingArtefactError
from tasks.index_memberships import Membership, membership_key, read_membership, read_roster
from tasks.index_segments import pack, publish_segment, segment_key
from tasks.pairing import PAIRS_KIND
from tasks.retrieval import VisualIndex
from tasks.store import Store, artefact_key
from tests.unit.tasks.index_builders import (
    Descriptors,
    IndexedStore,
    build_sets,
    counted,
    overlapping_sets,
)

SETS = 20


@pytest.fixture(scope="module")
def sets() -> list[Descriptors]:
    """Return sets of which neighbours share features."""
    return overlapping_sets(SETS)


def shuffled() -> list[int]:
    """Return the positions of all sets in some order."""
    return [int(position) for position in np.random.default_rng(3).permutation(SETS)]


def test_neighbours_are_found_in_order(sets: list[Descriptors], tmp_path: Path) -> None:
    """The nearest share most features; the image itself is none of them."""
    indexed = build_sets(tmp_path, sets)
    indexed.index_all()
    found = indexed.found()

    assert found == counted(sets)
    assert {position for position, _ in found[10][:2]} == {9, 11}
    assert 10 not in {position for position, _ in found[10]}


@pytest.mark.parametrize("size", [1, 7, 16])
def test_the_answer_does_not_depend_on_how_sets_were_cut(
    sets: list[Descriptors], tmp_path: Path, size: int
) -> None:
    """Segments of one, seven or sixteen sets, in the order they happened to come."""
    indexed = build_sets(tmp_path, sets)
    order = shuffled()
    indexed.index([order[begin : begin + size] for begin in range(0, SETS, size)])

    assert indexed.found() == counted(sets)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_the_answer_does_not_depend_on_threads(sets: list[Descriptors], tmp_path: Path, threads: int) -> None:
    """Nor the index."""
    indexed = build_sets(tmp_path, sets)
    indexed.index([range(begin, begin + 5) for begin in range(0, SETS, 5)], threads)

    assert indexed.found(threads=threads) == counted(sets)


def test_a_set_in_two_segments_counts_once(sets: list[Descriptors], tmp_path: Path) -> None:
    """A batch whose memberships were lost came again in another company."""
    indexed = build_sets(tmp_path, sets)
    indexed.index_all()
    for digest in indexed.set_digests[4:9]:
        indexed.store.discard(membership_key(digest))
    indexed.index([range(4, 9)])

    assert indexed.found() == counted(sets)


def test_a_set_in_two_segments_counts_once_in_bucket_totals(tmp_path: Path) -> None:
    """Twice 128 postings are not too many; counted twice they would be."""
    same = np.repeat(np.arange(128, dtype=np.uint8)[None], 128, axis=0)
    indexed = build_sets(tmp_path, [same, same])
    indexed.index([[0, 1]])
    indexed.store.discard(membership_key(indexed.set_digests[1]))
    indexed.index([[1]])

    assert indexed.found() == [[(1, 128)], [(0, 128)]]


@pytest.mark.parametrize(("more", "found"), [(0, [(1, 128)]), (1, [])])
def test_full_buckets_are_skipped(tmp_path: Path, more: int, found: list[tuple[int, int]]) -> None:
    """256 postings of one key tell something, 257 do not; wherever they are."""
    same = np.repeat(np.arange(128, dtype=np.uint8)[None], 128 + more, axis=0)
    indexed = build_sets(tmp_path, [same[:128], same])
    indexed.index_all(size=1)

    assert indexed.found()[0] == found


def test_sets_of_other_projects_do_not_count(sets: list[Descriptors], tmp_path: Path) -> None:
    """They may share a segment; neither their sets nor their bucket totals are ours."""
    same = np.repeat(np.arange(128, dtype=np.uint8)[None], 128, axis=0)
    indexed = build_sets(tmp_path, [same, same, same, sets[0]])
    indexed.index_all()
    ours = VisualIndex.of(indexed.store, indexed.set_digests[:2])

    ((neighbour,),) = ours.neighbours([0], 64, 1)
    assert (neighbour.position, neighbour.evidence, neighbour.score) == (1, 128, 1.0)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_at_most_top_k_are_found(sets: list[Descriptors], tmp_path: Path, top_k: int) -> None:
    """The best ones."""
    indexed = build_sets(tmp_path, sets)
    indexed.index_all()

    assert indexed.found(top_k) == counted(sets, top_k)


def test_ties_go_by_id(tmp_path: Path) -> None:
    """Three images alike: each finds the others in the order of their ids."""
    alike = overlapping_sets(1)[0]
    indexed = build_sets(tmp_path, [alike, alike, alike])
    indexed.index([[2], [0], [1]])

    assert [[position for position, _ in found] for found in indexed.found()] == [[1, 2], [0, 2], [0, 1]]


def test_the_score_is_the_share_of_the_sources_features(tmp_path: Path) -> None:
    """Ten of forty features are met: a quarter."""
    first = overlapping_sets(1)[0]
    other = np.random.default_rng(9).integers(0, 256, first.shape, np.uint8)
    other[:10] = first[:10]
    indexed = build_sets(tmp_path, [first, other])
    indexed.index_all()
    ((neighbour,),) = VisualIndex.of(indexed.store, indexed.set_digests).neighbours([0], 64, 1)

    assert (neighbour.evidence, neighbour.score) == (10, 0.25)


@pytest.mark.parametrize(("name", "value"), [("KEPT_HITS", 0), ("_EXPANSION", 3), ("MAX_READERS", 1)])
def test_the_bounds_of_the_memory_change_no_answer(
    sets: list[Descriptors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    """Segments read twice, few meetings at a time, one segment at a time."""
    indexed = build_sets(tmp_path, sets)
    indexed.index_all(size=7)
    monkeypatch.setattr(retrieval, name, value)

    assert indexed.found(threads=2) == counted(sets)


@pytest.mark.parametrize("loss", ["damaged", "absent", "malformed"])
def test_a_lost_segment_is_an_error_until_it_is_made_again(
    sets: list[Descriptors], tmp_path: Path, loss: str
) -> None:
    """Its sets are indexed anew, in other company, and the answer is the same."""
    indexed = build_sets(tmp_path, sets)
    indexed.index_all()
    assert indexed.found() == counted(sets)
    _lose_segment(indexed, loss)
    with pytest.raises(MissingArtefactError):
        indexed.found()
    indexed.index_all(size=5)

    assert indexed.found() == counted(sets)


def _lose_segment(indexed: IndexedStore, loss: str) -> None:
    key = read_membership(indexed.store, indexed.set_digests[0]).segment
    (path,) = indexed.store.root.rglob(f"{key.digest}.safetensors")
    if loss == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return
    arrays = indexed.store.read(key).arrays
    indexed.store.discard(key)
    if loss == "malformed":
        indexed.store.publish(key, {**arrays, "keys": arrays["keys"][:-1]}, {})


def test_a_set_that_is_not_indexed_is_an_error(sets: list[Descriptors], tmp_path: Path) -> None:
    """The index phase comes first."""
    indexed = build_sets(tmp_path, sets)
    indexed.index([range(5)])

    with pytest.raises(MissingArtefactError):
        indexed.found()


def test_the_roster_saves_reading_the_memberships(sets: list[Descriptors], tmp_path: Path) -> None:
    """The second to ask reads one file."""
    indexed = build_sets(tmp_path, sets)
    indexed.index_all()
    first = read_roster(indexed.store, indexed.set_digests)
    for digest in indexed.set_digests:
        indexed.store.discard(membership_key(digest))
    second = read_roster(indexed.store, indexed.set_digests)

    assert second.segments == first.segments
    assert np.array_equal(second.segment_of, first.segment_of)
    assert np.array_equal(second.row_of, first.row_of)


@pytest.mark.parametrize("count", [4096, 4097, 4200])
def test_more_than_4096_sets_work(tmp_path: Path, count: int) -> None:
    """Each shares keys with the set behind it, the last with the first; each has one of its own."""
    store = Store(tmp_path)
    store.create()
    digests = tuple(artefact_key(PAIRS_KIND, 1, {}, [str(number)]).digest for number in range(count))
    for begin in range(0, count, 16):
        _publish_ring(store, digests, range(begin, min(begin + 16, count)))
    _publish_roster(store, digests)
    asked = [0, count // 2, count - 1]
    answers = VisualIndex.of(store, digests).neighbours(asked, 64, 2)

    assert [[found.position for found in answer] for answer in answers] == [
        sorted({(position - 1) % count, (position + 1) % count}) for position in asked
    ]


def _publish_ring(store: Store, digests: tuple[str, ...], batch: range) -> None:
    """Publish a segment in which set i has the features i and i + 1 of a ring."""
    tables = np.arange(TABLES, dtype=np.uint32) << np.uint32(24)
    postings = []
    for number in batch:
        features = np.array([[number], [(number + 1) % len(digests)]], np.uint32)
        postings.append(pack(features + tables, _row(digests, batch, number)))
    rows = sorted(digests[number] for number in batch)
    publish_segment(store, rows, np.concatenate(postings), [2] * len(batch))


def _row(digests: tuple[str, ...], batch: range, number: int) -> int:
    return sorted(digests[other] for other in batch).index(digests[number])


def _publish_roster(store: Store, digests: tuple[str, ...]) -> None:
    """Write the roster that the memberships of all sets would make."""
    memberships = []
    for number in range(len(digests)):
        begin = number // 16 * 16
        batch = range(begin, min(begin + 16, len(digests)))
        segment = segment_key(sorted(digests[other] for other in batch))
        memberships.append(Membership(segment=segment, row=_row(digests, batch, number)))
    key = index_memberships._roster_key(digests)
    index_memberships._publish_roster(store, key, memberships)

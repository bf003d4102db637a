"""Feature sets enter the index once, whatever is delivered twice, killed, lost or damaged."""

from pathlib import Path

import numpy as np
import pytest

from tasks import visual_index
from tasks.binary_codes import table_keys
from tasks.feature_sets import FeatureSet, features_key
from tasks.index_memberships import (
    Membership,
    is_indexed,
    membership_key,
    publish_membership,
    read_membership,
)
from tasks.index_segments import read_segment, segment_key
from tasks.kind import Done, NotReady
from tasks.pair_jobs import Content
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.store import ArtefactKey, Store
from tasks.visual_index import KINDS, IndexPayload, index_job, ranked
from tests.unit.tasks.index_builders import (
    PARAMETERS,
    IndexedStore,
    build_sets,
    content_of,
    counted,
    overlapping_sets,
)


@pytest.fixture
def indexed(tmp_path: Path) -> IndexedStore:
    """Return five sets, not indexed yet."""
    return build_sets(tmp_path, overlapping_sets(5))


def segments(store: Store) -> dict[str, bytes]:
    """Return the files of all segments by name."""
    paths = (store.root / "artefacts" / "visual_index.segment").glob("*/*.safetensors")
    return {path.stem: path.read_bytes() for path in paths}


def damage(store: Store, key: ArtefactKey) -> None:
    """Change the last byte of an artefact's file."""
    (path,) = store.root.rglob(f"{key.digest}.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def test_a_batch_makes_one_segment_and_a_membership_each(indexed: IndexedStore) -> None:
    """Recorded are the memberships."""
    outcomes = indexed.index([range(5)])

    assert outcomes == [Done()] * 5
    (name,) = segments(indexed.store)
    rows = {digest: read_membership(indexed.store, digest) for digest in indexed.set_digests}
    assert {membership.segment.digest for membership in rows.values()} == {name}
    assert [rows[digest].row for digest in sorted(rows)] == [0, 1, 2, 3, 4]


def test_a_segment_holds_every_posting_in_strict_order(indexed: IndexedStore) -> None:
    """(table, key, set, feature), each six times per feature."""
    indexed.index([range(5)])
    membership = read_membership(indexed.store, indexed.set_digests[3])
    segment = read_segment(indexed.store, membership.segment)

    postings = (segment.keys.astype(np.uint64) << np.uint64(16)) | segment.places
    assert (np.diff(postings.astype(np.int64)) > 0).all()
    own = {
        (int(key), feature)
        for feature, keys in enumerate(table_keys(indexed.sets[3], "rootsift"))
        for key in keys
    }
    keys, features = segment.keys_of(membership.row)
    assert set(zip(keys.tolist(), features.tolist(), strict=True)) == own
    assert len(keys) == 6 * len(indexed.sets[3])


def test_a_delivery_that_is_repeated_changes_nothing(indexed: IndexedStore) -> None:
    """Also in another batch: what is indexed stays where it is."""
    indexed.index([range(3)])
    before = segments(indexed.store)
    outcomes = indexed.index([range(3), [2, 1]])

    assert outcomes == [Done(recorded_items=0)] * 5
    assert segments(indexed.store) == before


def test_a_batch_of_old_and_new_sets_indexes_the_new_ones(indexed: IndexedStore) -> None:
    """And counts those."""
    indexed.index([[0, 1]])
    outcomes = indexed.index([[0, 2, 1, 3]])

    assert [outcome.recorded_items for outcome in outcomes if isinstance(outcome, Done)] == [0, 1, 0, 1]
    assert len(segments(indexed.store)) == 2


def test_a_set_twice_in_a_batch_is_indexed_once(indexed: IndexedStore) -> None:
    """Two messages of one image may meet in a batch."""
    outcomes = indexed.index([[1, 1]])

    assert outcomes == [Done(), Done(recorded_items=0)]


def test_killed_between_segment_and_memberships_it_is_all_done_again(indexed: IndexedStore) -> None:
    """The segment alone counts for nobody; the same batch adopts it, another one makes its own."""
    indexed.index([range(4)])
    for digest in indexed.set_digests[:4]:
        indexed.store.discard(membership_key(digest))
    outcomes = indexed.index([[0, 1], [2, 3, 4]])

    assert outcomes == [Done()] * 5
    assert len(segments(indexed.store)) == 3
    assert indexed.found() == counted(indexed.sets)


@pytest.mark.parametrize("threads", [2, 4, 8])
def test_threads_make_the_same_bytes(tmp_path: Path, threads: int) -> None:
    """Each fills its own part of the buffer."""
    one, several = (build_sets(tmp_path / name, overlapping_sets(9)) for name in ("one", "several"))
    one.index([range(9)])
    several.index([range(9)], threads=threads)

    assert segments(several.store) == segments(one.store)


def test_the_order_of_a_batch_does_not_matter(tmp_path: Path) -> None:
    """A segment is named and ordered by its sets."""
    one, other = (build_sets(tmp_path / name, overlapping_sets(4)) for name in ("one", "other"))
    one.index([[0, 1, 2, 3]])
    other.index([[2, 0, 3, 1]])

    assert segments(other.store) == segments(one.store)


@pytest.mark.parametrize("loss", ["absent", "damaged"])
def test_an_image_without_features_costs_only_itself(indexed: IndexedStore, loss: str) -> None:
    """It is planned again when its features are back; the others are indexed now."""
    key = features_key(content_of(1), PARAMETERS)
    indexed.store.discard(key) if loss == "absent" else damage(indexed.store, key)
    outcomes = indexed.index([range(3)])

    assert [type(outcome) for outcome in outcomes] == [Done, NotReady, Done]
    assert not indexed.store.has(key)
    assert [is_indexed(indexed.store, digest) for digest in indexed.set_digests[:3]] == [True, False, True]
    both = sorted((indexed.set_digests[0], indexed.set_digests[2]))
    assert list(segments(indexed.store)) == [segment_key(both).digest]


@pytest.mark.parametrize("loss", ["segment lost", "membership damaged"])
def test_what_is_lost_is_indexed_again(indexed: IndexedStore, loss: str) -> None:
    """A membership of a lost segment is worth nothing."""
    indexed.index([range(5)])
    digest = indexed.set_digests[2]
    if loss == "segment lost":
        indexed.store.discard(read_membership(indexed.store, digest).segment)
    else:
        damage(indexed.store, membership_key(digest))

    assert not is_indexed(indexed.store, digest)
    assert indexed.index([[2]]) == [Done()]
    assert is_indexed(indexed.store, digest)


@pytest.mark.parametrize(("features", "counted_features"), [(1023, 1023), (1024, 1024), (1025, 1024)])
def test_at_most_1024_features_are_indexed(tmp_path: Path, features: int, counted_features: int) -> None:
    """The rest of a set is for matching alone."""
    descriptors = np.random.default_rng(0).integers(0, 256, (features, 128), np.uint8)
    indexed = build_sets(tmp_path, [descriptors])
    indexed.index_all()
    segment = read_segment(indexed.store, read_membership(indexed.store, indexed.set_digests[0]).segment)

    assert segment.features.tolist() == [counted_features]
    assert len(segment.keys) == 6 * counted_features


def test_the_largest_features_are_indexed_first() -> None:
    """Equal ones in the order of the set."""
    keypoints = np.array([[0, 0, size, 0] for size in (3, 7, 3, 9)], np.float32)
    features = FeatureSet(
        extractor="rootsift",
        width_px=1,
        height_px=1,
        keypoints=keypoints,
        descriptors=np.zeros((4, 128), np.uint8),
    )

    assert ranked(features).tolist() == [3, 1, 0, 2]


def test_an_image_without_any_feature_is_indexed_and_meets_nobody(tmp_path: Path) -> None:
    """A photo of the sky must not stop the others."""
    indexed = build_sets(tmp_path, [np.empty((0, 128), np.uint8), *overlapping_sets(2)])
    outcomes = indexed.index_all()

    assert outcomes == [Done()] * 3
    assert indexed.found() == counted(indexed.sets)
    assert indexed.found()[0] == []


def test_another_node_that_was_first_is_what_counts(indexed: IndexedStore) -> None:
    """First wins: a later segment with the same set is not counted for it."""
    indexed.index([[0, 1]])
    first = read_membership(indexed.store, indexed.set_digests[0])
    indexed.store.discard(membership_key(indexed.set_digests[1]))
    indexed.index([[1, 2]])

    assert read_membership(indexed.store, indexed.set_digests[0]) == first
    assert isinstance(read_membership(indexed.store, indexed.set_digests[1]), Membership)
    assert indexed.index([[3, 4]]) == [Done(), Done()]
    assert indexed.found() == counted(indexed.sets)


def test_a_membership_taken_back_at_once_costs_no_image(
    indexed: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node saw the old one, of a lost segment: the image is planned again, not quarantined."""

    def publish_and_lose(store: Store, digest: str, membership: Membership) -> None:
        publish_membership(store, digest, membership)
        if digest == indexed.set_digests[1]:
            store.discard(membership_key(digest))

    with monkeypatch.context() as patch:
        patch.setattr(visual_index, "publish_membership", publish_and_lose)
        outcomes = indexed.index([[0, 1, 2]])

    assert [type(outcome) for outcome in outcomes] == [Done, NotReady, Done]
    assert indexed.index([[0, 1, 2]]) == [Done(recorded_items=0), Done(), Done(recorded_items=0)]


def test_the_job_says_which_features(tmp_path: Path) -> None:
    """The payload of the job is the payload of the kind."""
    project = Store(tmp_path).project("p")
    project.create(ProjectParameters(features=FeatureParameters(extractor="orb")), [])
    content: Content = "a" * 64
    job = index_job(project, content)

    payload = IndexPayload.model_validate(job.payload)
    assert payload.set_digest == features_key(content, project.parameters.features).digest
    assert (job.stage, job.item, KINDS[0].window) == ("index", content, KINDS[0].window)

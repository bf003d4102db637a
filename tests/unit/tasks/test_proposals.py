"""A pair that one image or both propose stands once, and belongs to one of them."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tasks.errors import Failure, MissingArtefactError, Reason
from tasks.pairing import Pairing, pairing_of
from tasks.parameters import FeatureParameters, PairParameters, ProjectParameters
from tasks.proposals import CONTENT_BYTES, PARTNERS_ARRAY, Proposals, candidate_pairs
from tasks.store import ProjectImage, Store
from tests.unit.tasks.scene_store import SceneStore, build_scene

Proposed = dict[int, list[int]]
RETRIEVAL = ProjectParameters(pairs=PairParameters(strategy="retrieval"))


@pytest.fixture
def scene(tmp_path: Path) -> SceneStore:
    """Return a project of four images whose pairs are retrieved."""
    return build_scene(tmp_path, images=4, parameters=RETRIEVAL, with_features=False)


def propose(scene: SceneStore, proposed: Proposed) -> list[str]:
    """Publish proposals by the images' places in the order of ids; return the ids."""
    pairing = pairing_of(scene.project)
    for source, others in proposed.items():
        hashes = np.frombuffer(bytes.fromhex("".join(pairing.by_id[other] for other in others)), np.uint8)
        arrays = {PARTNERS_ARRAY: hashes.reshape(-1, CONTENT_BYTES)}
        scene.store.publish(pairing.key(pairing.by_id[source]), arrays, {})
    return list(pairing.by_id)


def owned(scene: SceneStore, source: int) -> list[tuple[int, int]]:
    """Return the pairs that belong to an image, as places."""
    pairing = pairing_of(scene.project)
    failed = scene.project.failed_items("pairs")
    pairs = Proposals(scene.store, pairing, failed).owned_pairs(pairing.by_id[source])
    return [(pairing.by_id.index(left), pairing.by_id.index(right)) for left, right in pairs]


@pytest.mark.parametrize(
    ("smaller", "larger", "owners"),
    [
        ([1], [0], [0]),  # both propose: the smaller one's
        ([1], [], [0]),
        ([], [0], [1]),  # only the larger one proposes: its own
        ([], [], []),
    ],
)
def test_a_pair_belongs_to_one_of_its_images(
    scene: SceneStore, smaller: list[int], larger: list[int], owners: list[int]
) -> None:
    """Whoever proposes it."""
    ids = propose(scene, {0: smaller, 1: larger, 2: [], 3: []})

    assert [source for source in range(4) if (0, 1) in owned(scene, source)] == owners
    assert list(candidate_pairs(scene.store, scene.project)) == ([(ids[0], ids[1])] if owners else [])


def test_a_pair_belongs_to_nobody_until_its_smaller_image_has_spoken(scene: SceneStore) -> None:
    """Else both could match it."""
    propose(scene, {1: [0, 2], 2: [1]})
    assert owned(scene, 1) == [(1, 2)]
    propose(scene, {0: []})

    assert owned(scene, 1) == [(0, 1), (1, 2)]


def test_every_pair_is_owned_once(scene: SceneStore) -> None:
    """Proposals of any kind: the owners' pairs together are the candidates, without repetition."""
    draw = np.random.default_rng(1)
    proposed = {
        source: [other for other in range(4) if other != source and draw.random() < 0.5]
        for source in range(4)
    }
    ids = propose(scene, proposed)

    pairs = [pair for source in range(4) for pair in owned(scene, source)]
    assert len(set(pairs)) == len(pairs) > 0
    assert sorted((ids[left], ids[right]) for left, right in pairs) == list(
        candidate_pairs(scene.store, scene.project)
    )


def test_missing_proposals_are_an_error_not_an_empty_list(scene: SceneStore) -> None:
    """Reading before the stage is complete does not look like a project without pairs."""
    ids = propose(scene, {0: [1], 1: [], 2: []})

    with pytest.raises(MissingArtefactError):
        list(candidate_pairs(scene.store, scene.project))
    with pytest.raises(MissingArtefactError):
        Proposals(scene.store, pairing_of(scene.project)).owned_pairs(ids[3])


def test_proposals_of_an_image_that_failed_for_good_are_not_awaited(scene: SceneStore) -> None:
    """Others may have proposed it all the same."""
    ids = propose(scene, {1: [0], 2: [], 3: []})
    failure = Failure(name="a", reason=Reason.INTERNAL_ERROR, cause="told to", cure="none")
    scene.project.record_failure("pairs", ids[0], failure)

    assert list(candidate_pairs(scene.store, scene.project)) == [(ids[0], ids[1])]
    assert owned(scene, 1) == [(0, 1)]


def test_many_pairs_take_little_memory(tmp_path: Path) -> None:
    """The planner goes over hundreds of thousands within its 64 MiB: by numbers, not by text."""
    images = 400
    scene = build_scene(tmp_path, images=images, parameters=RETRIEVAL, with_features=False)
    propose(scene, {place: list(range(place + 1, images)) for place in range(images)})
    tracemalloc.start()
    try:
        count = sum(1 for _ in candidate_pairs(scene.store, scene.project))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert count == images * (images - 1) // 2
    assert peak_bytes < 60 * count


@pytest.mark.parametrize(("top_k", "lists"), [(64, 1024), (256, 1024), (257, 1020), (4096, 64)])
def test_lists_that_are_kept_take_8_mib_at_most(top_k: int, lists: int) -> None:
    """However many partners an image may have."""
    images = tuple(ProjectImage(name=f"{n:04}.jpg", content=f"{n:064x}") for n in range(4097))
    parameters = PairParameters(strategy="retrieval", top_k=top_k)
    pairing = Pairing(images=images, parameters=parameters, features=FeatureParameters())

    assert Proposals(Store(Path("unused")), pairing)._kept.cache_parameters()["maxsize"] == lists

"""Every pair that the strategy asks for is generated once, by one of its images."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tasks.errors import Failure, MissingArtefactError, Reason
from tasks.kind import Done
from tasks.pair_jobs import pair_item
from tasks.pairs import PairsPayload, candidate_pairs, images_for_pairing, pairing_of, pairs_key, run_pairs
from tasks.parameters import PairParameters, ProjectParameters
from tests.unit.tasks.scene_store import GRANT, SceneStore, build_scene


def scene_of(root: Path, images: int, pairs: PairParameters | None = None) -> SceneStore:
    """Build a project without features, which pairing by position does not need."""
    parameters = ProjectParameters(pairs=pairs or PairParameters())
    return build_scene(root, images=images, parameters=parameters, with_features=False)


def generate(scene: SceneStore, contents: Sequence[str] | None = None) -> list[Done]:
    """Run the kind for some images, or all."""
    payloads = [
        PairsPayload(project=scene.project.id, image=content) for content in contents or scene.contents
    ]
    outcomes = list(run_pairs(payloads, GRANT, scene.store))
    return [outcome for outcome in outcomes if isinstance(outcome, Done)]


def distances(scene: SceneStore) -> list[int]:
    """Return how far apart, by name, the images of each generated pair are, sorted."""
    position = {content: index for index, content in enumerate(scene.contents)}
    return sorted(abs(position[a] - position[b]) for a, b in candidate_pairs(scene.store, scene.project))


@pytest.mark.parametrize("strategy", ["auto", "exhaustive"])
def test_exhaustive_pairs_all_images_once(tmp_path: Path, strategy: str) -> None:
    """Seven images make 21 pairs, each with its smaller id first, one matching job for each."""
    scene = scene_of(tmp_path, 7, PairParameters.model_validate({"strategy": strategy}))

    outcomes = generate(scene)

    pairs = candidate_pairs(scene.store, scene.project)
    assert len(set(pairs)) == len(pairs) == sum(outcome.recorded_items for outcome in outcomes) == 21
    assert all(left < right for left, right in pairs)
    assert sorted(job.item for outcome in outcomes for job in outcome.follow_ups) == [
        pair_item(*pair) for pair in pairs
    ]


def test_sequential_pairs_neighbours_by_name(tmp_path: Path) -> None:
    """A window of two over six images: five neighbours, four next but one."""
    scene = scene_of(tmp_path, 6, PairParameters(strategy="sequential", window=2, loop_steps=False))

    generate(scene)

    assert distances(scene) == [1] * 5 + [2] * 4


def test_loop_steps_double_beyond_the_window(tmp_path: Path) -> None:
    """Twelve images, window three: distances 6 and, were it not too far, 12."""
    scene = scene_of(tmp_path, 12, PairParameters(strategy="sequential", window=3))

    generate(scene)

    assert distances(scene) == [1] * 11 + [2] * 10 + [3] * 9 + [6] * 6


@pytest.mark.parametrize(("images", "longest"), [(8, 4), (9, 8)])
def test_longest_step_ends_with_the_sequence(tmp_path: Path, images: int, longest: int) -> None:
    """A distance of eight exists between nine images, not between eight."""
    scene = scene_of(tmp_path, images, PairParameters(strategy="sequential", window=2))

    generate(scene)

    assert distances(scene)[-1] == longest


@pytest.mark.parametrize("images", [1, 2])
def test_few_images_are_fine(tmp_path: Path, images: int) -> None:
    """One image makes no pair, two make one, also with a window larger than the project."""
    scene = scene_of(tmp_path, images, PairParameters(strategy="sequential"))

    generate(scene)

    assert len(candidate_pairs(scene.store, scene.project)) == images - 1


def fail_image(scene: SceneStore, stage: str, item: str) -> None:
    """Quarantine an item."""
    failure = Failure(name=item, reason=Reason.UNREADABLE, cause="broken", cure="mend it")
    scene.project.record_failure(stage, item, failure)


def test_images_without_features_take_no_part(tmp_path: Path) -> None:
    """A quarantined image is left out of the list and of every pair; its own job is a no-op."""
    scene = scene_of(tmp_path, 4)
    fail_image(scene, "features", scene.contents[2])

    outcomes = generate(scene)

    pairs = candidate_pairs(scene.store, scene.project)
    assert len(images_for_pairing(scene.project)) == len(pairs) == 3
    assert scene.contents[2] not in {content for pair in pairs for content in pair}
    assert outcomes[2] == Done(recorded_items=0)


def test_failed_pairs_are_not_sent_again(tmp_path: Path) -> None:
    """A quarantined pair gets no job; the other two do."""
    scene = scene_of(tmp_path, 3)
    fail_image(scene, "match", pair_item(*scene.pair()))

    jobs = [job for outcome in generate(scene) for job in outcome.follow_ups]

    assert len(jobs) == 2
    assert pair_item(*scene.pair()) not in {job.item for job in jobs}


def test_repetition_counts_nothing_but_names_the_jobs(tmp_path: Path) -> None:
    """A redelivered message publishes nothing new and still leads on."""
    scene = scene_of(tmp_path, 4)
    first = generate(scene)

    second = generate(scene)

    assert sum(outcome.recorded_items for outcome in second) == 0
    assert [outcome.follow_ups for outcome in second] == [outcome.follow_ups for outcome in first]


def test_a_new_image_means_new_names(tmp_path: Path) -> None:
    """Pairs are named by the whole list of images, so a grown project pairs anew."""
    scene = scene_of(tmp_path, 3)
    before = pairs_key(scene.project, scene.contents[0])

    scene.project.register("999.jpg", "f" * 64)

    assert pairing_of(scene.project).key(scene.contents[0]) != before


def test_missing_pairs_are_an_error_not_an_empty_list(tmp_path: Path) -> None:
    """Reading before the stage is complete does not look like a project without pairs."""
    scene = scene_of(tmp_path, 3)
    generate(scene, scene.contents[:2])

    with pytest.raises(MissingArtefactError):
        candidate_pairs(scene.store, scene.project)

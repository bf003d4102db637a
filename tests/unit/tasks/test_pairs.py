"""Every pair that the strategy asks for is proposed, and matched by one of its images."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from governor.model import Grant
from tasks.errors import Failure, MissingArtefactError, Reason
from tasks.kind import Done, Needs, NotReady
from tasks.pair_jobs import pair_item
from tasks.pairs import (
    KINDS,
    Pairing,
    PairsPayload,
    candidate_pairs,
    images_for_pairing,
    pairing_of,
    pairs_estimate,
    pairs_job,
    pairs_key,
    run_pairs,
)
from tasks.parameters import FeatureParameters, PairParameters, ProjectParameters
from tasks.store import Gps, PhotoRecord, ProjectImage
from tasks.visual_index import IndexPayload, run_index
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

    pairs = list(candidate_pairs(scene.store, scene.project))
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

    assert len(list(candidate_pairs(scene.store, scene.project))) == images - 1


def fail_image(scene: SceneStore, stage: str, item: str) -> None:
    """Quarantine an item."""
    failure = Failure(name=item, reason=Reason.UNREADABLE, cause="broken", cure="mend it")
    scene.project.record_failure(stage, item, failure)


def test_images_without_features_take_no_part(tmp_path: Path) -> None:
    """A quarantined image is left out of the list and of every pair; its own job is a no-op."""
    scene = scene_of(tmp_path, 4)
    fail_image(scene, "features", scene.contents[2])

    outcomes = generate(scene)

    pairs = list(candidate_pairs(scene.store, scene.project))
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
        list(candidate_pairs(scene.store, scene.project))


def retrieving_scene(root: Path, images: int = 6, **parameters: object) -> SceneStore:
    """Build a project whose cameras see the same points, all indexed."""
    pairs = PairParameters.model_validate({"strategy": "retrieval", **parameters})
    scene = build_scene(root, images=images, parameters=ProjectParameters(pairs=pairs))
    features = scene.project.parameters.features
    payloads = [IndexPayload(image=content, features=features) for content in scene.contents]
    assert all(isinstance(outcome, Done) for outcome in run_index(payloads, GRANT, scene.store))
    return scene


def partners(scene: SceneStore) -> dict[str, list[str]]:
    """Return what each image has proposed."""
    pairing = pairing_of(scene.project)
    return {
        content: [bytes(row).hex() for row in scene.store.read(pairing.key(content)).arrays["partners"]]
        for content in scene.contents
    }


def place_photos(scene: SceneStore, metres_north: Sequence[float | None]) -> None:
    """Say where each photo was taken."""
    for content, metres in zip(scene.contents, metres_north, strict=True):
        gps = (
            None
            if metres is None
            else Gps(latitude_degrees=46 + metres / 111_195, longitude_degrees=8, altitude_m=0)
        )
        scene.store.discard_photo_record(content)
        record = PhotoRecord(width_px=9, height_px=9, focal_length_px=9.0, focal_is_prior=False, gps=gps)
        scene.store.record_photo(content, record)


def test_retrieval_proposes_images_that_look_alike(tmp_path: Path) -> None:
    """All see the same points: each proposes the two with the smallest ids; its follow-ups are the larger."""
    scene = retrieving_scene(tmp_path, top_k=2)
    outcomes = generate(scene)

    ids = sorted(scene.contents)
    assert partners(scene) == {own: [other for other in ids if other != own][:2] for own in ids}
    assert sum(outcome.recorded_items for outcome in outcomes) == 12
    matched = sorted(job.item for outcome in outcomes for job in outcome.follow_ups)
    assert matched == [pair_item(ids[0], ids[1]), pair_item(ids[0], ids[2]), pair_item(ids[1], ids[2])]
    assert len(list(candidate_pairs(scene.store, scene.project))) == 9


@pytest.mark.parametrize(("threads", "batch"), [(1, 1), (2, 6), (4, 5), (8, 6)])
def test_proposals_do_not_depend_on_the_grant(tmp_path: Path, threads: int, batch: int) -> None:
    """Nor on windows."""
    one, other = (retrieving_scene(tmp_path / name, top_k=3) for name in ("one", "other"))
    generate(one)
    for begin in range(0, 6, batch):
        contents = other.contents[begin : begin + batch]
        payloads = [PairsPayload(project=other.project.id, image=content) for content in contents]
        grant = Grant(batch=batch, cpu_threads=threads, memory_bytes=1 << 30, io_slots=1)
        assert all(isinstance(outcome, Done) for outcome in run_pairs(payloads, grant, other.store))

    assert partners(other) == partners(one)


@pytest.mark.parametrize(("threads", "sources"), [(1, 2), (11, 22), (12, 24), (13, 24)])
def test_a_window_is_two_sources_per_thread_and_24_at_most(threads: int, sources: int) -> None:
    """Those are the suspects when the process dies."""
    assert KINDS[0].window(Grant(batch=64, cpu_threads=threads, memory_bytes=1)) == sources


def test_sources_of_a_window_that_lacks_a_segment_leave_the_queue(tmp_path: Path) -> None:
    """They are planned again when the index is whole."""
    scene = retrieving_scene(tmp_path, images=3)
    for path in scene.store.root.glob("artefacts/visual_index.segment/*/*"):
        path.unlink()
    payloads = [PairsPayload(project=scene.project.id, image=content) for content in scene.contents]
    outcomes = list(run_pairs(payloads, GRANT, scene.store))

    assert [type(outcome) for outcome in outcomes] == [NotReady] * 3


def test_a_damaged_list_costs_only_its_image(tmp_path: Path) -> None:
    """The message came twice and the list was damaged in between: it is made again, never guessed."""
    scene = retrieving_scene(tmp_path, images=3)
    generate(scene)
    before = partners(scene)
    scene.damage(pairs_key(scene.project, scene.contents[1]))
    payloads = [PairsPayload(project=scene.project.id, image=content) for content in scene.contents]
    outcomes = list(run_pairs(payloads, GRANT, scene.store))
    generate(scene)

    assert [type(outcome) for outcome in outcomes] == [Done, NotReady, Done]
    assert partners(scene) == before


def test_an_image_twice_in_a_window_counts_once(tmp_path: Path) -> None:
    """Two messages of one image may meet in a batch; both lead on."""
    scene = retrieving_scene(tmp_path, images=3)
    first = min(scene.contents)
    outcomes = generate(scene, [first, first])

    assert [outcome.recorded_items for outcome in outcomes] == [2, 0]
    assert outcomes[0].follow_ups == outcomes[1].follow_ups != ()


def test_a_batch_may_hold_images_of_several_projects(tmp_path: Path) -> None:
    """Each is paired within its own, also where they take turns."""
    scene = retrieving_scene(tmp_path, images=4, top_k=1)
    other = scene.store.project("other")
    other.create(ProjectParameters(pairs=PairParameters(strategy="exhaustive")), list(scene.project.sources))
    for source, content in zip(other.sources, scene.contents, strict=True):
        other.register(source.name, content)
    payloads = [
        PairsPayload(project=project.id, image=content)
        for content in scene.contents
        for project in (scene.project, other)
    ]
    outcomes = list(run_pairs(payloads, GRANT, scene.store))

    assert all(isinstance(outcome, Done) for outcome in outcomes)
    assert len(list(candidate_pairs(scene.store, other))) == 6
    assert {len(listed) for listed in partners(scene).values()} == {1}


def test_spatial_proposes_the_nearest_within_the_limit(tmp_path: Path) -> None:
    """Photos at 0, 40, 90, 300 m and one that does not say where."""
    pairs = PairParameters(strategy="spatial", neighbours=1, max_distance_m=60)
    scene = scene_of(tmp_path, 5, pairs)
    place_photos(scene, [0, 40, 90, 300, None])
    generate(scene)

    a, b, c, d, e = scene.contents
    assert partners(scene) == {a: [b], b: [a], c: [b], d: [], e: []}
    assert list(candidate_pairs(scene.store, scene.project)) == sorted(
        [tuple(sorted((a, b))), tuple(sorted((b, c)))]
    )


def test_a_union_proposes_what_any_of_its_strategies_does(tmp_path: Path) -> None:
    """By name, by likeness and by place; each partner once."""
    scene = retrieving_scene(
        tmp_path, strategy="retrieval,sequential,spatial", top_k=1, window=1, loop_steps=False, neighbours=1
    )
    place_photos(scene, [0, 500, 1000, 1500, 2000, 20])
    generate(scene)

    alike = min(scene.contents)
    neighbours = {tuple(sorted(pair)) for pair in zip(scene.contents, scene.contents[1:], strict=False)}
    wanted = neighbours | {tuple(sorted((scene.contents[0], scene.contents[5])))}
    wanted |= {(alike, other) for other in scene.contents if other != alike}
    assert set(candidate_pairs(scene.store, scene.project)) == wanted


def test_images_that_are_not_indexed_are_still_paired_by_name(tmp_path: Path) -> None:
    """Quarantined at the index: retrieval does without."""
    pairs = {"strategy": "retrieval,sequential", "window": 1, "loop_steps": False}
    scene = scene_of(tmp_path, 3, PairParameters.model_validate(pairs))
    for content in scene.contents:
        fail_image(scene, "index", content)
    generate(scene)

    assert distances(scene) == [1, 1]


@pytest.mark.parametrize(
    ("strategy", "images", "fixed_bytes"),
    [
        ("exhaustive", 410, 16 << 20),
        ("exhaustive", 411, (12 << 20) + 411 * 2048 + 410 * 8192),
        ("sequential", 5000, (12 << 20) + 5000 * 2048 + 2 * 18 * 8192),
        ("retrieval", 1, (32 << 20) + 2048),
        ("retrieval", 5000, (32 << 20) + 5000 * 2048 + 64 * 8192),
        ("retrieval,spatial", 5000, (32 << 20) + 5000 * 2048 + 114 * 8192),
    ],
)
def test_a_large_project_is_charged_by_its_images(strategy: str, images: int, fixed_bytes: int) -> None:
    """And by the matching jobs that one of them can lead to; the default is the floor."""
    named = tuple(ProjectImage(name=f"{n:05}.jpg", content=f"{n:064x}") for n in range(images))
    parameters = PairParameters(strategy=strategy)
    pairing = Pairing(images=named, parameters=parameters, features=FeatureParameters())

    assert pairs_estimate(pairing).memory_fixed_bytes == fixed_bytes
    assert pairs_estimate(pairing).memory_per_item_bytes == 64 << 10


@pytest.mark.parametrize(("strategy", "travels"), [("exhaustive", False), ("retrieval", True)])
def test_the_estimate_travels_where_it_is_not_the_default(
    tmp_path: Path,
    strategy: str,
    travels: bool,  # noqa: FBT001 - a table
) -> None:
    """A message without it is charged the default."""
    scene = scene_of(tmp_path, 2, PairParameters(strategy=strategy))
    estimate = pairs_estimate(pairing_of(scene.project))
    job = pairs_job(scene.project, scene.contents[0], estimate)

    assert job.estimate == (estimate if travels else None)


@pytest.mark.parametrize(("missing_bytes", "is_done"), [(0, True), (1, False)])
def test_a_grant_that_is_too_small_is_answered_with_the_need(
    tmp_path: Path,
    missing_bytes: int,
    is_done: bool,  # noqa: FBT001 - a table
) -> None:
    """Of a job that was sent without an estimate: it goes back with what it needs."""
    scene = retrieving_scene(tmp_path, images=2)
    estimate = pairs_estimate(pairing_of(scene.project))
    memory_bytes = estimate.memory_bytes(1) - missing_bytes
    payload = PairsPayload(project=scene.project.id, image=scene.contents[0])
    (outcome,) = run_pairs(
        [payload], Grant(batch=1, cpu_threads=1, memory_bytes=memory_bytes, io_slots=1), scene.store
    )

    assert isinstance(outcome, Done) if is_done else outcome == Needs(estimate=estimate)

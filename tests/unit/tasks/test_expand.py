"""The planner finds from the store alone what a project needs next, and always comes to an end."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from pydantic import ValidationError

from tasks import expand
from tasks.errors import Reason
from tasks.expand import PHASES, ExpandPayload, Phase, expand_job, run
from tasks.feature_memory import ESTIMATES, features_estimate
from tasks.feature_sets import features_key
from tasks.kind import Done, Job, NotReady, Outcome
from tasks.lacking import features_job
from tasks.looks import MAX_STALLS, History
from tasks.outlook import AHEAD
from tasks.pair_jobs import project_verification_key
from tasks.pairs import images_for_pairing, pairing_of
from tasks.reconstruction import model_key
from tasks.store import PhotoRecord, Project, ProjectImage
from tasks.store.artefacts import Artefacts
from tasks.store.photos import Photos
from tasks.tracks import tracks_key
from tests.unit.tasks.accidents import damage, failed, finish, finish_through_accidents, with_accidents
from tests.unit.tasks.pipeline_queue import PipelineQueue, content_of, new_queue
from tests.unit.tasks.scene_store import GRANT

STAGES_OF_PHASE = {
    "import": ["import"],
    "features": ["features"],
    "index": [],  # these projects are paired exhaustively; see test_expand_with_index
    "matching": ["pairs", "match", "verify"],
    "tracks": ["tracks"],
    "model": ["model"],
}
ALL_STAGES = [stage for phase in PHASES for stage in STAGES_OF_PHASE[phase]]


@pytest.fixture
def queue(tmp_path: Path) -> PipelineQueue:
    """Return a project of three photos that nothing was done for."""
    return new_queue(tmp_path)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a window be two jobs, and the next one come when one is left."""
    monkeypatch.setattr(expand, "WINDOW_JOBS", 2)
    monkeypatch.setattr(expand, "LOW_WATER_JOBS", 1)


def plan(queue: PipelineQueue, **payload: Any) -> Done:
    """Plan once and settle nothing."""
    (outcome,) = run([ExpandPayload(project=queue.project.id, **payload)], GRANT, queue.store)
    assert isinstance(outcome, Done)
    return outcome


def successor(outcome: Done) -> ExpandPayload:
    """Return what the next plan is told."""
    assert outcome.continuation is not None
    return ExpandPayload.model_validate(outcome.continuation.payload)


def test_a_project_passes_its_phases_in_order(queue: PipelineQueue) -> None:
    """No stage begins before the barrier in front of it."""
    finish(queue)

    assert queue.executed_stages == ALL_STAGES
    stages = [job.stage for job in queue.executed]
    for before, after in (("import", "features"), ("features", "pairs"), ("verify", "tracks")):
        assert max(_places(stages, before)) < min(_places(stages, after))
    assert {stage: stages.count(stage) for stage in ALL_STAGES} == (
        dict.fromkeys(ALL_STAGES, 3) | {"tracks": 1, "model": 1}
    )


def _places(stages: list[str], stage: str) -> list[int]:
    return [place for place, name in enumerate(stages) if name == stage]


@pytest.mark.parametrize("until", PHASES)
def test_nothing_runs_beyond_the_last_phase_asked_for(queue: PipelineQueue, until: Phase) -> None:
    """`until` names the last one that runs."""
    finish(queue, until)

    last = PHASES.index(until)
    assert queue.executed_stages == [s for phase in PHASES[: last + 1] for s in STAGES_OF_PHASE[phase]]


def test_a_project_without_photos_is_done_at_once(tmp_path: Path) -> None:
    """There is nothing to plan, and no model of nothing either."""
    outcome = plan(new_queue(tmp_path, images=0))

    assert (outcome.follow_ups, outcome.continuation) == ((), None)
    assert outcome.progress == {"state": "done", "phase": "done"}


def test_a_finished_project_is_done_at_once(queue: PipelineQueue) -> None:
    """Resuming what is complete runs no job."""
    finish(queue)
    queue.executed.clear()
    finish(queue)

    assert queue.executed == []


@pytest.mark.parametrize("until", PHASES[:-1])
def test_a_resumed_project_skips_what_is_there(queue: PipelineQueue, until: Phase) -> None:
    """The phases behind are neither planned nor run again."""
    finish(queue, until)
    queue.executed.clear()
    finish(queue)

    last = PHASES.index(until)
    assert queue.executed_stages == [s for phase in PHASES[last + 1 :] for s in STAGES_OF_PHASE[phase]]


def test_a_single_missing_artefact_is_made_alone(queue: PipelineQueue) -> None:
    """What hangs on it has its name already, and stays."""
    finish(queue)
    queue.executed.clear()
    content = content_of("001.jpg")
    queue.store.discard(features_key(content, queue.project.parameters.features))
    finish(queue)

    assert [(job.stage, job.item) for job in queue.executed] == [("features", content)]


def test_a_window_is_cut_and_continued_at_its_cursor(tmp_path: Path, small_windows: None) -> None:  # noqa: ARG001
    """Five sources come in windows of two; each successor knows where the last one was cut."""
    queue = new_queue(tmp_path, images=5)
    windows, payload = [], ExpandPayload(project="tiny")
    for _ in range(3):
        outcome = plan(queue, **payload.model_dump(exclude={"project"}))
        windows.append([job.item for job in outcome.follow_ups])
        payload = successor(outcome)

    assert windows == [["000.jpg", "001.jpg"], ["002.jpg", "003.jpg"], ["004.jpg"]]
    assert (payload.phase, payload.cursor) == ("import", 0)


def test_only_the_last_window_of_a_phase_waits_for_all_its_jobs(tmp_path: Path, small_windows: None) -> None:  # noqa: ARG001
    """Between windows no node runs dry; the look at everything comes when nothing is outstanding."""
    queue = new_queue(tmp_path, images=3)

    first = plan(queue)
    last = plan(queue, phase="import", cursor=2)

    assert (first.continue_at, successor(first).cursor) == (1, 2)
    assert (last.continue_at, successor(last).cursor) == (0, 0)


def test_a_photos_features_fill_a_window_like_four_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take as long; what is left when the next window comes takes as long, too."""
    queue = new_queue(tmp_path, images=3)
    finish(queue, until="import")
    monkeypatch.setattr(expand, "WINDOW_JOBS", 8)
    monkeypatch.setattr(expand, "LOW_WATER_JOBS", 4)
    outcome = plan(queue)

    assert [job.stage for job in outcome.follow_ups] == ["features"] * 2
    assert (outcome.continue_at, successor(outcome).cursor) == (1, 2)


def test_a_phase_that_fills_its_window_exactly_is_looked_at_once_more(
    tmp_path: Path,
    small_windows: None,  # noqa: ARG001
) -> None:
    """The cut may be behind the last source: an empty window is no stop."""
    queue = new_queue(tmp_path, images=2)
    outcome = plan(queue, phase="import", cursor=2)

    assert outcome.follow_ups == ()
    assert (successor(outcome).phase, successor(outcome).cursor, outcome.continue_at) == ("import", 0, 0)
    finish(queue)


def test_what_an_earlier_phase_lacks_is_found_by_the_next_look_from_the_start(queue: PipelineQueue) -> None:
    """A window in the middle of a phase looks at nothing else."""
    finish(queue, "features")
    shutil.rmtree(queue.project.path / "registrations")
    outcome = plan(queue, phase="features", cursor=1)
    following = plan(queue, **successor(outcome).model_dump(exclude={"project"}))

    assert outcome.follow_ups == ()
    assert [job.stage for job in following.follow_ups] == ["import"] * 3


class LookUps:
    """Counts what is looked up in the store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for owner, name in ((Artefacts, "has"), (Photos, "has"), (Photos, "has_record"), (Project, "_read")):
            monkeypatch.setattr(owner, name, self._counting(getattr(owner, name)))

    def _counting(self, look_up: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            self.count += 1
            return look_up(*arguments)

        return counting


@pytest.mark.parametrize("phase", ["import", "features", "matching"])
def test_a_window_costs_no_look_ups_for_the_sources_before_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_windows: None,  # noqa: ARG001
    phase: Phase,
) -> None:
    """The end of 24 photos costs no more than the end of 6; what is registered is read at once."""
    costs = []
    for images in (6, 24):
        queue = new_queue(tmp_path / str(images), images=images)
        finish(queue, phase)
        with monkeypatch.context() as patch:
            look_ups = LookUps(patch)
            plan(queue, phase=phase, cursor=images)
        costs.append(look_ups.count)

    assert costs[0] == costs[1]


def test_looking_at_a_project_costs_as_much_as_it_is_large(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_windows: None,  # noqa: ARG001
) -> None:
    """Twice the photos in windows of two: twice the look-ups, not four times."""
    costs = []
    for images in (16, 32):
        queue = new_queue(tmp_path / str(images), images=images)
        with monkeypatch.context() as patch:
            look_ups = LookUps(patch)
            finish(queue, "features")
        costs.append(look_ups.count)

    assert costs[1] <= 2 * costs[0]


def test_pairs_not_generated_yet_weigh_as_many_as_they_will_be(tmp_path: Path, small_windows: None) -> None:  # noqa: ARG001
    """Their match jobs follow at once: a window of pairs alone would flood the queue."""
    queue = new_queue(tmp_path, images=4)
    finish(queue, "features")

    first = plan(queue, phase="matching").follow_ups

    pairing = pairing_of(queue.project)
    weights = [1 + pairing.most_partners(image.content) for image in pairing.images]
    assert {job.stage for job in first} == {"pairs"}
    assert len(first) == next(count for count in range(1, 5) if sum(weights[:count]) >= 2)


@pytest.mark.parametrize(("phase", "each"), [("features", "1"), ("matching", "4")])
def test_a_plan_tells_how_many_jobs_may_follow_from_one(tmp_path: Path, phase: Phase, each: str) -> None:
    """The first of four images pairs with three others, and counts itself; a photo's features bring none."""
    queue = new_queue(tmp_path, images=4)
    finish(queue, "import" if phase == "features" else "features")

    progress = plan(queue, phase=phase).progress
    assert progress == {"state": "running", "phase": phase, "pairs:each": each, AHEAD: ANY}


@pytest.mark.parametrize("images", [1, 2, 3, 5])
def test_small_windows_lead_to_the_same_end(tmp_path: Path, small_windows: None, images: int) -> None:  # noqa: ARG001
    """How the work is cut changes nothing of it."""
    queue = new_queue(tmp_path, images=images)
    finish(queue)

    items = [(job.stage, job.item) for job in queue.executed]
    assert len(items) == len(set(items)) == 3 * images + images * (images - 1) + 2


@pytest.mark.parametrize("stage", [stage for stage in ALL_STAGES if stage != "model"])
def test_a_failed_item_is_not_planned_again(queue: PipelineQueue, stage: str) -> None:
    """It is quarantined, and the project goes on without it."""
    queue.instead[stage] = lambda job: failed(job) if job.item == failing[0] else queue.do(job)
    failing = [_first_item(queue, stage)]
    finish(queue)

    ran = [job.item for job in queue.executed if job.stage == stage]
    assert ran.count(failing[0]) == 1
    assert [(failed_stage, item) for failed_stage, item, _ in queue.project.failures()] == [
        (stage, failing[0])
    ]


def _first_item(queue: PipelineQueue, stage: str) -> str:
    first, second, _ = sorted(content_of(source.name) for source in queue.project.sources)
    own = {"import": "000.jpg", "tracks": queue.project.id, "match": f"{first}-{second}"}
    return (own | {"verify": own["match"]}).get(stage, first)


@pytest.mark.parametrize("stage", ["import", "features"])
def test_a_project_whose_photos_all_fail_is_done(queue: PipelineQueue, stage: str) -> None:
    """No image, no tracks, no model, no endless planning."""
    queue.instead[stage] = failed
    finish(queue)

    assert queue.executed_stages[-1] == stage
    assert len(queue.project.failures()) == 3


def test_a_cleared_failure_is_planned_again(queue: PipelineQueue) -> None:
    """`tiepoint resume` tries failed items once more."""
    queue.instead["features"] = failed
    finish(queue)
    queue.instead.clear()
    queue.project.clear_failures()
    queue.executed.clear()
    finish(queue)

    assert queue.executed_stages == ALL_STAGES[1:]


def test_a_damaged_geometry_is_found_by_the_planner_and_made_again(queue: PipelineQueue) -> None:
    """Counting inliers for the estimate of the tracks meets it before any job does."""
    finish(queue, "matching")
    left, right = sorted(image.content for image in queue.project.images())[:2]
    damage(queue, project_verification_key(queue.project, left, right))
    queue.executed.clear()
    finish(queue)

    assert [job.stage for job in queue.executed] == ["verify", "tracks", "model"]


def test_a_damaged_model_is_made_again(queue: PipelineQueue) -> None:
    """A folder that does not match its sums is no model."""
    finish(queue)
    folder = queue.store.folder(model_key(queue.store, queue.project))
    assert folder is not None
    (folder / "summary.json").write_text("{...")
    queue.executed.clear()
    finish(queue)

    assert [job.stage for job in queue.executed] == ["model"]


def test_an_input_that_is_missing_is_made_before_the_item_is_tried_again(queue: PipelineQueue) -> None:
    """A verification that finds no matches leaves the queue; the next look plans the match."""
    finish(queue, "features")
    seen: list[str] = []

    def lose_once(job: Job) -> Outcome:
        seen.append(job.item)
        return NotReady(cause="gone") if len(seen) == 1 else queue.do(job)

    queue.instead["verify"] = lose_once
    finish(queue)

    assert seen.count(seen[0]) == 2


@pytest.mark.parametrize("stage", ["import", "features", "pairs", "match", "verify", "tracks", "model"])
def test_a_stage_that_leaves_no_results_ends_in_recorded_failures(queue: PipelineQueue, stage: str) -> None:
    """A store that forgets what was written must not be planned for ever."""
    queue.instead[stage] = lambda _job: Done()
    finish(queue)

    ran = [job.item for job in queue.executed if job.stage == stage]
    failures = [
        (item, failure.reason) for failed, item, failure in queue.project.failures() if failed == stage
    ]
    assert sorted(set(ran)) == sorted(item for item, _ in failures)
    assert {reason for _, reason in failures} == {Reason.INTERNAL_ERROR}
    # The first match and verify jobs are follow-ups: planned by nobody, they come on top.
    follow_ups = int(stage in {"match", "verify"})
    assert {ran.count(item) for item in ran} == {MAX_STALLS + follow_ups}


@pytest.mark.parametrize("stage", ["import", "features", "match"])
def test_a_stall_of_many_windows_ends_in_recorded_failures(
    tmp_path: Path,
    small_windows: None,  # noqa: ARG001
    stage: str,
) -> None:
    """However many windows one look takes, looks are compared as a whole."""
    queue = new_queue(tmp_path, images=5)
    queue.instead[stage] = lambda _job: Done()
    finish(queue)

    failed = {item for failed_stage, item, _ in queue.project.failures() if failed_stage == stage}
    assert failed == {job.item for job in queue.executed if job.stage == stage}


def test_a_stall_that_takes_turns_between_two_phases_comes_to_an_end(queue: PipelineQueue) -> None:
    """Features that are lost whenever a pair is matched."""
    lost = content_of("001.jpg")

    def lose_features(job: Job) -> Outcome:
        if lost not in job.item:
            return queue.do(job)
        queue.store.discard(features_key(lost, queue.project.parameters.features))
        return NotReady(cause="lost")

    queue.instead["match"] = lose_features
    finish(queue)

    assert {failure.reason for _, _, failure in queue.project.failures()} == {Reason.INTERNAL_ERROR}
    assert queue.store.folder(model_key(queue.store, queue.project)) is not None


def test_damage_found_one_by_one_is_never_given_up(tmp_path: Path) -> None:
    """Eight times the tracks meet another set of features that is lost."""
    queue = new_queue(tmp_path, images=8)
    waiting = [content_of(source.name) for source in queue.project.sources]

    def meet_damage(job: Job) -> Outcome:
        if not waiting:
            return queue.do(job)
        queue.store.discard(features_key(waiting.pop(), queue.project.parameters.features))
        return NotReady(cause="lost")

    queue.instead["tracks"] = meet_damage
    finish(queue)

    assert queue.project.failures() == []
    _assert_complete(queue)


def test_all_damaged_geometries_are_repaired_by_one_look(queue: PipelineQueue) -> None:
    """Counting inliers goes on after the first."""
    finish(queue, "matching")
    contents = sorted(image.content for image in queue.project.images())
    for pair in ((0, 1), (0, 2), (1, 2)):
        damage(queue, project_verification_key(queue.project, *(contents[number] for number in pair)))
    looked = len(queue.phases)
    finish(queue, "tracks")

    assert queue.phases[looked:] == ["matching", "tracks", "done"]


@pytest.mark.parametrize("field", ["until", "phase"])
def test_a_phase_that_there_is_not_is_refused(field: str) -> None:
    """Before it has failed a project."""
    with pytest.raises(ValidationError, match=field):
        ExpandPayload.model_validate({"project": "tiny", field: "dense"})


@pytest.mark.parametrize("suffix", ["", ".json"])
@pytest.mark.parametrize("until", ["import", "features", "matching"])
def test_a_photo_that_the_store_has_lost_is_imported_again(
    queue: PipelineQueue, until: Phase, suffix: str
) -> None:
    """Its bytes or its record: a registration alone is no photo."""
    finish(queue, until)
    queue.executed.clear()
    next(queue.store.root.glob(f"photos/*/{content_of('001.jpg')}{suffix}")).unlink()
    finish(queue)

    assert [job.item for job in queue.executed if job.stage == "import"] == ["001.jpg"]
    assert queue.project.failures() == []
    _assert_complete(queue)


@pytest.mark.parametrize("until", ["import", "features", "matching", "tracks", "model"])
def test_a_damaged_record_of_a_photo_is_made_again(queue: PipelineQueue, until: Phase) -> None:
    """Whether a later phase needs it or not."""
    finish(queue, until)
    next(queue.store.root.glob(f"photos/*/{content_of('001.jpg')}.json")).write_text("{")
    finish(queue)

    assert queue.project.failures() == []
    _assert_complete(queue)


def test_a_photo_that_cannot_come_back_is_left_out_once(queue: PipelineQueue) -> None:
    """The reason is the import's; the rest is finished."""
    finish(queue, "import")
    lost = content_of("001.jpg")
    queue.store.discard_photo(lost)
    queue.instead["import"] = failed
    finish(queue)

    stages = [(stage, item) for stage, item, _ in queue.project.failures()]
    assert stages == [("features", lost), ("import", "001.jpg")]
    assert len({failure for _, _, failure in queue.project.failures()}) == 1
    assert [image.name for image in images_for_pairing(queue.project)] == ["000.jpg", "002.jpg"]
    assert queue.store.folder(model_key(queue.store, queue.project)) is not None


def test_a_lost_photo_that_no_source_has_is_left_out(queue: PipelineQueue) -> None:
    """Somebody sent its import by hand: nobody can plan it again."""
    finish(queue, "import")
    queue.project.register("by-hand.jpg", "a" * 64)
    finish(queue)

    ((stage, item, failure),) = queue.project.failures()
    assert (stage, item) == ("features", "a" * 64)
    assert (failure.name, failure.reason) == ("by-hand.jpg", Reason.LOST)


def test_one_look_finds_all_damaged_records(queue: PipelineQueue) -> None:
    """Not one look for each."""
    finish(queue, "import")
    for path in queue.store.root.glob("photos/*/*.json"):
        path.write_text("{")

    assert len(plan(queue).follow_ups) == 3


def test_a_photo_whose_features_are_there_stays_though_it_is_lost(queue: PipelineQueue) -> None:
    """An unplugged disk of linked photos takes nothing away from what was found in them."""
    finish(queue, "features")
    for path in queue.store.root.glob("photos/*/*"):
        if not path.suffix:
            path.unlink()
    queue.instead["import"] = failed
    finish(queue)

    assert {stage for stage, _, _ in queue.project.failures()} == {"import"}
    assert len(images_for_pairing(queue.project)) == 3
    _assert_complete(queue)


def test_progress_between_two_looks_is_no_stall(queue: PipelineQueue) -> None:
    """One image more each time: four looks, and nothing is given up."""
    done: set[str] = set()

    def one_per_look(job: Job) -> Outcome:
        wanted = min({content_of(source.name) for source in queue.project.sources} - done)
        if job.item != wanted or looks[-1] == len(queue.phases):
            return Done()
        looks.append(len(queue.phases))
        done.add(job.item)
        return queue.do(job)

    looks = [0]
    queue.instead["features"] = one_per_look
    finish(queue, "features")

    assert len(done) == 3
    assert queue.project.failures() == []


def test_a_plan_survives_its_way_through_the_queue() -> None:
    """The payload of the job is the payload of the kind."""
    history = History(fewest={"features": 3}, seen={"features:3:0123456789abcdef": 2})
    payload = ExpandPayload(
        project="tiny",
        until="tracks",
        phase="matching",
        cursor=7,
        planned=3,
        digest="0123456789abcdef",
        history=history,
    )

    job = expand_job(payload)

    assert ExpandPayload.model_validate(job.payload) == payload
    assert (job.stage, job.item) == ("plan", "matching:7")


@pytest.mark.parametrize(("side_px", "is_default"), [(64, True), (20_000, False)])
def test_a_features_job_is_charged_by_its_photo(queue: PipelineQueue, side_px: int, is_default: bool) -> None:  # noqa: FBT001
    """The estimate travels only where it is not the kind's default."""
    record = PhotoRecord(width_px=side_px, height_px=side_px, focal_length_px=1.0, focal_is_prior=False)
    content = content_of("photo")
    queue.store.record_photo(content, record)

    job = features_job(queue.store, queue.project, ProjectImage(name="a.jpg", content=content))

    charged = features_estimate(record, queue.project.parameters.features)
    assert (job.item, job.name) == (content, "a.jpg")
    assert job.estimate == (None if is_default else charged)
    assert (charged == ESTIMATES["rootsift"]) == is_default


@with_accidents(max_examples=25)
def test_any_order_with_any_accident_ends_done_and_complete(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], window: int
) -> None:
    """Jobs end in any order, die, run twice; artefacts are damaged and lost: the end is the same."""
    queue = new_queue(tmp_path_factory.mktemp("queue"))
    finish_through_accidents(queue, steps, window)

    assert queue.project.failures() == []
    _assert_complete(queue)


def _assert_complete(queue: PipelineQueue) -> None:
    store, project = queue.store, queue.project
    contents = sorted(content_of(source.name) for source in project.sources)
    assert [image.content for image in project.images()] == [content_of(s.name) for s in project.sources]
    assert all(store.has(features_key(content, project.parameters.features)) for content in contents)
    pairs = [(left, right) for left in contents for right in contents if left < right]
    assert all(store.has(project_verification_key(project, *pair)) for pair in pairs)
    assert store.has(tracks_key(store, project))
    assert store.folder(model_key(store, project)) is not None

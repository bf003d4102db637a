"""The planner, where pairs come from the visual index: one more barrier, and pairs of one-sided likeness."""

from pathlib import Path

import numpy as np
import pytest

from tasks import expand
from tasks.feature_sets import FeatureSet, features_key, publish_feature_set
from tasks.index_memberships import membership_key, read_membership
from tasks.kind import Done, Job, Outcome
from tasks.pairing import pairing_of
from tasks.parameters import PairParameters, ProjectParameters
from tasks.proposals import candidate_pairs
from tasks.tracks import tracks_key
from tests.unit.tasks.accidents import damage, failed, finish, finish_through_accidents, with_accidents
from tests.unit.tasks.index_builders import Descriptors, overlapping_sets
from tests.unit.tasks.pipeline_queue import PipelineQueue, content_of, new_queue

ALL_STAGES = ["import", "features", "index", "pairs", "match", "verify", "tracks", "model"]
IMAGES = 6
PARAMETERS = ProjectParameters(pairs=PairParameters(strategy="retrieval", top_k=2))


def retrieving_queue(root: Path, parameters: ProjectParameters = PARAMETERS) -> PipelineQueue:
    """Return a project of photos along a row, of which each proposes two others."""
    queue = new_queue(root, IMAGES, parameters)
    sets = {
        content_of(source.name): descriptors
        for source, descriptors in zip(queue.project.sources, _row_with_a_hub(), strict=True)
    }
    plain = queue.do

    def features(job: Job) -> Outcome:
        queue.store.discard(features_key(job.item, parameters.features))
        outcome = plain(job)
        if not isinstance(outcome, Done):
            return outcome
        queue.store.discard(features_key(job.item, parameters.features))
        descriptors = sets[job.item]
        made = FeatureSet(
            extractor="rootsift",
            width_px=64,
            height_px=64,
            keypoints=np.ones((len(descriptors), 4), np.float32),
            descriptors=descriptors,
        )
        publish_feature_set(queue.store, features_key(job.item, parameters.features), made)
        return outcome

    queue.instead["features"] = features
    return queue


def _row_with_a_hub() -> list[Descriptors]:
    """Return sets of which every one resembles the first most, and that only two in return."""
    sets = overlapping_sets(IMAGES)
    hub = np.concatenate([descriptors[:15] for descriptors in sets])
    return [hub, *sets[1:]]


@pytest.fixture
def queue(tmp_path: Path) -> PipelineQueue:
    """Return a project that nothing was done for."""
    return retrieving_queue(tmp_path)


def pairs_of(queue: PipelineQueue) -> list[str]:
    """Return the items of all candidate pairs."""
    return [f"{left}-{right}" for left, right in candidate_pairs(queue.store, queue.project)]


def ran(queue: PipelineQueue, stage: str) -> list[str]:
    """Return the items of a stage that were run, in order."""
    return [job.item for job in queue.executed if job.stage == stage]


def test_the_index_is_a_barrier(queue: PipelineQueue) -> None:
    """Nobody asks it before everybody is in it."""
    finish(queue)
    stages = [job.stage for job in queue.executed]

    assert queue.executed_stages == ALL_STAGES
    assert max(place for place, name in enumerate(stages) if name == "index") < stages.index("pairs")
    assert stages.count("index") == IMAGES


def test_every_pair_is_matched_once_whoever_proposes_it(queue: PipelineQueue) -> None:
    """Also those that only the larger image proposes, of which there are some."""
    finish(queue)
    one_sided = [pair for pair in pairs_of(queue) if not _smaller_proposes(queue, pair)]

    assert one_sided
    assert sorted(ran(queue, "match")) == sorted(ran(queue, "verify")) == pairs_of(queue)
    assert queue.project.failures() == []


def _smaller_proposes(queue: PipelineQueue, pair: str) -> bool:
    smaller, larger = pair.split("-")
    partners = queue.store.read(pairing_of(queue.project).key(smaller)).arrays["partners"]
    return larger in {bytes(row).hex() for row in partners}


@pytest.mark.parametrize("window", [1, 2, 5])
def test_small_windows_lead_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """How the work is cut changes nothing of it."""
    monkeypatch.setattr(expand, "WINDOW_JOBS", window)
    monkeypatch.setattr(expand, "LOW_WATER_JOBS", window // 2)
    queue = retrieving_queue(tmp_path)
    finish(queue)

    items = [(job.stage, job.item) for job in queue.executed]
    assert len(items) == len(set(items)) == 4 * IMAGES + 2 * len(pairs_of(queue)) + 2


def test_a_finished_project_is_done_at_once(queue: PipelineQueue) -> None:
    """Resuming what is complete runs no job."""
    finish(queue)
    queue.executed.clear()
    finish(queue)

    assert queue.executed == []


@pytest.mark.parametrize("until", ["features", "index", "matching"])
def test_a_resumed_project_skips_what_is_there(tmp_path: Path, until: str) -> None:
    """The phases behind are neither planned nor run again."""
    queue = retrieving_queue(tmp_path)
    finish(queue, until)  # type: ignore[arg-type]
    behind = queue.executed_stages
    queue.executed.clear()
    finish(queue)

    assert behind + queue.executed_stages == ALL_STAGES


def test_sets_of_a_lost_segment_are_indexed_again(queue: PipelineQueue) -> None:
    """And they alone; the pairs, which have their names already, stay."""
    finish(queue)
    queue.executed.clear()
    digest = pairing_of(queue.project).indexed[content_of("001.jpg")]
    queue.store.discard(read_membership(queue.store, digest).segment)
    finish(queue)

    assert [(job.stage, job.item) for job in queue.executed] == [("index", content_of("001.jpg"))]


def test_a_segment_found_damaged_by_a_query_is_made_again(queue: PipelineQueue) -> None:
    """The query gives its item up; the next look indexes, the one after asks again."""
    finish(queue, "index")
    digest = pairing_of(queue.project).indexed[content_of("001.jpg")]
    damage(queue, read_membership(queue.store, digest).segment)
    finish(queue)

    assert ran(queue, "index").count(content_of("001.jpg")) == 2
    assert queue.project.failures() == []
    assert sorted(set(ran(queue, "match"))) == pairs_of(queue)


def test_a_damaged_membership_is_made_again(queue: PipelineQueue) -> None:
    """The planner reads it."""
    finish(queue)
    queue.executed.clear()
    damage(queue, membership_key(pairing_of(queue.project).indexed[content_of("002.jpg")]))
    finish(queue)

    assert [(job.stage, job.item) for job in queue.executed] == [("index", content_of("002.jpg"))]


@pytest.mark.parametrize("stage", ["index", "pairs"])
def test_an_image_that_fails_is_left_out_of_the_retrieval(queue: PipelineQueue, stage: str) -> None:
    """The project goes on; images that propose it match it all the same."""
    lost = content_of("003.jpg")
    done = queue.do

    def fail_one(job: Job) -> Outcome:
        return failed(job) if job.item == lost else done(job)

    queue.instead[stage] = fail_one
    finish(queue)

    assert [(failed, item) for failed, item, _ in queue.project.failures()] == [(stage, lost)]
    assert ran(queue, stage).count(lost) == 1
    assert sorted(set(ran(queue, "match"))) == pairs_of(queue)
    assert queue.store.has(tracks_key(queue.store, queue.project))


def test_the_pairs_are_those_of_one_batch(tmp_path: Path) -> None:
    """Windows, segments and repetitions change no pair."""
    first, second = (retrieving_queue(tmp_path / name) for name in ("first", "second"))
    finish(first)
    second.start()
    while second.messages:
        second.execute(second.messages[-1])
        second.complete(len(second.messages) - 1)
    finish(second)

    assert pairs_of(second) == pairs_of(first)


@with_accidents(max_examples=15)
def test_any_order_with_any_accident_ends_done_and_complete(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], window: int
) -> None:
    """Jobs end in any order, die, run twice; segments and lists are damaged and lost: the end is the same."""
    queue = retrieving_queue(tmp_path_factory.mktemp("queue"))
    finish_through_accidents(queue, steps, window)

    assert queue.project.failures() == []
    assert sorted(set(ran(queue, "verify"))) == pairs_of(queue)
    assert queue.store.has(tracks_key(queue.store, queue.project))

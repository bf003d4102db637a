"""Tests of the time that a project is said to need."""

from dataclasses import replace
from typing import Any

import pytest

from governor.planning.profile import LinearCost, ProfileSet
from worker.eta import Reference, eta_seconds, in_words, reference_of, shipped_reference
from worker.live_nodes import LiveNode
from worker.project_state import ProjectState, StageProgress

REFERENCE = Reference(
    seconds={"import": 0.1, "features": 1.0, "match": 0.5, "verify": 0.25, "tracks": 0.1, "model": 0.5},
    stages={
        "features.extract.rootsift": "features",
        "matcher.run": "match",
        "geometric_verifier.run": "verify",
    },
)
TEN_IMAGES = {"partners": 4, "images": 10}


def stage(planned: int, done: int, seconds: float = 0.0, failed: int = 0) -> StageProgress:
    """Return how far a stage is that began one second after the epoch."""
    ended_ms = int(seconds * 1000) + 1000 if seconds else 0
    return StageProgress(planned=planned, done=done, failed=failed, started_ms=1000, finished_ms=ended_ms)


def kind(items: int, busy_seconds: float, batches: int = 10**9) -> dict[str, Any]:
    """Return what was measured of a kind; of batches that take no time nothing is half done."""
    return {"items": items, "busy_seconds": busy_seconds, "batches": batches}


def matching(done: int, seconds: float, busy_seconds: float) -> ProjectState:
    """Return a project of 40 pairs without tracks or model, some matched and verified."""
    return ProjectState(
        state="running",
        stages={"match": stage(40, done, seconds), "verify": stage(done, done, seconds)},
        kinds={
            "matcher.run": kind(done, busy_seconds * 2 / 3),
            "geometric_verifier.run": kind(done, busy_seconds / 3),
        },
        ahead=TEN_IMAGES,
    )


def test_what_is_left_takes_as_long_as_what_was_done() -> None:
    """A quarter of the pairs took 5 s: three quarters take 15, however many nodes have shared them."""
    left = eta_seconds(matching(10, seconds=5.0, busy_seconds=7.5), REFERENCE)

    assert left == pytest.approx(15.0)


def test_batches_that_run_are_half_done() -> None:
    """Of 5 s and 10 s of work half a batch, 0.5 s, is not counted yet; nor is it left to be done."""
    state = matching(10, seconds=5.0, busy_seconds=0.0)
    kinds = {name: kind(10, 5.0, batches=5) for name in state.kinds}

    width = 10.0 / (5.0 - 0.5)
    assert eta_seconds(replace(state, kinds=kinds), REFERENCE) == pytest.approx(30.0 / width - 0.5)


def test_phases_that_have_not_begun_are_as_slow_as_the_others_were() -> None:
    """Twice the seconds of the reference; tracks and model by images, on one node."""
    state = matching(10, seconds=5.0, busy_seconds=15.0)
    left = eta_seconds(replace(state, ahead={**TEN_IMAGES, "tracks": 1, "model": 1}), REFERENCE)

    assert left == pytest.approx(15.0 + 2 * 10 / 15 * (0.1 + 0.5))


def test_a_model_takes_the_longer_the_more_inliers_there_will_be() -> None:
    """A tenth of the reference's in a quarter of the pairs is four tenths in all."""
    state = replace(matching(10, seconds=5.0, busy_seconds=7.5), inliers=14_721)
    left = eta_seconds(replace(state, ahead={**TEN_IMAGES, "model": 1}), REFERENCE)

    assert left == pytest.approx(15.0 + 0.4 * 0.5, rel=1e-4)


def test_pairs_are_foreseen_before_they_are_known() -> None:
    """Two images have still to name four each; all take as long as the reference says."""
    features = {"features.extract.rootsift": kind(10, 10.0)}
    state = ProjectState(
        state="running",
        stages={"features": stage(10, 10, seconds=5.0), "pairs": stage(1, 0)},
        kinds=features,
        ahead={**TEN_IMAGES, "pairs": 1},
    )

    assert eta_seconds(state, REFERENCE) == pytest.approx(2 * 4 * (0.5 + 0.25) / 2)


def test_failed_jobs_are_not_left() -> None:
    """They are over, like the done ones."""
    state = matching(10, seconds=5.0, busy_seconds=7.5)
    stages = {**state.stages, "match": stage(40, 10, seconds=5.0, failed=30)}

    assert eta_seconds(replace(state, stages=stages), REFERENCE) == 0.0


def test_before_anything_is_done_nobody_knows() -> None:
    """Neither of a project that is not running, or that has not been planned."""
    fresh = matching(0, seconds=0.0, busy_seconds=0.0)
    measured = matching(10, seconds=5.0, busy_seconds=7.5)

    assert eta_seconds(fresh, REFERENCE) is None
    assert eta_seconds(replace(measured, state="cancelled"), REFERENCE) is None
    assert eta_seconds(replace(measured, ahead={}), REFERENCE) is None


def test_nodes_that_have_learned_know_before_anything_is_done() -> None:
    """Two threads at 150 % of the profile; nodes that learn nothing say nothing."""
    fresh = matching(0, seconds=0.0, busy_seconds=0.0)
    learned = LiveNode(name="one", budget_cpu_threads=2, planning={"device_factor_percent": 150})
    silent = LiveNode(name="two", budget_cpu_threads=2, planning={"device_factor_percent": 0})

    assert eta_seconds(fresh, REFERENCE, [learned]) == pytest.approx(40 * 0.75 * 1.5 / 2)
    assert eta_seconds(fresh, REFERENCE, [silent]) is None


def test_the_profiles_of_a_stage_are_those_of_its_slowest_kind() -> None:
    """Kinds that are no stage of ours have no place."""
    linear = {
        "features.extract.sift": LinearCost(setup_ns=0, per_item_ns=10**9),
        "features.extract.orb": LinearCost(setup_ns=0, per_item_ns=10**8),
        "model.reconstruct": LinearCost(setup_ns=0, per_item_ns=3 * 10**9),
        "noop": LinearCost(setup_ns=0, per_item_ns=1),
    }

    assert reference_of(ProfileSet(cells={}, linear=linear)).seconds == {"features": 1.0, "model": 3.0}


def test_the_shipped_profiles_know_every_stage_that_takes_long() -> None:
    """A stage that is missing there would count for nothing before it has begun."""
    assert shipped_reference().seconds.keys() == {"import", "features", "match", "verify", "tracks", "model"}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "a few seconds left"),
        (9.9, "a few seconds left"),
        (10.0, "about 10 s left"),
        (44.0, "about 40 s left"),
        (119.0, "about 120 s left"),
        (120.0, "about 2 min left"),
        (7_199.0, "about 120 min left"),
        (7_200.0, "about 2 h left"),
        (360_000.0, "about 100 h left"),
    ],
)
def test_time_is_told_with_few_digits(seconds: float, told: str) -> None:
    """More would promise what nobody knows."""
    assert in_words(seconds) == told

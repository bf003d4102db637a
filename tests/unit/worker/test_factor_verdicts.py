"""What was learned is believed as far as its weakest field lets it be."""

import json
from typing import Any

import pytest

from governor.planning.learner import Learner, LearnerSettings, Level
from worker.factor_verdicts import (
    Judgement,
    KeptFactors,
    UnreadableFactorsError,
    Verdict,
    judge,
    read_kept,
    restore,
)

HARDWARE = {"cpu_model": "A", "cpu_cores": "8", "gpu": "none"}
PROFILES = {"match": "1111", "track": "2222"}
KEPT = KeptFactors(
    sequence=7,
    device=(900_000, 60),
    residuals={"match": (1_200_000, 50), "track": (800_000, 10)},
    targets_permille={"match": 10, "track": 10},
    fingerprint=HARDWARE,
    identities=PROFILES,
)


def test_what_is_kept_is_read_again() -> None:
    """Whole numbers, as text."""
    assert read_kept(KEPT.to_fields()) == KEPT


def test_all_equal_is_restored_counts_too() -> None:
    """Nothing starts over."""
    judgement = judge(KEPT, HARDWARE, PROFILES)
    learner = Learner()
    restore(learner, KEPT, judgement)

    assert judgement == Judgement(verdict=Verdict.RESTORED)
    assert learner.device == Level(value=900_000, count=60)
    assert learner.residuals["match"] == Level(value=1_200_000, count=50)


@pytest.mark.parametrize("field", HARDWARE)
def test_any_other_field_of_the_hardware_contradicts(field: str) -> None:
    """Start values, each kind unverified."""
    judgement = judge(KEPT, {**HARDWARE, field: "another"}, PROFILES)
    learner = Learner()
    restore(learner, KEPT, judgement)

    assert judgement.verdict is Verdict.CONTRADICTED
    assert f"{field} was {HARDWARE[field]} and is another" in judgement.reason
    assert judgement.distrusted == set(PROFILES)
    assert (learner.device.value, learner.residuals) == (1_100_000, {})


@pytest.mark.parametrize("field", HARDWARE)
@pytest.mark.parametrize("side", ["then", "now"])
def test_a_field_that_one_side_lacks_leaves_it_unverified(field: str, side: str) -> None:
    """The node's factor stays, each kind starts over."""
    less = {name: value for name, value in HARDWARE.items() if name != field}
    then, now = (less, HARDWARE) if side == "then" else (HARDWARE, less)
    kept = KeptFactors(**{**_fields(KEPT), "fingerprint": then})
    judgement = judge(kept, now, PROFILES)
    learner = Learner()
    restore(learner, kept, judgement)

    assert judgement.verdict is Verdict.UNVERIFIED
    assert judgement.distrusted == set(PROFILES)
    assert field in judgement.reason
    assert (learner.device, learner.residuals) == (Level(value=900_000, count=60), {})


def test_both_empty_is_not_equal() -> None:
    """Nobody knows what either machine was."""
    kept = KeptFactors(**{**_fields(KEPT), "fingerprint": {}})

    assert judge(kept, {}, PROFILES).verdict is Verdict.UNVERIFIED


def test_a_contradiction_is_weaker_than_a_missing_field() -> None:
    """The weakest wins."""
    assert judge(KEPT, {"cpu_model": "B"}, PROFILES).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("identities", "distrusted"),
    [
        ({**PROFILES, "match": "3333"}, {"match"}),
        ({**PROFILES, "new": "4444"}, set()),
        ({"match": "1111"}, set()),
    ],
)
def test_one_changed_profile_costs_one_kind(identities: dict[str, str], distrusted: set[str]) -> None:
    """One that is new has learned nothing, one that is gone needs nothing."""
    judgement = judge(KEPT, HARDWARE, identities)

    assert judgement.verdict is Verdict.RESTORED
    assert judgement.distrusted == distrusted


def test_a_kind_whose_identity_was_not_kept_starts_over() -> None:
    """Missing is not equal."""
    kept = KeptFactors(**{**_fields(KEPT), "identities": {"match": "1111"}})

    assert judge(kept, HARDWARE, PROFILES).distrusted == {"track"}


def test_values_are_brought_within_the_limits_of_today() -> None:
    """Those of then may have been others."""
    kept = KeptFactors(**{**_fields(KEPT), "device": (20_000_000, 5), "residuals": {"match": (1, 5)}})
    learner = Learner(settings=LearnerSettings(max_factor_percent=400))
    restore(learner, kept, judge(kept, HARDWARE, PROFILES))

    assert learner.device == Level(value=4_000_000, count=5)
    assert learner.residuals["match"] == Level(value=250_000, count=5)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("schema", "2"),
        ("schema", "x"),
        ("device_ppm", "1.5"),
        ("device_ppm", "0"),
        ("device_ppm", str(10**12)),
        ("device_count", "-1"),
        ("sequence", ""),
        ("kinds", "{"),
        ("kinds", "[]"),
        ("kinds", '{"match": [1]}'),
        ("kinds", '{"match": [1.5, 1, 10]}'),
        ("kinds", '{"match": [true, 1, 10]}'),
        ("fingerprint", "[]"),
        ("identities", '{"match": 1}'),
    ],
)
def test_what_is_corrupt_or_of_a_later_version_is_ignored(field: str, text: str) -> None:
    """With a sentence that says which."""
    with pytest.raises(UnreadableFactorsError, match=r"corrupt|of schema 2, this version knows 1"):
        read_kept({**KEPT.to_fields(), field: text})


@pytest.mark.parametrize("field", KEPT.to_fields())
def test_a_field_that_is_gone_is_corruption(field: str) -> None:
    """Half a state is none."""
    with pytest.raises(UnreadableFactorsError, match="corrupt"):
        read_kept({name: text for name, text in KEPT.to_fields().items() if name != field})


def test_factors_are_kept_as_whole_numbers() -> None:
    """A float would come back as another."""
    told = KEPT.to_fields()

    assert json.loads(told["kinds"]) == {"match": [1_200_000, 50, 10], "track": [800_000, 10, 10]}
    assert (told["device_ppm"], told["device_count"]) == ("900000", "60")


def _fields(kept: KeptFactors) -> dict[str, Any]:
    return {name: getattr(kept, name) for name in KeptFactors.__slots__}

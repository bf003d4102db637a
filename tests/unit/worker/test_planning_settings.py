"""What makes no sense of a node's planning is refused at the start, with the path of its key."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.worker.test_cli import invoke
from worker.planning_settings import MarginLearning, PlanningFileError, PlanningSettings, read_planning_file
from worker.settings import Settings, WrongSettingError


def planning(**told: Any) -> PlanningSettings | None:
    """Return a node's planning as its settings have it."""
    return Settings.checked(planning=told).planning


def learning(**told: Any) -> PlanningSettings | None:
    """Return it with such a ``[planning.margin_learning]``."""
    return planning(margin_learning=told)


def test_nothing_is_planned_unless_it_is_asked_for() -> None:
    """Absent is off."""
    assert Settings.checked().planning is None


def test_an_empty_table_turns_learning_on_with_its_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a variable, which is JSON."""
    monkeypatch.setenv("TIEPOINT_PLANNING", '{"margin_learning": {}}')
    told = Settings.checked().planning

    assert told == PlanningSettings(margin_percent=110, margin_learning=MarginLearning())
    assert told.margin_learning == MarginLearning(
        min_factor_percent=50, max_factor_percent=1000, min_observations=48
    )


@pytest.mark.parametrize(
    ("field", "below", "least", "most", "above"),
    [
        ("min_factor_percent", 9, 10, 100, 101),
        ("max_factor_percent", 109, 110, 10_000, 10_001),
        ("min_observations", 0, 1, 100_000, 100_001),
    ],
)
def test_a_bound_of_learning_has_its_range(field: str, below: int, least: int, most: int, above: int) -> None:
    """Just within, and just beyond; the largest factor is at least the margin that it begins with."""
    for value in (below, above):
        with pytest.raises(WrongSettingError, match=rf"planning\.margin_learning\.{field}: {value}\b"):
            learning(**{field: value})
    for value in (least, most):
        told = learning(**{field: value})
        assert told is not None
        assert getattr(told.margin_learning, field) == value


@pytest.mark.parametrize(("percent", "is_right"), [(99, False), (100, True), (300, True), (301, False)])
def test_the_margin_has_its_range(percent: int, is_right: bool) -> None:  # noqa: FBT001 - a parameter
    """Below 100 % a plan would be meant to be overrun."""
    if is_right:
        assert planning(margin_percent=percent) is not None
    else:
        with pytest.raises(WrongSettingError, match=rf"planning\.margin_percent: {percent}"):
            planning(margin_percent=percent)


def test_the_largest_factor_is_not_below_the_margin() -> None:
    """The factor starts there."""
    with pytest.raises(
        WrongSettingError, match=r"planning\.margin_learning\.max_factor_percent: 149 is below"
    ):
        planning(margin_percent=150, margin_learning={"max_factor_percent": 149})
    assert planning(margin_percent=150, margin_learning={"max_factor_percent": 150}) is not None


def test_two_controllers_of_one_plan_are_refused() -> None:
    """A shadow only compares."""
    with pytest.raises(
        WrongSettingError, match=r"planning\.prediction: active beside planning\.margin_learning"
    ):
        planning(prediction="active", margin_learning={})
    assert planning(prediction="shadow", margin_learning={}) is not None
    assert planning(prediction="active") is not None


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ({"margins": 1}, r"planning\.margins"),
        ({"margin_learning": {"speed": 1}}, r"planning\.margin_learning\.speed"),
        ({"margin_percent": 110.5}, r"planning\.margin_percent"),
        ({"prediction": "off"}, r"planning\.prediction"),
    ],
)
def test_what_is_unknown_is_an_error(told: dict[str, Any], path: str) -> None:
    """A misspelt key would change nothing, and nobody would notice."""
    with pytest.raises(WrongSettingError, match=path):
        planning(**told)


def test_the_settings_of_planning_reach_a_child() -> None:
    """They travel as JSON."""
    settings = Settings.checked(planning={"margin_percent": 120, "margin_learning": {"min_observations": 5}})
    environment = settings.to_environment()
    again = PlanningSettings.model_validate_json(environment["TIEPOINT_PLANNING"])

    assert again == settings.planning


def test_a_file_says_it_as_toml_with_paths_from_its_own_folder(tmp_path: Path) -> None:
    """Whoever moves the folder moves both."""
    path = tmp_path / "planning.toml"
    path.write_text('[planning]\nprofiles = "mine.json"\n[planning.margin_learning]\n')

    assert read_planning_file(path) == {"profiles": str(tmp_path / "mine.json"), "margin_learning": {}}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("planning = 1", r"there is no table \[planning\]"),
        ("", r"there is no table \[planning\]"),
        ("[planning]\n[worker]\n", "worker is not known here"),
        ("[planning", "is not TOML"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, cause: str) -> None:
    """With its name."""
    path = tmp_path / "planning.toml"
    path.write_text(text)

    with pytest.raises(PlanningFileError, match=rf"planning\.toml.*{cause}"):
        read_planning_file(path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "[planning.margin_learning]\nmin_factor_percent = 9\n",
            "planning.margin_learning.min_factor_percent: 9",
        ),
        ('[planning]\nprofiles = "none.json"\n', "none.json cannot be read"),
    ],
)
def test_a_worker_is_refused_before_it_starts(tmp_path: Path, text: str, cause: str) -> None:
    """In one sentence, exit code 2."""
    (tmp_path / "planning.toml").write_text(text)
    result = invoke("worker", "--store", tmp_path, "--planning", tmp_path / "planning.toml")

    assert result.exit_code == 2
    assert cause in result.stderr

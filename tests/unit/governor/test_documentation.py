"""Tests that docs/governor.md still says what the code does."""

import re
from pathlib import Path

import pytest

import governor
from governor.model import DecisionReason
from tests.unit.governor.test_admission import STEPS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "governor.md").read_text(encoding="utf-8")


def test_the_page_lists_the_steps_in_the_order_of_the_code() -> None:
    """The table of the page is the table that the order test runs through."""
    rows = re.findall(r"^\| \d+ \|.*\| (?:WAIT|REJECT) (\w+)", PAGE, re.MULTILINE)

    assert rows == [reason.value for reason, _ in STEPS]


@pytest.mark.parametrize("reason", list(DecisionReason))
def test_the_page_names_every_reason(reason: DecisionReason) -> None:
    """Nobody meets a reason that the page does not know."""
    assert reason.value in PAGE


def test_the_page_lists_every_file() -> None:
    """A new module needs its line, a deleted one loses it."""
    folder = Path(governor.__file__).parent
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py", "errors.py"}

    assert modules == set(re.findall(r"`(\w+\.py)`", PAGE))

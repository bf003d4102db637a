"""docs/troubleshooting.md quotes what the code says, and explains every reason an item can fail for."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tasks.errors import Reason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
PACKAGES = ("governor", "tasks", "worker")


def first_cells(heading: str) -> list[str]:
    """Return what stands in backticks in the first column of the tables whose first heading this is."""
    tables = re.findall(rf"^\| {heading} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    cells = [row.split("|")[1] for table in tables for row in table.splitlines()]
    return [quoted for cell in cells for quoted in re.findall(r"`([^`]+)`", cell)]


@cache
def said() -> str:
    """Return every string constant of the product."""
    trees = [
        ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    ]
    constants = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return "\n".join(node.value for node in constants if isinstance(node.value, str))


@pytest.mark.parametrize("sentence", first_cells("it says"))
def test_what_the_page_quotes_is_said(sentence: str) -> None:
    """Part by part: names and numbers stand between them."""
    parts = [part for part in sentence.split("...") if part]

    assert [part for part in parts if part not in said()] == []


def test_every_reason_is_explained() -> None:
    """Once, and nothing else is."""
    assert sorted(first_cells("code")) == sorted(Reason)

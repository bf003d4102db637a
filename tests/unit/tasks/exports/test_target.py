"""Tests of where an export may be written."""

from pathlib import Path

import pytest

from tasks.errors import ProjectError
from tasks.exports.target import fresh_folder


def write_into(target: Path) -> None:
    """Export one file."""
    with fresh_folder(target) as folder:
        (folder / "file").write_text("whole")


@pytest.mark.parametrize("exists", [False, True])
def test_a_new_or_empty_folder_is_filled(tmp_path: Path, *, exists: bool) -> None:
    """Parents are made; nothing else is left behind."""
    target = tmp_path / "parent" / "export"
    if exists:
        target.mkdir(parents=True)

    write_into(target)

    assert (target / "file").read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_with_content_is_refused(tmp_path: Path) -> None:
    """One file of the user is enough; it stays as it is."""
    (tmp_path / "mine").write_text("mine")

    with pytest.raises(ProjectError, match="is not empty"):
        write_into(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_file_is_refused(tmp_path: Path) -> None:
    """A path that is a file cannot become a folder."""
    (tmp_path / "file").write_text("mine")

    with pytest.raises(ProjectError, match="is a file"):
        write_into(tmp_path / "file")


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    """What was written before the failure is taken away again."""

    def write_half() -> None:
        with fresh_folder(tmp_path / "export") as folder:
            (folder / "half").write_text("half")
            raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        write_half()

    assert list(tmp_path.iterdir()) == []

"""A folder that is not ours is left alone, and one that is goes on, whatever has become of it."""

import shutil
from pathlib import Path

import pytest

from tasks.errors import ProjectError
from tasks.parameters import ProjectParameters
from worker.local_project import new_project


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a folder with what looks like a photo."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").write_bytes(b"\xff\xd8\xff")
    return folder


def test_a_damaged_project_is_begun_anew_once_it_is_deleted(tmp_path: Path, photos: Path) -> None:
    """As the error says that names the damaged file: what was made of the photos is kept."""
    folder = tmp_path / "results"
    with new_project(folder, photos, ProjectParameters(), link=False) as local:
        local.store.identity()
        (local.project.path / "project.json").write_bytes(b"")
    with (
        pytest.raises(
            ProjectError, match=r"is damaged .* delete the folder .*/main and give the same photos"
        ),
        new_project(folder, photos, ProjectParameters(), link=False),
    ):
        pass
    shutil.rmtree(folder / "projects" / "main")

    with new_project(folder, photos, ProjectParameters(), link=False) as again:
        assert again.is_new


def test_a_folder_with_other_files_is_left_alone(photos: Path) -> None:
    """Results are never mixed with them."""
    with (
        pytest.raises(ProjectError, match="is not empty and holds no project"),
        new_project(photos, photos, ProjectParameters(), link=False),
    ):
        pass
    assert [path.name for path in photos.iterdir()] == ["a.jpg"]

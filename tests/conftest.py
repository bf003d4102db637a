"""Holds the fixtures that every ring of tests may use."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LOCK_FOLDER = "TIEPOINT_LOCK_FOLDER"
PhotoSet = Callable[[str], Path]


def photos_root() -> Path:
    """Return where the real photo sets are: ``TIEPOINT_PHOTOS``, else beside the checkout."""
    named = os.environ.get("TIEPOINT_PHOTOS")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "photos"


@pytest.fixture(scope="session", autouse=True)
def _own_lock_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the workers of tests neither meet those of the machine's user nor those of other test runs."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(LOCK_FOLDER, str(tmp_path_factory.mktemp("machine")))
        yield


@pytest.fixture(scope="session")
def photos() -> PhotoSet:
    """Return a function from a set's name to its folder of images; it skips where the set is absent."""

    def folder_of(name: str) -> Path:
        folder = photos_root() / name / "images"
        if not folder.is_dir():
            pytest.skip(f"the photo set {folder} is not there; TIEPOINT_PHOTOS names another folder")
        return folder

    return folder_of

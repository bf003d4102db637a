"""Which project a name means where a folder bears it, too."""

from pathlib import Path

import pytest

from tasks.parameters import ProjectParameters
from tasks.store import Store
from worker.cluster_options import store_of_cluster


@pytest.fixture(autouse=True)
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder beside the environment's store, which has a project "flight"."""
    root = tmp_path / "store"
    make_project(root, "flight")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TIEPOINT_STORE", str(root))
    return root


def make_project(root: Path, name: str) -> None:
    """Make a project without photos."""
    root.mkdir(parents=True)
    Store(root).project(name).create(ProjectParameters(), [])


@pytest.mark.parametrize("name", ["flight", "no_such_project"])
def test_a_plain_name_is_a_project_of_the_cluster(shared: Path, name: str) -> None:
    """Whether there is one is asked later on."""
    assert store_of_cluster(name, None) == shared


def test_a_folder_of_photos_means_the_project_submitted_under_its_name(shared: Path) -> None:
    """`tiepoint submit flight`, then `tiepoint status flight` in the same place."""
    Path("flight").mkdir()

    assert store_of_cluster("flight", None) == shared


@pytest.mark.parametrize("name", ["flight", "./flight"])
def test_a_folder_that_holds_a_project_means_that(name: str) -> None:
    """Made by `tiepoint run`; the cluster's of the same name needs --store."""
    make_project(Path("flight"), "main")

    assert store_of_cluster(name, None) is None


@pytest.mark.parametrize("name", ["other", "My Photos"])
def test_a_folder_that_the_cluster_knows_nothing_of_is_a_folder(name: str) -> None:
    """Its own error says that it holds no project."""
    Path(name).mkdir()

    assert store_of_cluster(name, None) is None

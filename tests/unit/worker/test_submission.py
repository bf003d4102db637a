"""A submission names its photos and its project, and is refused in a sentence where it could not work."""

from dataclasses import replace
from pathlib import Path

import pytest

from tasks.errors import ProjectError
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.store import Project, Source, Store
from worker.live_nodes import LiveNode
from worker.submission import Wanted, check_nodes, make_project, name_for, photos_of

JPEG_START = b"\xff\xd8\xff"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store that holds nothing."""
    store = Store(tmp_path / "store")
    store.create()
    return store


def photos_in(folder: Path, *names: str) -> Path:
    """Make a folder of files that look like photos."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG_START)
    return folder


def wanted(*names: str, extractor: str = "orb", link: bool = False) -> Wanted:
    """Return what is to become a project of photos of these names."""
    sources = tuple(Source(name=name, path=f"/photos/{name}") for name in names)
    parameters = ProjectParameters(features=FeatureParameters.model_validate({"extractor": extractor}))
    return Wanted(sources=sources, parameters=parameters, link=link)


def made(store: Store, wish: Wanted, name: str | None = None) -> Project:
    """Make a project that would be called castle."""
    return make_project(store, wish, name=name, default_name="castle")


def a_node(store: Store, *roots: str, name: str = "nimble") -> LiveNode:
    """Return a node that works on a store."""
    return LiveNode(name=name, store=str(store.root), store_id=store.identity(), import_roots=roots)


# -- Photos ------------------------------------------------------------------------------


def test_photos_of_a_folder_are_named_below_it(tmp_path: Path, store: Store) -> None:
    """Their paths are absolute: nodes must see them there."""
    folder = photos_in(tmp_path / "photos", "b.jpg", "deep/a.jpg")
    sources = photos_of(folder, store)

    assert [source.name for source in sources] == ["b.jpg", "deep/a.jpg"]
    assert sources[0].path == str(folder.resolve() / "b.jpg")


def test_photos_in_the_store_are_named_relative_to_it(store: Store) -> None:
    """Each node has mounted the store where it likes."""
    folder = photos_in(store.root / "photos", "a.jpg")

    assert photos_of(folder, store) == (Source(name="a.jpg", path="photos/a.jpg"),)
    assert store.resolve_source("photos/a.jpg") == (folder / "a.jpg").resolve()


def test_a_list_of_photos_is_named_below_its_common_folder(tmp_path: Path, store: Store) -> None:
    """Only those listed."""
    folder = photos_in(tmp_path / "photos", "x/a.jpg", "y/b.jpg", "y/c.jpg")
    sources = photos_of([folder / "y" / "b.jpg", folder / "x" / "a.jpg"], store)

    assert [source.name for source in sources] == ["x/a.jpg", "y/b.jpg"]


@pytest.mark.parametrize(
    ("names", "words"), [([], "no photo in the list"), (["gone.jpg"], "gone.jpg is not a file")]
)
def test_a_list_without_photos_is_refused(tmp_path: Path, store: Store, names: list[str], words: str) -> None:
    """The sentence names the one that is missing."""
    with pytest.raises(ProjectError, match=words):
        photos_of([tmp_path / name for name in names], store)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("castle", "castle"),
        ("My Castle (2)", "my-castle-2-"),
        ("Übung", "ubung"),
        ("U\u0308bung", "ubung"),
        ("Große Höhle", "grosse-hohle"),
        ("日本", "project"),
        ("___", "project"),
        ("x" * 80, "x" * 59),
    ],
)
def test_a_project_is_called_after_the_folder(tmp_path: Path, folder: str, name: str) -> None:
    """With what a project's name may hold, and room for a number."""
    assert name_for(tmp_path / folder) == name.rstrip("-")


# -- The project -------------------------------------------------------------------------


def test_the_same_photos_and_parameters_are_the_same_project(store: Store) -> None:
    """Submitting again continues it, with a name or without."""
    first = made(store, wanted("a.jpg"))

    assert [made(store, wanted("a.jpg")).id, made(store, wanted("a.jpg"), "castle").id] == [first.id] * 2
    assert store.project_ids() == ["castle"]


@pytest.mark.parametrize(
    "other", [wanted("b.jpg"), wanted("a.jpg", extractor="sift"), wanted("a.jpg", link=True)]
)
def test_another_project_gets_a_name_of_its_own(store: Store, other: Wanted) -> None:
    """And finds it again."""
    made(store, wanted("a.jpg"))

    assert [made(store, other).id, made(store, other).id] == ["castle-2"] * 2


def test_a_name_that_belongs_to_another_project_is_refused(store: Store) -> None:
    """Whoever gives a name means that one."""
    made(store, wanted("a.jpg"))

    with pytest.raises(ProjectError, match="a project castle with other photos or parameters"):
        made(store, wanted("b.jpg"), "castle")


def test_a_client_that_was_killed_midway_continues(store: Store) -> None:
    """It had written the list of photos, and no more."""
    project = made(store, wanted("a.jpg"))
    (project.path / "project.json").unlink()

    assert made(store, wanted("a.jpg")).id == "castle"
    assert made(store, wanted("b.jpg")).id == "castle-2"


def test_two_clients_with_one_name_do_not_mix_their_photos(store: Store) -> None:
    """The other has written its list, and is about to write the rest."""
    project = made(store, wanted("a.jpg"))
    (project.path / "project.json").unlink()

    with pytest.raises(ProjectError, match="the name castle is taken by other photos"):
        made(store, wanted("b.jpg"), "castle")
    assert [source.name for source in made(store, wanted("a.jpg"), "castle").sources] == ["a.jpg"]


def test_an_invalid_name_is_refused(store: Store) -> None:
    """It becomes a folder."""
    with pytest.raises(ProjectError, match="is not a project name"):
        made(store, wanted("a.jpg"), "../castle")


# -- The nodes ---------------------------------------------------------------------------


def test_without_nodes_a_project_may_wait(store: Store) -> None:
    """The first worker can come later."""
    check_nodes([], store, wanted("a.jpg").sources, link=False)


def test_a_node_that_may_import_is_enough(store: Store) -> None:
    """The others are given what they can do."""
    nodes = [a_node(store), a_node(store, "/photos", name="other")]

    check_nodes(nodes, store, wanted("a.jpg").sources, link=False)


def test_photos_that_no_node_may_read_are_refused_with_the_cure(store: Store) -> None:
    """Folder, nodes, and both ways out."""
    with pytest.raises(ProjectError) as refused:
        check_nodes([a_node(store, "/nas")], store, wanted("a.jpg", "b.jpg").sources, link=False)

    sentence = str(refused.value)
    assert sentence.startswith(
        "no live node may import from /photos (alive: nimble): start a worker with --import-root /photos"
    )
    assert f"put the photos under the store ({store.root})" in sentence


def test_photos_that_lie_far_apart_are_refused_folder_by_folder(store: Store) -> None:
    """Nobody should be told to open the root of all files; links in a folder lead anywhere."""
    sources = [Source(name=path[1:], path=path) for path in ("/a/x/1.jpg", "/a/x/2.jpg", "/b c/3.jpg")]
    with pytest.raises(ProjectError) as refused:
        check_nodes([a_node(store)], store, sources, link=False)

    assert "may import from /a/x, /b c (alive: nimble)" in str(refused.value)
    assert "with --import-root /a/x --import-root '/b c', or" in str(refused.value)


def test_a_refusal_names_three_folders_at_most(store: Store) -> None:
    """And how many more there are."""
    sources = [Source(name=f"{root}.jpg", path=f"/{root}/1.jpg") for root in "abcde"]
    with pytest.raises(ProjectError, match="may import from /a, /b, /c and 2 other folders "):
        check_nodes([a_node(store)], store, sources, link=False)


def test_photos_in_the_store_need_no_import_root(store: Store) -> None:
    """Every node sees the store."""
    check_nodes([a_node(store)], store, [Source(name="a.jpg", path="photos/a.jpg")], link=False)


@pytest.mark.parametrize("store_id", ["other", ""])
def test_a_node_on_another_store_is_refused_by_name(store: Store, store_id: str) -> None:
    """It would take the project's jobs and fail them."""
    stranger = replace(a_node(store, "/photos"), name="far", store="/scratch", store_id=store_id)

    with pytest.raises(ProjectError, match=r"another store than .*: far \(/scratch\)"):
        check_nodes([a_node(store, "/photos"), stranger], store, wanted("a.jpg").sources, link=False)


def test_linked_photos_must_be_seen_by_every_node(store: Store) -> None:
    """Each reads them where they are, when it extracts their features."""
    nodes = [a_node(store, "/photos"), a_node(store, name="blind")]

    with pytest.raises(ProjectError, match="blind may not read them"):
        check_nodes(nodes, store, wanted("a.jpg").sources, link=True)
    check_nodes(nodes[:1], store, wanted("a.jpg").sources, link=True)

"""Tests of a project's files."""

from pathlib import Path

import pytest

from tasks.errors import Failure, ProjectError, Reason, StoreError
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.store import Project, ProjectImage, Source, Store

SOURCES = [Source(name="b/ü 2.jpg", path="/photos/b/ü 2.jpg"), Source(name="a.jpg", path="/photos/a.jpg")]
PARAMETERS = ProjectParameters(features=FeatureParameters(extractor="orb"))


def project_at(folder: Path) -> Project:
    """Return the project "survey" of a store below a folder."""
    return Store(folder / "store").project("survey")


def failure(name: str) -> Failure:
    """Return some failure of an item."""
    return Failure(name=name, reason=Reason.TRUNCATED, cause="It is cut off.", cure="Copy it again.")


def test_a_created_project_tells_what_it_was_created_with(tmp_path: Path) -> None:
    """Parameters, sources (sorted) and the link setting survive."""
    project_at(tmp_path).create(PARAMETERS, SOURCES, link=True)
    project = project_at(tmp_path)

    assert project.exists()
    assert project.parameters == PARAMETERS
    assert project.sources == tuple(sorted(SOURCES))
    assert project.link


def test_creating_the_same_project_again_is_fine(tmp_path: Path) -> None:
    """The order in which photos were listed does not matter."""
    project_at(tmp_path).create(PARAMETERS, SOURCES)
    project_at(tmp_path).create(PARAMETERS, SOURCES[::-1])

    assert project_at(tmp_path).sources == tuple(sorted(SOURCES))


@pytest.mark.parametrize(
    ("parameters", "sources", "link", "words"),
    [
        (ProjectParameters(), SOURCES, False, "other parameters"),
        (PARAMETERS, SOURCES[:1], False, "other photos"),
        (PARAMETERS, SOURCES, True, "other --link setting"),
    ],
)
def test_creating_another_project_under_the_name_is_refused(
    tmp_path: Path, parameters: ProjectParameters, sources: list[Source], *, link: bool, words: str
) -> None:
    """What differs is named, and nothing changes."""
    project_at(tmp_path).create(PARAMETERS, SOURCES)
    with pytest.raises(ProjectError, match=words):
        project_at(tmp_path).create(parameters, sources, link=link)

    assert project_at(tmp_path).sources == tuple(sorted(SOURCES))


def test_two_photos_of_one_name_are_refused(tmp_path: Path) -> None:
    """A name is an image's identity in every export."""
    twice = [Source(name="a.jpg", path="/1/a.jpg"), Source(name="a.jpg", path="/2/a.jpg")]
    with pytest.raises(ProjectError, match=r"two photos have the name 'a\.jpg'"):
        project_at(tmp_path).create(PARAMETERS, twice)


@pytest.mark.parametrize("name", ["", "/a.jpg", "../a.jpg", "a/../../b.jpg", "a\0.jpg"])
def test_a_source_name_that_leaves_its_folder_is_refused(name: str) -> None:
    """Names become paths in exports."""
    with pytest.raises(ProjectError, match="not a relative path"):
        Source(name=name, path="/photos/a.jpg")


def test_a_logical_image_is_new_once(tmp_path: Path) -> None:
    """Neither a repeated job nor a second name for the same photo counts again."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    answers = [project.register(name, "a" * 64) for name in ("b.jpg", "b.jpg", "a.jpg")]

    assert answers == [True, False, False]


def test_images_do_not_depend_on_the_order_of_registration(tmp_path: Path) -> None:
    """Each content stands once, under its smallest name, sorted by name."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    for name, content in (("z.jpg", "1" * 64), ("c.jpg", "2" * 64), ("a.jpg", "1" * 64)):
        project.register(name, content)

    assert project.images() == (
        ProjectImage(name="a.jpg", content="1" * 64),
        ProjectImage(name="c.jpg", content="2" * 64),
    )


def test_failures_are_kept_sorted_and_once_per_item(tmp_path: Path) -> None:
    """A later failure of an item replaces the earlier one."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    for stage, item in (("match", "a/b"), ("import", "z"), ("import", "a"), ("import", "a")):
        project.record_failure(stage, item, failure(item))

    assert [entry[:2] for entry in project.failures()] == [("import", "a"), ("import", "z"), ("match", "a/b")]
    assert project.failures()[0][2] == failure("a")
    assert project.failed_items("import") == {"a", "z"}


def test_cleared_failures_are_gone(tmp_path: Path) -> None:
    """`retry` starts from no failures."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    project.record_failure("import", "a", failure("a"))
    project.clear_failures()

    assert project.failures() == []


def test_the_last_result_counts(tmp_path: Path) -> None:
    """A result is replaced as a whole; before the first there is none."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    before = project.read_result()
    project.write_result({"tracks": 1})
    project.write_result({"tracks": 2})

    assert (before, project.read_result()) == (None, {"tracks": 2})


def test_a_store_lists_its_projects(tmp_path: Path) -> None:
    """Only created projects are listed, by name."""
    store = Store(tmp_path / "store")
    store.create()
    before = store.project_ids()
    for name in ("b", "a"):
        store.project(name).create(PARAMETERS, SOURCES)
    store.project("c").record_failure("import", "x", failure("x"))

    assert (before, store.project_ids()) == ([], ["a", "b"])


def test_a_store_that_is_gone_is_not_one_without_projects(tmp_path: Path) -> None:
    """Whoever asks for a project must not hear that there is none."""
    with pytest.raises(StoreError, match="is gone"):
        Store(tmp_path / "store").project_ids()


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "x" * 65])
def test_a_name_that_is_no_safe_folder_is_refused(tmp_path: Path, name: str) -> None:
    """Project names come from messages."""
    with pytest.raises(ProjectError, match="not a project name"):
        Store(tmp_path).project(name)


def test_the_longest_name_is_accepted(tmp_path: Path) -> None:
    """64 characters are the limit."""
    assert Store(tmp_path).project("x" * 64).id == "x" * 64


def test_a_project_of_a_missing_store_cannot_be_written(tmp_path: Path) -> None:
    """Registering does not create a store by the way."""
    with pytest.raises(StoreError, match="is gone"):
        project_at(tmp_path).register("a.jpg", "a" * 64)


DAMAGED = ["", "{", "null", "[]", '{"name": "a.jpg"}', '{"name": "a.jpg", "content": "x"}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_registration_counts_as_absent_and_is_replaced(tmp_path: Path, text: str) -> None:
    """It can be made again; a whole one is never replaced."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    project.register("a.jpg", "a" * 64)
    next(project.path.glob("registrations/*")).write_text(text)
    before = project.registrations(), project.registered_content("a.jpg")
    project.register("a.jpg", "b" * 64)
    project.register("a.jpg", "c" * 64)

    assert before == ({}, None)
    assert project.registrations() == {"a.jpg": "b" * 64}
    assert project.registered_content("a.jpg") == "b" * 64


@pytest.mark.parametrize("text", [*DAMAGED, '{"stage": "import", "item": "a", "failure": {}}'])
def test_a_damaged_failure_counts_as_absent(tmp_path: Path, text: str) -> None:
    """The item is tried again."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    project.record_failure("import", "a.jpg", failure("a.jpg"))
    next(project.path.glob("failures/*")).write_text(text)

    assert project.failures() == []


@pytest.mark.parametrize("index", [None, "", "{", "[]", '{"x": 1}'])
def test_registrations_are_the_same_with_and_without_their_index(tmp_path: Path, index: str | None) -> None:
    """It saves readings; a name that came later, or is gone, is told as it is."""
    project = project_at(tmp_path)
    project.create(PARAMETERS, SOURCES)
    for name in ("a.jpg", "b.jpg"):
        project.register(name, "a" * 64)
    project.index_registrations()
    project.register("c.jpg", "c" * 64)
    if index is not None:
        (project.path / "registrations.json").write_text(index)
    project.index_registrations() if index == "{" else None

    assert project.registrations() == {"a.jpg": "a" * 64, "b.jpg": "a" * 64, "c.jpg": "c" * 64}
    for path in project.path.glob("registrations/*"):
        path.unlink()
    assert project.registrations() == {}

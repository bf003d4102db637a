"""Whatever a power cut or a broken disk makes of a file of the store, it is not trusted, and made again."""

import hashlib
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tasks.errors import (
    CorruptArtefactError,
    Failure,
    MissingArtefactError,
    ProjectError,
    Reason,
    StoreError,
    TasksError,
)
from tasks.parameters import ProjectParameters
from tasks.store import PhotoRecord, Source, Store, artefact_key

KEY = artefact_key("noop", 1, {}, ())
MODEL_KEY = artefact_key("model", 1, {}, ())
ARRAYS = {"a": np.arange(1000)}
PHOTO = b"\xff\xd8" + bytes(range(256)) * 8
CONTENT = hashlib.sha256(PHOTO).hexdigest()
RECORD = PhotoRecord(width_px=10, height_px=10, focal_length_px=12.0, focal_is_prior=False)
FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="torn", cure="copy it again")
SOURCES = [Source(name="a.jpg", path="/photos/a.jpg")]


def cut_in_half(path: Path) -> None:
    """Keep the first half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    """Keep the name only: what some file systems make of a file that was not synced."""
    path.write_bytes(b"")


def zero_the_tail(path: Path) -> None:
    """Keep the length, but not the end: what others make of it."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2].ljust(len(whole), b"\0"))


def zero(path: Path) -> None:
    """Keep the length only."""
    path.write_bytes(bytes(path.stat().st_size))


def make_a_folder(path: Path) -> None:
    """Put a folder, with something in it, in a file's place."""
    path.unlink()
    path.mkdir()
    (path / "in the way").write_text("yes")


def make_a_loop(path: Path) -> None:
    """Put a link to itself in a file's place."""
    path.unlink()
    path.symlink_to(path)


Damage = Callable[[Path], None]
DAMAGES: tuple[Damage, ...] = (cut_in_half, empty, zero_the_tail, zero, make_a_folder, make_a_loop)


@dataclass(frozen=True)
class Made:
    """One thing in the store: how it is made (again), and read."""

    make: Callable[[Store], object]
    read: Callable[[Store], object]
    """Returns what was made, or raises, or returns None where there is none."""
    file: str
    """Which file of it is damaged: a pattern below the store's root."""
    discard: Callable[[Store], object] = lambda _store: None
    """What whoever reads it does about damage before it is made again."""


def read_model(store: Store) -> bytes | None:
    """Return what the published folder holds."""
    folder = store.folder(MODEL_KEY)
    return None if folder is None else (folder / "points.bin").read_bytes()


def read_photo(store: Store) -> bytes | None:
    """Return a photo's bytes, where they are its own."""
    if not store.has_photo(CONTENT) or not store.photo_is_intact(CONTENT):
        return None
    return store.photo_path(CONTENT).read_bytes()


def make_photo(store: Store) -> None:
    """Import a photo."""
    store.copy_photo(CONTENT, io.BytesIO(PHOTO))
    store.record_photo(CONTENT, RECORD)


def make_model(store: Store) -> None:
    """Publish a folder."""

    def fill(folder: Path) -> None:
        (folder / "points.bin").write_bytes(PHOTO)

    store.publish_folder(MODEL_KEY, fill)


def make_index(store: Store) -> None:
    """Write all registrations into one file."""
    store.project("p").register("a.jpg", CONTENT)
    store.project("p").index_registrations()


ARTEFACT = Made(
    make=lambda store: store.publish(KEY, ARRAYS, {}),
    read=lambda store: store.read(KEY).arrays["a"].tolist(),
    discard=lambda store: store.discard(KEY),
    file="artefacts/noop/*/*.safetensors",
)
THINGS = {
    "artefact": ARTEFACT,
    "checksum": Made(make=ARTEFACT.make, read=ARTEFACT.read, discard=ARTEFACT.discard, file="**/*.sha256"),
    "model": Made(
        make=make_model,
        read=read_model,
        discard=lambda store: store.discard(MODEL_KEY),
        file="artefacts/model/*/*/points.bin",
    ),
    "sums of a model": Made(
        make=make_model,
        read=read_model,
        discard=lambda store: store.discard(MODEL_KEY),
        file="artefacts/model/*/*/SHA256SUMS",
    ),
    "photo": Made(
        make=make_photo,
        read=read_photo,
        discard=lambda store: store.discard_photo(CONTENT),
        file=f"photos/*/{CONTENT}",
    ),
    "record of a photo": Made(
        make=make_photo,
        read=lambda store: store.photo_record(CONTENT),
        discard=lambda store: store.discard_photo_record(CONTENT),
        file=f"photos/*/{CONTENT}.json",
    ),
    "registration": Made(
        make=lambda store: store.project("p").register("a.jpg", CONTENT),
        read=lambda store: store.project("p").registered_content("a.jpg"),
        file="projects/p/registrations/*.json",
    ),
    "failure": Made(
        make=lambda store: store.project("p").record_failure("match", "a", FAILURE),
        read=lambda store: store.project("p").failures() or None,
        file="projects/p/failures/*.json",
    ),
    "result": Made(
        make=lambda store: store.project("p").write_result({"tracks": 7}),
        read=lambda store: store.project("p").read_result(),
        file="projects/p/result.json",
    ),
    "index of registrations": Made(
        make=make_index,
        read=lambda store: store.project("p").registrations(),
        file="projects/p/registrations.json",
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return a store with the project p."""
    store = Store(tmp_path / "store")
    store.create()
    store.project("p").create(ProjectParameters(), SOURCES)
    yield store
    shutil.rmtree(store.root)


def read_or_none(thing: Made, store: Store) -> object:
    """Return what is read; None where that says that there is nothing to trust."""
    try:
        return thing.read(store)
    except (CorruptArtefactError, MissingArtefactError):
        return None


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", THINGS)
def test_what_is_damaged_is_not_trusted_and_made_again(store: Store, name: str, damage: Damage) -> None:
    """Bit for bit what it was, whatever stands in its place."""
    thing = THINGS[name]
    thing.make(store)
    whole = thing.read(store)
    (file,) = store.root.glob(thing.file)
    damage(file)

    assert read_or_none(thing, store) in (None, whole)
    with suppress(TasksError):
        thing.discard(store)
    thing.make(store)
    assert thing.read(store) == whole


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["project.json", "sources.json"])
def test_what_only_its_user_knows_is_named_with_cause_and_cure(
    store: Store, file: str, damage: Damage
) -> None:
    """The photos' names and the parameters are nowhere else."""
    path = store.project("p").path / file
    damage(path)
    project = store.project("p")

    with pytest.raises((ProjectError, StoreError)) as told:
        raise AssertionError((project.parameters, project.sources))
    assert str(path) in str(told.value)
    assert f"delete the folder {project.path} and give the same photos again" in str(told.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_whose_identity_is_damaged_says_what_to_do(store: Store, damage: Damage) -> None:
    """It could be another store."""
    path = store.root / "store.json"
    store.identity()
    damage(path)

    with pytest.raises(StoreError, match="damaged; delete it while nothing runs") as told:
        store.identity()
    assert str(path) in str(told.value)

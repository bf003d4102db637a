"""Holds the one way to the files of a project store: photos, artefacts, projects.

A store is a folder that all nodes see. It alone is enough to resume.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from tasks.errors import Failure, ItemError, ProjectError, Reason, StoreError
from tasks.store import publication
from tasks.store.artefacts import Artefacts
from tasks.store.canonical import Json
from tasks.store.identity import SameStore, identity_of
from tasks.store.keys import ArtefactKey, is_name
from tasks.store.photos import PhotoRecord, Photos
from tasks.store.project import Project
from tasks.store.publication import TEMPORARY_PREFIX, plain_store_errors
from tasks.store.tensors import Artefact

TEMPORARY_MIN_AGE_SECONDS = 3600


class Store:
    """A project store below one folder; any process and thread may use it.

    Making one touches no file. ``import_roots`` are the folders that sources
    may be read from; what lies outside them and the store is refused.
    """

    def __init__(self, root: Path, import_roots: Sequence[Path] = ()) -> None:
        self.root = root
        self.import_roots = tuple(import_roots)
        self._same = SameStore(root)
        self._photos = Photos(root, self._same.check)
        self._artefacts = Artefacts(root, self._same.check)
        self._keeps_damage = False

    def keeping_damage(self) -> "Store":
        """Return the same store for somebody who only looks: what is damaged is not discarded."""
        store = Store(self.root, self.import_roots)
        store.expect(self._same.expected_id)
        store._keeps_damage = True
        return store

    def create(self) -> None:
        """Create the store's folder. Only here: a missing one elsewhere is an error."""
        with plain_store_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)

    def identity(self) -> str:
        """Return what this store calls itself on every machine that sees it.

        Raises:
            StoreError: its folder is not there or cannot be written.
        """
        return identity_of(self.root)

    def expect(self, store_id: str) -> None:
        """Be the store that calls itself so from now on ("" = any): nothing is made in another's folder."""
        self._same.expected_id = store_id

    def check(self) -> None:
        """Check that the folder still is the expected store; costs one stat.

        Raises:
            StoreError: it is gone, was replaced by an empty folder, or is another store.
        """
        self._same.check()

    def project(self, project_id: str) -> Project:
        """Return a project, which need not exist yet.

        Raises:
            ProjectError: not a valid project name.
        """
        if not is_name(project_id):
            raise ProjectError(
                f"{project_id!r} is not a project name: 1 to 64 of a-z, 0-9, '.', '_', '-', "
                "the first a letter or digit"
            )
        return Project(self.root, project_id, self._same.check)

    def project_ids(self) -> list[str]:
        """Return the names of the projects that exist, sorted."""
        folder = self.root / "projects"
        with plain_store_errors(self.root):
            if not self.root.is_dir():
                raise StoreError(f"the project store {self.root} is gone")
            if not folder.is_dir():
                return []
            names = [path.name for path in folder.iterdir() if not path.name.startswith(TEMPORARY_PREFIX)]
        return sorted(name for name in names if is_name(name) and self.project(name).exists())

    def resolve_source(self, path: str) -> Path:
        """Return a source's real path, symbolic links followed; a relative one lies below the store.

        Raises:
            ItemError: it lies outside the import roots and the store.
        """
        resolved = (self.root / path).resolve()
        roots = (*self.import_roots, self.root)
        if not any(resolved.is_relative_to(root.resolve()) for root in roots):
            raise ItemError(
                Failure(
                    name=Path(path).name,
                    reason=Reason.OUTSIDE_IMPORT_ROOTS,
                    cause=f"{path} lies outside the folders this node may read photos from.",
                    cure="Name its folder with --import-root when starting the worker.",
                )
            )
        return resolved

    def has_photo(self, content: str) -> bool:
        """Tell whether a photo and its record are there."""
        return self._photos.has(content)

    def has_photo_record(self, content: str) -> bool:
        """Tell whether a photo's record is there; its bytes may be lost."""
        return self._photos.has_record(content)

    def copy_photo(self, content: str, source: BinaryIO) -> bool:
        """Copy the rest of ``source`` as a photo; False when its bytes do not hash to ``content``."""
        return self._photos.copy(content, source)

    def link_photo(self, content: str, source: Path) -> None:
        """Let a photo be the user's own file, which stays where it is."""
        self._photos.link(content, source)

    def record_photo(self, content: str, record: PhotoRecord) -> None:
        """Publish the record of a photo that was copied or linked; from now on it is there."""
        self._photos.record(content, record)

    def photo_path(self, content: str) -> Path:
        """Return the file with a photo's bytes.

        Raises:
            MissingArtefactError: no such photo.
            ItemError: a linked file is gone or no longer the same.
        """
        return self._photos.path(content)

    def photo_record(self, content: str) -> PhotoRecord:
        """Return what a photo's header says.

        Raises:
            MissingArtefactError: no such photo.
            CorruptArtefactError: the record is damaged: :meth:`discard_photo_record` it, import again.
        """
        return self._photos.read_record(content)

    def photo_is_intact(self, content: str) -> bool:
        """Tell whether a photo's bytes still hash to its name (reads the whole file)."""
        return self._photos.is_intact(content)

    def discard_photo(self, content: str) -> None:
        """Take a damaged photo out of the store; a linked file itself is not touched."""
        if not self._keeps_damage:
            self._photos.discard(content)

    def discard_photo_record(self, content: str) -> None:
        """Remove a photo's damaged record; its bytes stay, to be recorded anew."""
        if not self._keeps_damage:
            self._photos.discard_record(content)

    def has(self, key: ArtefactKey) -> bool:
        """Tell whether an artefact (file with sidecar, or folder) is published."""
        return self._artefacts.has(key)

    def publish(
        self, key: ArtefactKey, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Json]
    ) -> None:
        """Publish arrays and metadata under a key; what is there already stays."""
        self._artefacts.publish(key, arrays, metadata)

    def read(self, key: ArtefactKey) -> Artefact:
        """Read an artefact into memory (one copy) and check it.

        Raises:
            MissingArtefactError: it is not published.
            CorruptArtefactError: it is damaged: :meth:`discard` it, make it again.
        """
        return self._artefacts.read(key)

    def shapes(self, key: ArtefactKey) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array of an artefact without reading or checking its data.

        Raises:
            MissingArtefactError: it is not published.
            CorruptArtefactError: its header cannot be read.
        """
        return self._artefacts.shapes(key)

    def is_intact(self, key: ArtefactKey) -> bool:
        """Tell whether an artefact is there and matches its checksum (reads the whole file)."""
        return self._artefacts.is_intact(key)

    def sha256(self, key: ArtefactKey) -> str:
        """Return the SHA-256 of an artefact's file."""
        return self._artefacts.sha256(key)

    def discard(self, key: ArtefactKey) -> None:
        """Remove a damaged artefact, so that it counts as absent."""
        if not self._keeps_damage:
            self._artefacts.discard(key)

    def publish_folder(self, key: ArtefactKey, fill: Callable[[Path], None]) -> Path:
        """Let ``fill`` write files into a fresh folder and publish it; what is there already stays."""
        return self._artefacts.publish_folder(key, fill)

    def folder(self, key: ArtefactKey) -> Path | None:
        """Return a published folder, checked against its sums; None when there is none."""
        return self._artefacts.folder(key)

    def sweep_temporaries(self, now_ns: int, min_age_seconds: int = TEMPORARY_MIN_AGE_SECONDS) -> int:
        """Remove what killed processes left behind; return how many temporaries.

        ``now_ns`` is wall-clock time (``time.time_ns``), as file times are.
        """
        with plain_store_errors(self.root):
            return publication.sweep_temporaries(self.root, now_ns - min_age_seconds * 10**9)

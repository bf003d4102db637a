"""Holds the derived artefacts of the store: one safetensors file and its checksum, or a folder.

Protocol of a file (the places are ``artefacts/<kind>/<2 digits>/<digest>``
plus ``.safetensors`` and ``.sha256``):

1. The artefact is written to a temporary, fsynced and linked to its name; the
   first one wins.
2. Its checksum is taken from the file that now stands under the name, whoever
   wrote it, and published as the sidecar.
3. The folder is fsynced.

The artefact is there when both names are. Stopped before 1: nothing but a
temporary. Between 1 and 2: a whole file without a sidecar counts as absent;
the next publisher adopts it in step 2. After a crash of the machine a sidecar
may stand alone: absent too, and step 2 of the next publisher corrects it.
A discarded artefact loses its own name first, so that a damaged file can
never be adopted.

A folder needs no sidecar: it is renamed into place with all its files and
``SHA256SUMS`` inside.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tasks.errors import CorruptArtefactError, MissingArtefactError, StoreError
from tasks.store import publication
from tasks.store.canonical import Json
from tasks.store.keys import ArtefactKey
from tasks.store.publication import plain_store_errors, write_bytes
from tasks.store.tensors import Artefact, file_sha256, read_shapes, read_tensors, write_tensors

SUMS_NAME = "SHA256SUMS"


class Artefacts:
    """The artefacts below one store root; any process and thread may use it."""

    def __init__(self, root: Path, check_root: Callable[[], None]) -> None:
        self._root = root
        self._check_same_root = check_root

    def has(self, key: ArtefactKey) -> bool:
        """Tell whether an artefact (file with sidecar, or folder) is published.

        Raises:
            StoreError: the store itself is gone.
        """
        place = self._place(key)
        with plain_store_errors(place):
            if (_file(place).is_file() and _sidecar(place).is_file()) or place.is_dir():
                return True
        self._check_root()
        return False

    def publish(
        self, key: ArtefactKey, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Json]
    ) -> None:
        """Publish arrays and metadata under a key; what is there already stays."""
        if self.has(key):
            return
        place = self._prepared_place(key)
        with plain_store_errors(_file(place)):
            publication.publish_file(_file(place), lambda file: write_tensors(file, arrays, metadata))
            _publish_sidecar(place)
            publication.sync_folder(place.parent)

    def read(self, key: ArtefactKey) -> Artefact:
        """Read an artefact into memory and check it against its sidecar.

        Raises:
            MissingArtefactError: it is not (completely) published.
            CorruptArtefactError: torn, unreadable, or not what was published.
            StoreError: the store cannot be read.
        """
        place = self._place(key)
        expected = self.sha256(key)
        digest = hashlib.sha256()
        with plain_store_errors(_file(place)):
            try:
                with _file(place).open("rb") as file:
                    artefact = read_tensors(file, os.fstat(file.fileno()).st_size, digest)
            except FileNotFoundError as error:
                raise self._missing(key) from error
            except CorruptArtefactError as error:
                raise CorruptArtefactError(f"{_file(place)} is damaged: {error}") from error
        if digest.hexdigest() != expected:
            raise CorruptArtefactError(f"{_file(place)} does not match its checksum")
        return artefact

    def shapes(self, key: ArtefactKey) -> dict[str, tuple[int, ...]]:
        """Return the shape of each array, from the file's header alone; errors as :meth:`read`."""
        place = self._place(key)
        self.sha256(key)  # Without its sidecar it is not published.
        with plain_store_errors(_file(place)):
            try:
                with _file(place).open("rb") as file:
                    return read_shapes(file, os.fstat(file.fileno()).st_size)
            except FileNotFoundError as error:
                raise self._missing(key) from error
            except CorruptArtefactError as error:
                raise CorruptArtefactError(f"{_file(place)} is damaged: {error}") from error

    def is_intact(self, key: ArtefactKey) -> bool:
        """Tell whether an artefact's file is there and matches its sidecar (reads it in chunks)."""
        place = self._place(key)
        with plain_store_errors(_file(place)):
            try:
                return file_sha256(_file(place)) == self.sha256(key)
            except (FileNotFoundError, MissingArtefactError, CorruptArtefactError):
                self._check_root()
                return False

    def sha256(self, key: ArtefactKey) -> str:
        """Return the SHA-256 of an artefact's file as its sidecar states it.

        Raises:
            MissingArtefactError: it is not published.
            CorruptArtefactError: the sidecar is unreadable.
        """
        sidecar = _sidecar(self._place(key))
        with plain_store_errors(sidecar):
            try:
                words = sidecar.read_text(encoding="utf-8", errors="replace").split()
            except FileNotFoundError as error:
                raise self._missing(key) from error
        if not words:
            raise CorruptArtefactError(f"{sidecar} is empty")
        return words[0]

    def discard(self, key: ArtefactKey) -> None:
        """Remove a damaged artefact, so that it counts as absent and is made again."""
        place = self._place(key)
        with plain_store_errors(place):
            for path in (_file(place), _sidecar(place), place):
                publication.remove(path)

    def publish_folder(self, key: ArtefactKey, fill: Callable[[Path], None]) -> Path:
        """Let ``fill`` write files into a fresh folder and publish it; what is there already stays."""
        place = self._prepared_place(key)

        def fill_and_sum(folder: Path) -> None:
            fill(folder)
            sums = _sums_text(folder).encode()
            publication.write_durably(folder / SUMS_NAME, lambda file: write_bytes(file, sums))

        with plain_store_errors(place):
            publication.publish_folder(place, fill_and_sum)
            publication.sync_folder(place.parent)
        return place

    def folder(self, key: ArtefactKey) -> Path | None:
        """Return a published folder, checked against its sums; None when there is none.

        Raises:
            CorruptArtefactError: a file is missing, added or changed.
        """
        place = self._place(key)
        with plain_store_errors(place):
            if not place.is_dir():
                self._check_root()
                return None
            try:
                expected = (place / SUMS_NAME).read_text(encoding="utf-8", errors="replace")
            except FileNotFoundError as error:
                raise CorruptArtefactError(f"{place} has lost its {SUMS_NAME}") from error
            if _sums_text(place) != expected:
                raise CorruptArtefactError(f"{place} does not match its {SUMS_NAME}")
        return place

    def _place(self, key: ArtefactKey) -> Path:
        return self._root / "artefacts" / key.kind / key.digest[:2] / key.digest

    def _prepared_place(self, key: ArtefactKey) -> Path:
        place = self._place(key)
        with plain_store_errors(place.parent):
            publication.make_folder(self._root, place.parent, self._check_same_root)
        return place

    def _missing(self, key: ArtefactKey) -> MissingArtefactError:
        self._check_root()
        return MissingArtefactError(f"{key.kind} {key.digest} is not in the store")

    def _check_root(self) -> None:
        if not self._root.is_dir():
            raise StoreError(f"the project store {self._root} is gone")


def _file(place: Path) -> Path:
    return place.with_name(f"{place.name}.safetensors")


def _sidecar(place: Path) -> Path:
    return place.with_name(f"{place.name}.sha256")


def _publish_sidecar(place: Path) -> None:
    """State the checksum of the file that stands under the name (``sha256sum -c`` reads it)."""
    text = f"{file_sha256(_file(place))}  {_file(place).name}\n".encode()
    taken = not publication.publish_file(_sidecar(place), lambda file: write_bytes(file, text))
    if taken and _sidecar(place).read_bytes() != text:
        publication.replace_file(_sidecar(place), lambda file: write_bytes(file, text))


def _sums_text(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS_NAME)
    return "".join(f"{file_sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)

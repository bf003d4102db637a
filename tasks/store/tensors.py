"""Holds the file form of an artefact: safetensors, written and read in bounded memory.

Own code instead of the library's, because the library either maps the file
(mapped pages count as memory of the job) or holds it twice; tests hold both
directions against the library. Neither names nor checksums are known here.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from tasks.errors import CorruptArtefactError
from tasks.store.canonical import Json, canonical_json

# One key, because the order of several is not fixed by the format's own writers.
METADATA_KEY = "tiepoint"
CHUNK_BYTES = 1 << 20
_HEADER_MAX_BYTES = 16 << 20
_ALIGNMENT_BYTES = 8
_DTYPE_OF_CODE = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
_CODE_OF_DTYPE = {dtype: code for code, dtype in _DTYPE_OF_CODE.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """What an artefact file holds."""

    arrays: Mapping[str, NDArray[Any]]
    metadata: Mapping[str, Any]


class Hash(Protocol):
    """The part of a hashlib object that is used here."""

    def update(self, data: memoryview, /) -> None:
        """Take more bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One array in the header: its name, form and place in the data part."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def write_tensors(file: BinaryIO, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Json]) -> None:
    """Write arrays and metadata; equal values give equal bytes.

    Arrays that are not contiguous are copied into order, one at a time.

    Raises:
        ValueError: an array has a type that the format does not know.
    """
    # Wide types first, so that every array starts at a multiple of its item size.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Json] = {"__metadata__": {METADATA_KEY: canonical_json(metadata)}}
    begin = 0
    for name in names:
        end = begin + arrays[name].nbytes
        shape: list[Json] = list(arrays[name].shape)
        header[name] = {"dtype": _code(name, arrays[name]), "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = canonical_json(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for name in names:
        file.write(_bytes_view(arrays[name]))


def read_tensors(file: BinaryIO, size_bytes: int, digest: Hash) -> Artefact:
    """Read a whole file of ``size_bytes`` into fresh arrays, feeding every byte to ``digest``.

    Raises:
        CorruptArtefactError: the file is torn or is not of this form.
    """
    header = _read_header(file, size_bytes, digest)
    arrays: dict[str, NDArray[Any]] = {}
    for entry in header.entries:
        array = np.empty(entry.shape, dtype=entry.dtype)
        _fill(file, _bytes_view(array), digest)
        arrays[entry.name] = array
    return Artefact(arrays=arrays, metadata=header.metadata)


def read_shapes(file: BinaryIO, size_bytes: int) -> dict[str, tuple[int, ...]]:
    """Read the shape of every array from the header alone; the data are neither read nor checked.

    Raises:
        CorruptArtefactError: the file is torn or is not of this form.
    """
    header = _read_header(file, size_bytes, hashlib.sha256())
    return {entry.name: entry.shape for entry in header.entries}


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    entries: tuple[_Entry, ...]
    metadata: Mapping[str, Any]


def _code(name: str, array: NDArray[Any]) -> str:
    code = _CODE_OF_DTYPE.get(array.dtype)
    if code is None:
        raise ValueError(f"array {name!r} has the type {array.dtype}, which an artefact cannot hold")
    return code


def _bytes_view(array: NDArray[Any]) -> memoryview:
    ordered = array if array.flags.c_contiguous else array.copy(order="C")
    flat: Any = ordered.reshape(-1).view(np.uint8)  # a buffer, which numpy's stubs hide before 3.12
    return memoryview(flat)


def _read_header(file: BinaryIO, size_bytes: int, digest: Hash) -> _Header:
    prefix = bytearray(8)
    _fill(file, memoryview(prefix), digest)
    length = int.from_bytes(prefix, "little")
    if length > min(_HEADER_MAX_BYTES, size_bytes - len(prefix)):
        raise CorruptArtefactError(f"a header of {length} bytes in a file of {size_bytes}")
    text = bytearray(length)
    _fill(file, memoryview(text), digest)
    try:
        fields = json.loads(text)
        metadata = json.loads(fields.pop("__metadata__")[METADATA_KEY])
        entries = tuple(_entries(fields))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptArtefactError(f"the header cannot be read: {error}") from error
    _check_places(entries, size_bytes - len(prefix) - length)
    return _Header(entries=entries, metadata=metadata)


def _entries(fields: Mapping[str, Any]) -> Iterator[_Entry]:
    for name, form in sorted(fields.items(), key=lambda field: tuple(field[1]["data_offsets"])):
        begin, end = form["data_offsets"]
        yield _Entry(
            name=name,
            dtype=_DTYPE_OF_CODE[form["dtype"]],
            shape=tuple(int(length) for length in form["shape"]),
            begin=begin,
            end=end,
        )


def _check_places(entries: tuple[_Entry, ...], data_bytes: int) -> None:
    """Check that the arrays fill the data part without gap, overlap or rest."""
    position = 0
    for entry in entries:
        expected = math.prod(entry.shape) * entry.dtype.itemsize
        if min(entry.shape, default=0) < 0 or entry.begin != position or entry.end - position != expected:
            raise CorruptArtefactError(f"array {entry.name!r} does not fit its place")
        position = entry.end
    if position != data_bytes:
        raise CorruptArtefactError(f"{data_bytes} bytes of data where {position} belong")


def _fill(file: BinaryIO, view: memoryview, digest: Hash) -> None:
    # BinaryIO of a file opened "rb" is a BufferedReader, which has readinto.
    readinto: Any = file.readinto  # type: ignore[attr-defined]
    position = 0
    while position < len(view):
        chunk = view[position : position + CHUNK_BYTES]
        count = readinto(chunk)
        if not count:
            raise CorruptArtefactError("the file ends too early")
        digest.update(chunk[:count])
        position += count

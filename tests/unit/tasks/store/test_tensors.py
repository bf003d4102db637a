"""Tests of the artefact file: safetensors in bounded memory."""

import hashlib
import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, save

from tasks.errors import CorruptArtefactError
from tasks.store.tensors import Artefact, read_tensors, write_tensors

ARRAYS: dict[str, NDArray[Any]] = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.arange(5, dtype=np.uint8),
    "none": np.empty((0, 4), dtype=np.float64),
    "scalar": np.array(7, dtype=np.int64),
}


def written(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an artefact file."""
    file = io.BytesIO()
    write_tensors(file, arrays, {"b": [1, None], "a": "ä"})
    return file.getvalue()


def read(content: bytes) -> Artefact:
    """Read an artefact from bytes."""
    return read_tensors(io.BytesIO(content), len(content), hashlib.sha256())


def test_the_library_reads_what_is_written() -> None:
    """Any safetensors reader opens our files."""
    loaded = load(written(ARRAYS))

    assert loaded.keys() == ARRAYS.keys()
    assert all(np.array_equal(loaded[name], ARRAYS[name]) for name in ARRAYS)


def test_what_the_library_writes_is_read() -> None:
    """Files of another safetensors writer are read alike."""
    content = save(ARRAYS, metadata={"tiepoint": '{"x":1}'})
    artefact = read(content)

    assert artefact.metadata == {"x": 1}
    assert all(np.array_equal(artefact.arrays[name], ARRAYS[name]) for name in ARRAYS)


def test_reading_returns_what_was_written() -> None:
    """Values, shapes, types and metadata survive."""
    artefact = read(written(ARRAYS))

    assert artefact.metadata == {"b": [1, None], "a": "ä"}
    assert all(np.array_equal(artefact.arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert all(artefact.arrays[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    assert all(artefact.arrays[name].shape == ARRAYS[name].shape for name in ARRAYS)


def test_equal_values_give_equal_bytes() -> None:
    """The order of insertion and of memory does not show."""
    reordered = {name: ARRAYS[name].copy(order="F") for name in reversed(ARRAYS)}

    assert written(reordered) == written(ARRAYS)


def test_a_slice_is_written_as_it_looks() -> None:
    """An array that is not contiguous does not come back as its memory."""
    whole = np.arange(24, dtype=np.uint16).reshape(4, 6)
    artefact = read(written({"x": whole[::2, ::-3]}))

    assert np.array_equal(artefact.arrays["x"], whole[::2, ::-3])


def test_an_unknown_type_is_refused() -> None:
    """Objects and big-endian numbers have no form in the file."""
    with pytest.raises(ValueError, match="'x' has the type >f4"):
        written({"x": np.zeros(2, dtype=">f4")})


@pytest.mark.parametrize("kept_bytes", [0, 7, 8, 40, -1])
def test_a_torn_file_is_corrupt(kept_bytes: int) -> None:
    """A file that ends early, anywhere, is told from a whole one."""
    with pytest.raises(CorruptArtefactError):
        read(written(ARRAYS)[:kept_bytes])


def test_bytes_after_the_end_are_corrupt() -> None:
    """A file that is longer than its header says is not accepted."""
    with pytest.raises(CorruptArtefactError, match="bytes of data"):
        read(written(ARRAYS) + b"\0")


def test_a_huge_header_length_is_refused_before_it_is_allocated() -> None:
    """Garbage in the first eight bytes cannot ask for memory."""
    with pytest.raises(CorruptArtefactError, match="a header of"):
        read(b"\xff" * 8 + written(ARRAYS)[8:])


def test_a_header_that_lies_about_a_shape_is_corrupt() -> None:
    """Shape and place must agree."""
    content = written(ARRAYS).replace(b'"shape":[2,3]', b'"shape":[2,4]')
    with pytest.raises(CorruptArtefactError, match="does not fit its place"):
        read(content)

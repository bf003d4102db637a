"""COLMAP's files of a model are written whole, or the disk's own error is told."""

import errno
from pathlib import Path

import pycolmap
import pytest

from tasks.model_files import binary_sizes, check_room, check_whole, write_model
from tests.small_disk import small_disk


def a_model(points: int = 500) -> pycolmap.Reconstruction:
    """Return a model of 10 images, one of which is not registered."""
    options = pycolmap.SyntheticDatasetOptions()
    options.num_points3D = points
    model = pycolmap.synthesize_dataset(options)
    model.deregister_frame(min(model.frames))
    return model


def test_the_sizes_are_those_of_colmaps_files(tmp_path: Path) -> None:
    """Byte for byte, so that a file that is cut off anywhere is seen."""
    model = a_model()
    write_model(tmp_path, model)

    assert binary_sizes(model) == {path.name: path.stat().st_size for path in tmp_path.iterdir()}


def test_a_model_that_does_not_fit_on_its_disk_is_an_error(tmp_path: Path) -> None:
    """COLMAP's writer itself says nothing."""
    with small_disk(tmp_path / "disk", 2**18) as disk:
        model = a_model(5000)
        model.write_binary(disk.folder)  # No error here.

        with pytest.raises(OSError, match="No space left") as told:
            write_model(disk.folder, model)
        assert told.value.errno == errno.ENOSPC


def test_a_short_file_on_a_disk_with_room_is_an_error_too(tmp_path: Path) -> None:
    """Somebody may have freed space in between."""
    (tmp_path / "points3D.bin").write_bytes(bytes(99))

    with pytest.raises(OSError, match="only 99 of 100 bytes of points3D"):
        check_whole(tmp_path / "points3D.bin", 100)
    check_whole(tmp_path / "points3D.bin", 99)


def test_a_disk_that_takes_nothing_more_is_told(tmp_path: Path) -> None:
    """For files whose size nobody knows; the probe leaves nothing."""
    with small_disk(tmp_path / "disk", 2**18) as disk:
        check_room(disk.folder)
        empty = list(disk.folder.iterdir())
        disk.fill()

        with pytest.raises(OSError, match="No space left"):
            check_room(disk.folder)
        assert empty == []

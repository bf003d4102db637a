"""Writes COLMAP's files of a sparse model, whole or with an error.

COLMAP's own writer does not look whether the disk took what it wrote: on a
full one it returns as if nothing were, and leaves the beginnings of files
(tested with pycolmap 4.2.1). So sizes are compared with what the format asks
for; where no size is known, something more is written, which tells.
"""

import errno
import os
import tempfile
from pathlib import Path

import pycolmap

_PROBE_BYTES = 1 << 16
_COUNT_BYTES, _POSE_BYTES = 8, 56


def write_model(folder: Path, model: pycolmap.Reconstruction) -> None:
    """Write a model's binary files into a folder that exists.

    Raises:
        OSError: the disk did not take them all.
    """
    model.write_binary(folder)
    for name, size_bytes in binary_sizes(model).items():
        check_whole(folder / name, size_bytes)


def binary_sizes(model: pycolmap.Reconstruction) -> dict[str, int]:
    """Return how many bytes each binary file of a model has (COLMAP 4.2's format).

    Its rigs are trivial ones: one camera each, as the mapper makes them of a database without rigs.
    """
    images = [model.image(image_id) for image_id in model.reg_image_ids()]
    frames = [model.frame(frame_id) for frame_id in model.reg_frame_ids()]
    tracks = (point.track.length() for point in model.points3D.values())
    return {
        # id, number of sensors, kind and id of the one
        "rigs.bin": _COUNT_BYTES + 16 * model.num_rigs(),
        # id, rig, pose, number of images; kind, sensor and id of each
        "frames.bin": _COUNT_BYTES
        + sum(12 + _POSE_BYTES + 16 * len(list(frame.data_ids)) for frame in frames),
        # id, model, width, height; parameters
        "cameras.bin": _COUNT_BYTES + sum(24 + 8 * len(camera.params) for camera in model.cameras.values()),
        # id, pose, camera, the name and its zero, the number of points; x, y and the 3D point of each
        "images.bin": _COUNT_BYTES
        + sum(17 + _POSE_BYTES + len(image.name.encode()) + 24 * image.num_points2D() for image in images),
        # id, position, colour, error, length of the track; image and index of each observation
        "points3D.bin": _COUNT_BYTES + sum(51 + 8 * length for length in tracks),
    }


def check_whole(file: Path, size_bytes: int) -> None:
    """Check that a file that another library wrote has the size it must have.

    Raises:
        OSError: it has not; with the disk's own reason, if it still has one.
    """
    written_bytes = file.stat().st_size
    if written_bytes == size_bytes:
        return
    check_room(file.parent)
    raise OSError(errno.EIO, f"only {written_bytes} of {size_bytes} bytes of {file.name} were written")


def check_room(folder: Path) -> None:
    """Check that the disk of a folder still takes something: if not, it has perhaps not taken all before.

    Raises:
        OSError: it does not.
    """
    with tempfile.TemporaryFile(dir=folder) as probe:
        probe.write(bytes(_PROBE_BYTES))
        probe.flush()
        os.fsync(probe.fileno())

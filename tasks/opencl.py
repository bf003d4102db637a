"""Decides when OpenCV computes on an OpenCL device: in a node's children inside :func:`opencl` only.

Which device that is, OpenCV chooses: the first GPU, or what its own variable
``OPENCV_OPENCL_DEVICE`` names. Does not cover what is computed there
(:mod:`tasks.gpu_matching_kernel`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray


class OpenClError(Exception):
    """The OpenCL device cannot be used, or has failed; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """For each query row its nearest train rows, at most two, the nearer first; equal ones in any order."""

    indices: NDArray[np.intp]
    """(rows, 1 or 2)."""
    distances: NDArray[np.int64]
    """(rows, 1 or 2), in bits."""


def switch_off() -> None:
    """Let OpenCV not look for OpenCL in this thread; its ORB does, though it then computes on the CPU."""
    cv2.ocl.setUseOpenCL(False)


@contextmanager
def opencl() -> Iterator[None]:
    """Let OpenCV use OpenCL in this thread for the time of the block.

    The first block of a process loads the driver and its compilers (100 MiB and more).

    Raises:
        OpenClError: OpenCV finds no device.
    """
    try:
        cv2.ocl.setUseOpenCL(True)
        if not cv2.ocl.useOpenCL():
            raise OpenClError(_what_is_missing())
        yield
    except cv2.error as error:
        raise OpenClError(_in_one_line(error)) from error
    finally:
        switch_off()


def device_name() -> str:
    """Return what the device calls itself; for use inside :func:`opencl`."""
    return str(cv2.ocl.Device.getDefault().name())


def two_nearest(query: NDArray[np.float32], train: NDArray[np.float32]) -> Neighbours:
    """Find the two nearest train rows of each query row, by the bits in which their integers differ.

    For use inside :func:`opencl`. OpenCV's brute force matcher goes to OpenCL
    for float32 only, whose values its kernel converts to 32-bit integers; on
    the CPU it refuses to count bits of floats, so this never computes elsewhere.

    Args:
        query: (rows, columns) of integers from 0 to 2^24 - 1, exact as float32;
            a number of columns that 4 divides would not compile for Intel.
        train: as query.

    Raises:
        OpenClError: the device has failed, or found fewer neighbours than there are.
    """
    try:
        found = cv2.BFMatcher(cv2.NORM_HAMMING).knnMatch(_on_device(query), _on_device(train), k=2)
    except cv2.error as error:
        raise OpenClError(_in_one_line(error)) from error
    count = min(2, len(train))
    if len(found) != len(query) or any(len(nearest) != count for nearest in found):
        raise OpenClError("the device has found fewer neighbours than there are")
    return Neighbours(
        indices=np.array([[match.trainIdx for match in nearest] for nearest in found], np.intp),
        distances=np.array([[match.distance for match in nearest] for nearest in found], np.int64),
    )


def _on_device(values: NDArray[np.float32]) -> cv2.UMat:
    return cv2.UMat(values)  # type: ignore[call-overload, no-any-return]  # the stubs do not know arrays


def _what_is_missing() -> str:
    if not cv2.ocl.haveOpenCL():
        return "there is no OpenCL driver"
    return "none of its OpenCL drivers offers a GPU"


def _in_one_line(error: cv2.error) -> str:
    return " ".join(str(error).split())

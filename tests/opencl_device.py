"""Gives tests an OpenCL device where there is no GPU: PoCL's, which is the CPU.

OpenCV takes it only when it is named, and for good when a process first uses
OpenCL. Does not cover the graphics card that a node must see (``tests.mock_cards``).
"""

import shutil
from pathlib import Path

import pytest

from tasks.opencl import OpenClError, opencl

ENVIRONMENT = {"OPENCV_OPENCL_DEVICE": ":CPU:"}

needs_pocl = pytest.mark.skipif(
    not list(Path("/etc/OpenCL/vendors").glob("pocl*.icd")) or shutil.which("umockdev-run") is None,
    reason="PoCL or umockdev is missing (Debian's packages pocl-opencl-icd and umockdev)",
)


@pytest.fixture(scope="session")
def opencl_device() -> None:
    """Let this process compute on PoCL; skip where it is not installed."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in ENVIRONMENT.items():
            environment.setenv(name, value)
        try:
            with opencl():
                pass
        except OpenClError as error:
            pytest.skip(f"{error} (Debian's package pocl-opencl-icd has one)")

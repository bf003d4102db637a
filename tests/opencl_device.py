"""Gives tests an OpenCL device where there is no GPU: PoCL's, which is the CPU.

Programs that compute there run in processes of their own: a process looks for
a device once, and other tests' ORB has done so. Does not cover the graphics
card that a node must see (``tests.mock_cards``).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = {"OPENCV_OPENCL_DEVICE": ":CPU:"}
"""OpenCV takes such a device only where it is named."""

needs_pocl = pytest.mark.skipif(
    not list(Path("/etc/OpenCL/vendors").glob("pocl*.icd")),
    reason="PoCL is missing (Debian's package pocl-opencl-icd)",
)


def run_on_device(program: str, *arguments: str | Path) -> Any:
    """Run a Python program with a device; return the JSON value that it prints, it must say nothing else."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *map(str, arguments)],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    if done.returncode or done.stderr:
        pytest.fail(f"the program ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)

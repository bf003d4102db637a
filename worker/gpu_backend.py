"""Asks whether this machine can match on its GPU: in a short process of its own, and only where it has one.

OpenCV must not run in the process that asks: a worker's children are started
from processes that have run none of it. Does not cover what is asked there
(:mod:`tasks.gpu_check`).
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from governor.gpu import GpuFinding, find_gpu
from governor.totals import read_physical_memory_bytes
from tasks.parameters import ProjectParameters
from worker.settings import WrongSettingError

_PROC_ROOT = Path("/proc")
_MODULE = "tasks.gpu_check"
_PATIENCE_SECONDS = 120.0
"""Drivers compile their programs at the first use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBackend:
    """What a machine would match on; either a device, or why there is none."""

    device: str = ""
    reason: str = ""
    driver_memory_bytes: int = 0
    """What the driver took in the process that asked it: a child takes that with its first batch."""

    @property
    def is_usable(self) -> bool:
        """Tell whether there is a device."""
        return bool(self.device)


def find_backend(finding: GpuFinding, environment: Mapping[str, str] | None = None) -> GpuBackend:
    """Return what can be matched on with the card that was found; without one nothing is started."""
    if finding.gpu is None:
        return GpuBackend(reason=finding.note or "it has no graphics card")
    return ask([sys.executable, "-P", "-m", _MODULE], environment)


def ask(command: list[str], environment: Mapping[str, str] | None = None) -> GpuBackend:
    """Run the check and read its answer; whatever goes wrong with it is a reason, never an error."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=_PATIENCE_SECONDS, check=False
        )
        told = json.loads(done.stdout)
        return GpuBackend(
            device=str(told["device"]),
            reason=str(told["reason"]),
            driver_memory_bytes=int(told["driver_memory_bytes"]),
        )
    except subprocess.TimeoutExpired:
        return GpuBackend(reason=f"its OpenCL driver did not answer for {_PATIENCE_SECONDS:.0f} s")
    except (OSError, ValueError, KeyError, TypeError):
        # A driver may take the whole process down.
        return GpuBackend(reason="its OpenCL driver ends the process that asks it")


def check_this_machine(parameters: ProjectParameters) -> None:
    """Refuse a project that is to be matched on a GPU where this machine cannot do that.

    Raises:
        WrongSettingError: it cannot; the text says why, and what to do.
    """
    if parameters.execution.matcher != "gpu":
        return
    backend = find_backend(find_gpu(read_physical_memory_bytes(_PROC_ROOT)))
    if not backend.is_usable:
        raise WrongSettingError(
            f"this machine cannot match on a GPU: {backend.reason}; "
            "install the OpenCL driver of its graphics card, or run again with --matcher cpu"
        )

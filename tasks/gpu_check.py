"""Says, as a program, whether this machine can match on its GPU: one JSON object with a device, or a reason.

And how much memory the driver takes in the process, at its peak. Run by
:mod:`worker.gpu_backend`, in an environment like that of the worker's children.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from tasks.gpu_matching import usable_device
from tasks.opencl import OpenClError

_STATUS = Path("/proc/self/status")


def main() -> None:
    """Try it, and print what came of it."""
    answer: dict[str, Any] = {"device": "", "reason": ""}
    before_bytes = _peak_bytes()
    try:
        answer["device"] = usable_device()
    except OpenClError as error:
        answer["reason"] = str(error)
    answer["driver_memory_bytes"] = _peak_bytes() - before_bytes
    sys.stdout.write(json.dumps(answer))


def _peak_bytes() -> int:
    """Return the most that this process has held, its libraries included; 0 where that cannot be read.

    Not ru_maxrss: that begins with what whoever has started us held.
    """
    try:
        status = _STATUS.read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    main()

"""Says, as a program, whether this machine can match on its GPU: one JSON object with a device, or a reason.

And how much memory the driver takes in the process, at its peak. Run by
:mod:`worker.gpu_backend`, in an environment like that of the worker's children.
"""

import json
import resource
import sys
from typing import Any

from tasks.gpu_matching import usable_device
from tasks.opencl import OpenClError


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
    """Return the most that this process has held, its libraries included (ru_maxrss is KiB on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()

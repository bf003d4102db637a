"""Says, as a program, whether this machine can match on its GPU: one JSON object with a device, or a reason.

Run by :mod:`worker.gpu_backend`.
"""

import json
import sys

from tasks.gpu_matching import usable_device
from tasks.opencl import OpenClError


def main() -> None:
    """Try it, and print what came of it."""
    answer = {"device": "", "reason": ""}
    try:
        answer["device"] = usable_device()
    except OpenClError as error:
        answer["reason"] = str(error)
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()

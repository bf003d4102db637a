"""Prints as JSON what the governor makes of the cards that this process sees, on 16 GiB of RAM.

Run below ``umockdev-run`` (``tests.mock_cards``).
"""

import json
import sys
from dataclasses import asdict, replace

from governor import policy as policies
from governor.gpu import find_gpu
from governor.profile import read_profile

MACHINE_MEMORY_BYTES = 16 * 2**30


def main() -> None:
    """Print the profile's GPU, the note, what is free, and what each policy breaks."""
    found = find_gpu(MACHINE_MEMORY_BYTES)
    profile = replace(read_profile(gpu=found.gpu), memory_total_bytes=MACHINE_MEMORY_BYTES)
    named = {name: policies.named(name, profile) for name in policies.PolicyName}
    violations = [text for policy in named.values() for text in policies.violations(policy, profile)]
    report = {
        "gpu": None if profile.gpu is None else asdict(profile.gpu),
        "note": found.note,
        "available_bytes": found.read_available_bytes(),
        "gpu_slots": [policy.gpu_slots for policy in named.values()],
        "gpu_reserve_bytes": [policy.gpu_memory_reserve_bytes for policy in named.values()],
        "violations": violations,
    }
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()

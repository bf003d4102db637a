"""Nodes in a real memory cgroup: they see its limit, not the machine, and page cache is not use."""

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.integration.conftest import DEADLINE_SECONDS, REPOSITORY, Cluster, Worker, wait_until
from tests.memory_cgroup import MemoryCgroup, memory_cgroup_or_skip
from worker import keys

MIB = 2**20
GIB = 2**30
READINGS = """
import json, time
from pathlib import Path
from governor.cgroups import find_limits
from governor.profile import read_profile
from governor.snapshot import capture_snapshot

limits = find_limits(Path("/proc"))
total = read_profile(limits=limits).memory_total_bytes
available = lambda: capture_snapshot(Path("/proc"), time.monotonic_ns, limits=limits).memory_available_bytes
before = available()
taken = bytearray(b"x") * (256 * 2**20)
print(json.dumps([total, before, available()]))
"""
READ_FILE = """
import sys
path, repeated_bytes = sys.argv[1], int(sys.argv[2])
def read(most_bytes):
    with open(path, "rb", buffering=0) as file:
        while file.tell() < most_bytes and file.read(2**20):
            pass
read(2**62)
for _ in range(3):
    read(repeated_bytes)
"""


def run_inside(group: MemoryCgroup, script: str, *arguments: str) -> str:
    """Run a script in the cgroup; return what it has printed."""
    command = [sys.executable, "-c", script, *arguments]
    with group.start(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as process:
        output, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    return str(output)


def start_inside(cluster: Cluster, group: MemoryCgroup) -> Worker:
    """Start a worker of one child in the cgroup, and let it run a job."""
    worker = [sys.executable, "-P", "-m", "worker.start", "worker", "--loglevel", "INFO"]
    started = cluster.start_worker("boxed", command=group.joined_by(worker), cpus=1)
    run_job(cluster)
    return started


def run_job(cluster: Cluster) -> float:
    """Send a job without work; return after how many seconds it ran."""
    before, sent_at = len(cluster.runs()), time.monotonic()
    cluster.send("noop", kwargs={"log": cluster.run_log})
    wait_until(lambda: len(cluster.runs()) > before, "the job has run")
    return time.monotonic() - sent_at


def a_sparse_file(folder: Path, size_bytes: int) -> Path:
    """Make a file of zeros that takes no disk; its pages are cached like any other's."""
    path = folder / "photos.bin"
    with path.open("wb") as file:
        file.truncate(size_bytes)
    return path


def test_a_process_sees_the_limit_and_what_is_left_of_it() -> None:
    """Not the machine's RAM; and what it takes itself is gone from it."""
    with memory_cgroup_or_skip(GIB) as group:
        total_bytes, before_bytes, after_bytes = json.loads(run_inside(group, READINGS))

    assert total_bytes == GIB
    assert 0.9 * GIB < before_bytes <= GIB
    assert 250 * MIB < before_bytes - after_bytes < 262 * MIB


def test_a_worker_offers_what_its_limit_leaves(cluster: Cluster) -> None:
    """One GiB less the reserve of 512 MiB, of which its own processes have taken a part."""
    with memory_cgroup_or_skip(GIB) as group:
        start_inside(cluster, group)
        wait_until(lambda: cluster.server.hget(keys.node("boxed"), "budget_memory_bytes"), "it has told")
        offers, budget = (
            int(cluster.server.hget(keys.node("boxed"), field) or -1)
            for field in ("offers_memory_bytes", "budget_memory_bytes")
        )

    assert offers == 512 * MIB
    assert 0 < budget < offers


def test_page_cache_is_not_memory_in_use(cluster: Cluster, tmp_path: Path) -> None:
    """Files of twice the limit are read, and a part of them again and again: a job starts at once."""
    with memory_cgroup_or_skip(768 * MIB) as group:
        start_inside(cluster, group)
        photos = a_sparse_file(tmp_path, 2 * group.limit_bytes)
        run_inside(group, READ_FILE, str(photos), str(group.limit_bytes // 2))
        full_bytes = group.usage_bytes()
        # The quickest of three: a machine that is busy with other things may delay one.
        seconds = min(run_job(cluster) for _ in range(3))

    assert full_bytes > 0.9 * group.limit_bytes
    assert seconds < 1

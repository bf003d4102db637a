"""Measures how a worker comes through an outage of Redis: `python -m tests.bench.outages freeze 60`.

Does not compare with stock Celery (:mod:`tests.bench.reliability`).
"""

import argparse
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.external_server import external_server
from tests.integration.conftest import Cluster, killed, wait_until
from tests.redis_proxy import RedisProxy, redis_proxy
from worker.connections import plain_client

_JOB_SECONDS = 0.2
_WORK_BEFORE = 20
_KILL_EVERY_SECONDS = 1.0

Outage = Callable[["redis.Redis", RedisProxy, float], None]
"""Lasts so many seconds and ends."""


def freeze(server: "redis.Redis", _proxy: RedisProxy, seconds: float) -> None:
    """Stop the server's process."""
    info: Any = server.info("server")
    os.kill(info["process_id"], signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(info["process_id"], signal.SIGCONT)


def swallow(_server: "redis.Redis", proxy: RedisProxy, seconds: float) -> None:
    """Let nothing through; connections stay half open."""
    proxy.swallow()
    time.sleep(seconds)
    proxy.heal()


def kill(server: "redis.Redis", _proxy: RedisProxy, seconds: float) -> None:
    """Kill all connections, every second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for sort in ("normal", "pubsub"):
            server.client_kill_filter(_type=sort, skipme=True)
        time.sleep(_KILL_EVERY_SECONDS)


OUTAGES: dict[str, Outage] = {"freeze": freeze, "swallow": swallow, "kill": kill}


def measure(outage: Outage, seconds: float, jobs: int, folder: Path) -> str:
    """Run jobs through an outage; return what became of them, in one line."""
    (folder / "store").mkdir()
    with external_server(folder) as url, plain_client(url) as server:
        port = int(url.rsplit(":", 1)[1].partition("/")[0])
        with redis_proxy(port) as proxy:
            here = Cluster(broker_url=url, server=server, folder=folder)
            for number in range(jobs):
                job = {"number": number, "log": here.run_log, "sleep_seconds": _JOB_SECONDS}
                here.send("noop", kwargs=job)
            behind = Cluster(broker_url=f"redis://127.0.0.1:{proxy.port}/0", server=server, folder=folder)
            with killed(behind.workers):
                behind.start_worker(lease_seconds=10)
                return _through(outage, seconds, jobs, behind, proxy)


def _through(outage: Outage, seconds: float, jobs: int, cluster: Cluster, proxy: RedisProxy) -> str:
    wait_until(lambda: len(cluster.runs()) >= _WORK_BEFORE, "jobs run")
    outage(cluster.server, proxy, seconds)
    before, ended_ns = len(cluster.runs()), time.monotonic_ns()
    wait_until(lambda: len(cluster.runs()) in {jobs, *range(before + 1, jobs)}, "a job runs again")
    first_seconds = (time.monotonic_ns() - ended_ns) / 1e9
    wait_until(lambda: len(cluster.runs()) >= jobs and not cluster.inflight(), "all jobs are settled")
    ran = [number for number, _, _ in cluster.runs()]
    lost, again = jobs - len(set(ran)), len(ran) - len(set(ran))
    return f"lost {lost} of {jobs}, run twice {again}, first job {first_seconds:.2f} s after its end"


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("outage", choices=OUTAGES)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--jobs", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder:
        told = measure(OUTAGES[asked.outage], asked.seconds, asked.jobs, Path(folder))
    print(f"{asked.outage} for {asked.seconds:g} s: {told}")  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()

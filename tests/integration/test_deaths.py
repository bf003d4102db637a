"""What dies at an awkward moment costs nobody else anything, and no message is left behind."""

import json
import signal
import time

import psutil

from tests.integration.conftest import Cluster, Worker, wait_until
from worker import keys


def _spawner(worker: Worker) -> psutil.Process:
    children: list[psutil.Process] = psutil.Process(worker.process.pid).children()
    return children[0]


def _counted(cluster: Cluster) -> list[tuple[int, int]]:
    """Return the attempts and lost nodes counted on each message that waits."""
    waiting = [json.loads(bytes(text)) for text in cluster.server.lrange("noop", 0, -1)]  # type: ignore[arg-type]
    histories = [message.get("tiepoint", {}) for message in waiting]
    return [(history.get("attempts", 0), history.get("lost", 0)) for history in histories]


def test_a_dead_spawner_is_replaced_and_its_jobs_run_again(cluster: Cluster) -> None:
    """All its children die with it; nothing stays reserved or claimed."""
    worker = cluster.start_worker(cpus=1)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 2})
    wait_until(cluster.runs, "the job runs")
    _spawner(worker).kill()
    wait_until(lambda: len(cluster.runs()) == 2, "the job runs again")
    wait_until(lambda: not cluster.inflight(), "it is settled")

    wait_until(lambda: cluster.reserved_bytes("one") == 0, "nothing stays reserved")
    assert cluster.dead() == []


def test_a_child_and_its_spawner_dying_together_lose_nothing(cluster: Cluster) -> None:
    """The main process hears of both at once: stopped meanwhile, as a busy one would be."""
    worker = cluster.start_worker(cpus=1)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 2})
    wait_until(cluster.runs, "the job runs")
    spawner = _spawner(worker)
    worker.process.send_signal(signal.SIGSTOP)
    spawner.children()[0].kill()
    wait_until(lambda: not spawner.children(), "the spawner has reaped it")
    spawner.kill()
    worker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: len(cluster.runs()) == 2, "the job runs again")
    wait_until(lambda: not cluster.inflight(), "it is settled")

    wait_until(lambda: cluster.reserved_bytes("one") == 0, "nothing stays reserved")


def test_an_idle_child_that_dies_costs_no_connection(cluster: Cluster) -> None:
    """The next batch goes to another child; Celery does not take the broken socket for Redis's."""
    worker = cluster.start_worker(cpus=1)
    children = wait_until(worker.children, "a child is there")
    worker.process.send_signal(signal.SIGSTOP)
    children[0].kill()
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    time.sleep(0.1)
    worker.process.send_signal(signal.SIGCONT)
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the job is settled")

    assert len(cluster.runs()) == 1
    assert "Connection to broker lost" not in worker.log


def test_cold_shutdowns_count_nothing(cluster: Cluster) -> None:
    """However often a node is shut down over a job, the job is not to blame."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 600})
    for turn in range(1, 4):
        worker = cluster.start_worker(f"turn{turn}", cpus=1)
        wait_until(lambda: len(cluster.runs()) == turn, "the job runs")  # noqa: B023 - awaited here
        worker.stop(signal.SIGQUIT)

        assert _counted(cluster) == [(0, 0)]
    assert cluster.dead() == []


def test_a_claim_whose_reply_is_lost_is_given_back(cluster: Cluster) -> None:
    """A message that this lease holds, but that its node knows nothing of, goes back to its list."""
    worker = cluster.start_worker()
    incarnation = next(str(lease, "ascii") for lease in cluster.server.zrange(keys.LEASES, 0, -1))  # type: ignore[arg-type]
    worker.process.send_signal(signal.SIGSTOP)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    payload = cluster.server.rpop("noop")
    assert isinstance(payload, bytes)
    cluster.server.hset(keys.inflight(incarnation), "ffffffffffff:0001:noop", payload)
    worker.process.send_signal(signal.SIGCONT)
    wait_until(cluster.runs, "the job runs all the same")
    wait_until(lambda: not cluster.inflight(), "it is settled")

    assert len(cluster.runs()) == 1


def test_a_pool_made_smaller_claims_no_more_than_it_runs(cluster: Cluster) -> None:
    """Nothing waits at a node for a child that is not there."""
    cluster.start_worker(cpus=2)
    shrunk = cluster.ask("pool_shrink", n=1)
    for number in range(3):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(cluster.runs, "a job runs")
    time.sleep(0.5)  # Long enough to claim a second one, if it did.

    assert shrunk == {"ok": "pool will shrink"}
    assert cluster.inflight() == 1
    assert cluster.server.llen("noop") == 2

"""Real workers: who is to blame dies in the end, with a report, and nobody else; the dead can come back."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.integration.conftest import Cluster, Worker, wait_until
from tests.lasting_server import LastingServer
from worker.client import Client
from worker.queue_counts import count_jobs

KINDS = ("noop", "noop.batch8", "noop.window4")
Events = list[tuple[str, str]]
"""Job id and type of each."""


@contextmanager
def events(cluster: Cluster) -> Iterator[Events]:
    """Yield the list of the events of jobs that monitors are sent from now on."""
    seen: Events = []
    with cluster.stock as client, client.connection() as connection:
        receiver = client.events.Receiver(
            connection, handlers={"*": lambda event: seen.append((event.get("uuid", ""), event["type"]))}
        )
        listener = Thread(target=receiver.capture, kwargs={"limit": None, "wakeup": False})
        listener.start()
        wait_until(cluster.server.pubsub_numpat, "somebody listens")
        yield seen
        receiver.should_stop = True
        listener.join()


def settled(cluster: Cluster, jobs: int) -> bool:
    """Tell whether all of so many jobs are over; none may be lost or doubled at any moment."""
    counts = count_jobs(cluster.server, KINDS)

    assert counts.total - counts.pushed == jobs
    return counts.open == 0


def run_counts(cluster: Cluster) -> Counter[int]:
    """Return how often each job has run."""
    return Counter(number for number, _, _ in cluster.runs())


@pytest.mark.parametrize("kind", ["noop.batch8", "noop.window4"])
def test_the_job_that_kills_is_dead_after_three_attempts_and_the_others_are_done_once(
    cluster: Cluster, kind: str
) -> None:
    """Batches of more than one, the third item kills; many that are like it wait behind."""
    send = {"log": cluster.run_log}
    jobs = [cluster.send(kind, kwargs={"number": n, "kill_always": n == 2, **send}) for n in range(24)]
    with events(cluster) as seen:
        cluster.start_worker(cpus=1)
        wait_until(lambda: settled(cluster, 24), "all are settled")
        wait_until(lambda: (jobs[2], "task-failed") in seen, "its end is told")

    assert run_counts(cluster) == {n: 3 if n == 2 else 1 for n in range(24)}
    assert [batch > 1 for n, batch, _ in cluster.runs() if n == 2] == [True, False, False]
    assert Counter(job for job, event in seen if event == "task-succeeded") == Counter(
        job for job in jobs if job != jobs[2]
    )
    (dead,) = cluster.dead()
    assert (dead["job_id"], dead["ending"], dead["attempts"], dead["node"]) == (jobs[2], "killed", 3, "one")
    assert "killed by SIGKILL" in dead["cause"]


def test_each_report_tells_what_the_job_died_of(cluster: Cluster) -> None:
    """Node and memory where it ran, nothing where it did not."""
    worker = cluster.start_worker(cpus=1)
    options: list[dict[str, Any]] = [{"kwargs": {"fail": True}}, {"task": "no.such"}, {"expires": -1}]
    for sent, one in enumerate(options, start=1):
        cluster.send("noop", **one)
        wait_until(lambda: settled(cluster, sent), "it is dead")  # noqa: B023 - awaited here
    running = cluster.send("noop", kwargs={"number": 3, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(cluster.runs, "the job runs")
    cluster.ask("revoke", task_id=running, terminate=True, signal="SIGKILL")
    wait_until(lambda: settled(cluster, 4), "all are dead")
    reports = cluster.dead()[::-1]

    assert [report["ending"] for report in reports] == ["error", "error", "cancelled", "cancelled"], (
        worker.log
    )
    assert [report["node"] for report in reports] == ["one", None, None, "one"]
    assert [report["reserved_bytes"] is not None for report in reports] == [True, False, False, True]
    assert [report["serial"] for report in reports] == [1, 2, 3, 4]


def test_attempts_count_on_across_workers_and_a_killed_server(tmp_path: Path) -> None:
    """Three in all: the first on one worker, the others on another, the server killed in between."""
    server = LastingServer(tmp_path)
    server.start()
    cluster = Cluster(broker_url=server.broker_url, server=server.client, folder=tmp_path)
    try:
        kwargs = {"number": 1, "log": cluster.run_log, "sleep_seconds": 0.5, "kill_always": True}
        cluster.send("noop", kwargs=kwargs)
        first = cluster.start_worker("first", cpus=1)
        wait_until(cluster.runs, "the job runs")
        first.stop()
        server.kill()
        server.start()
        second = cluster.start_worker("second", cpus=1)
        wait_until(lambda: settled(cluster, 1), "it is dead")
        second.stop()
        (dead,) = cluster.dead()
    finally:
        end(cluster.workers)
        server.kill()
        server.client.close()

    assert run_counts(cluster) == {1: 3}
    assert (dead["ending"], dead["attempts"], dead["node"], dead["lost"]) == ("killed", 3, "second", 0)


def end(workers: list[Worker]) -> None:
    """Kill what still runs."""
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


def test_a_job_that_kills_its_spawner_is_given_up_like_one_that_loses_nodes(cluster: Cluster) -> None:
    """It is the tenth time; whoever ran beside it has no attempt counted, and is done."""
    with_history(cluster, lost=8, number=1, kill_spawner=True)
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log, "sleep_seconds": 2})
    worker = cluster.start_worker(cpus=2)
    wait_until(lambda: settled(cluster, 2), "both are settled")

    (dead,) = cluster.dead()
    assert (dead["ending"], dead["attempts"], dead["lost"], dead["node"]) == ("lost_node", 0, 10, "one")
    assert run_counts(cluster)[1] == 2
    assert run_counts(cluster)[2] >= 1
    assert "suspect_given_back" not in worker.log


def with_history(cluster: Cluster, *, lost: int, **kwargs: Any) -> None:
    """Send a job that so many nodes were lost with."""
    cluster.send("noop", kwargs={"log": cluster.run_log, **kwargs})
    text = cluster.server.rpop("noop")
    assert isinstance(text, bytes)
    history = f'{{"tiepoint":{{"attempts":0,"lost":{lost},"estimate":{{}}}},'.encode()
    cluster.server.lpush("noop", history + text[1:])


def test_a_dead_job_that_is_put_back_has_three_attempts_again(cluster: Cluster) -> None:
    """And is done when what it wanted is there, under its id."""
    wanted = cluster.folder / "wanted"
    store = cluster.folder / "store"
    killing = cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "kill_always": True})
    wanting = cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log, "wants": str(wanted)})
    cluster.start_worker(cpus=1)
    wait_until(lambda: settled(cluster, 2), "both are dead")
    wanted.touch()
    with Client(cluster.broker_url, store) as client:
        put_back = [client.retry(killing), client.retry(wanting)]
    wait_until(lambda: settled(cluster, 2), "both are settled again")

    assert put_back == [None, None]
    assert run_counts(cluster) == {1: 6, 2: 2}
    assert [(dead["job_id"], dead["attempts"]) for dead in cluster.dead()] == [(killing, 3)]
    assert count_jobs(cluster.server, KINDS).done == 1

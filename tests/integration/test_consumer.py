"""A governed worker, driven by a stock client, with jobs that do nothing."""

import base64
import json
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import psutil
import pytest

from governor.gpu import find_gpu
from governor.model import Estimate
from tests.integration.conftest import DEADLINE_SECONDS, Cluster, wait_until
from worker import keys

MIB = 1024 * 1024


def test_jobs_of_a_stock_client_run_once_in_batches(cluster: Cluster) -> None:
    """Every job runs once, and waiting ones are fused into batches."""
    for number in range(40):
        cluster.send("noop.batch8", kwargs={"number": number, "log": cluster.run_log})
    cluster.start_worker()
    wait_until(lambda: len(cluster.runs()) >= 40 and not cluster.inflight(), "all jobs are settled")

    runs = cluster.runs()
    assert sorted(number for number, _, _ in runs) == list(range(40))
    assert max(batch for _, batch, _ in runs) > 1


def test_a_job_sent_to_an_idle_worker_wakes_it(cluster: Cluster) -> None:
    """The wake-up comes from Redis: it arrives well before the 5 s sweep."""
    worker = cluster.start_worker()
    time.sleep(1)  # Whatever the start has still to do is done: the node is idle.
    before = time.monotonic()
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    wait_until(cluster.runs, "the job has run")

    assert time.monotonic() - before < 4.0
    assert worker.process.poll() is None


def test_a_dead_child_costs_its_item_an_attempt_and_no_bystander(cluster: Cluster) -> None:
    """The item whose process died runs again, alone; the others run once."""
    marker = str(cluster.folder / "killed")
    for number in range(8):
        kill = {"kill_once": marker} if number == 2 else {}
        cluster.send("noop.batch8", kwargs={"number": number, "log": cluster.run_log, **kill})
    cluster.start_worker(cpus=1)
    wait_until(
        lambda: {n for n, _, _ in cluster.runs()} == set(range(8)) and not cluster.inflight(), "all ran"
    )

    counts = [sum(number == n for n, _, _ in cluster.runs()) for number in range(8)]
    assert counts == [1, 1, 2, 1, 1, 1, 1, 1]
    assert [batch for number, batch, _ in cluster.runs() if number == 2][1] == 1
    assert cluster.dead() == []


def test_a_job_that_always_kills_its_process_is_dead_after_three_attempts(cluster: Cluster) -> None:
    """Poison does not loop; its report names the cause."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "kill_always": True})
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    cluster.start_worker()
    reports = wait_until(cluster.dead, "the job is given up")
    wait_until(lambda: not cluster.inflight(), "everything is settled")

    assert [number for number, _, _ in cluster.runs()].count(1) == 3
    assert [number for number, _, _ in cluster.runs()].count(2) == 1
    assert reports[0]["reason"] == "worker_lost"
    assert "SIGKILL" in reports[0]["cause"]


def test_jobs_of_a_killed_worker_run_on_another_when_its_lease_ends(cluster: Cluster) -> None:
    """A claimed message belongs to a lease; no visibility timeout is waited for."""
    first = cluster.start_worker("first")
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(cluster.runs, "the job runs")
    first.stop(signal.SIGKILL)
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    cluster.start_worker("second")
    wait_until(lambda: [n for n, _, _ in cluster.runs()].count(1) == 2, "the lost job runs again")

    assert [n for n, _, _ in cluster.runs()].count(2) == 1


def test_no_process_outlives_a_killed_worker(cluster: Cluster) -> None:
    """Spawner and children die with the main process."""
    worker = cluster.start_worker()
    children = wait_until(worker.children, "the children are there")
    worker.stop(signal.SIGKILL)

    wait_until(lambda: not any(child.is_running() for child in children), "all children are gone")


def test_a_warm_shutdown_finishes_what_runs_and_leaves_the_rest(cluster: Cluster) -> None:
    """SIGTERM: the running job is settled, the waiting ones stay in Redis, the lease is gone."""
    worker = cluster.start_worker(cpus=1)
    for number in range(3):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log, "sleep_seconds": 2})
    wait_until(cluster.runs, "the first job runs")
    code = worker.stop(signal.SIGTERM)

    assert code == 0
    assert len(cluster.runs()) == 1
    assert cluster.server.llen("noop") == 2
    assert cluster.inflight() == 0
    assert cluster.server.zcard(keys.LEASES) == 0


def test_a_cold_shutdown_gives_everything_back(cluster: Cluster) -> None:
    """SIGQUIT: running jobs are killed, their messages are in the queue again, no attempt counted."""
    worker = cluster.start_worker(cpus=1)
    for number in range(3):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(cluster.runs, "the first job runs")
    worker.stop(signal.SIGQUIT)

    assert cluster.server.llen("noop") == 3
    assert cluster.inflight() == 0


def test_a_failed_job_is_reported_with_cause_and_cure(cluster: Cluster) -> None:
    """An item that cannot succeed fails once, with its reason."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "fail": True})
    cluster.start_worker()
    reports = wait_until(cluster.dead, "the job has failed")

    assert len(cluster.runs()) == 1
    assert (reports[0]["reason"], reports[0]["cause"], reports[0]["cure"]) == (
        "unreadable",
        "told to",
        "none",
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kwargs": {"no_such_argument": 1}}, "invalid_arguments"),
        ({"kwargs": {"number": "many"}}, "invalid_arguments"),
        ({"task": "no.such.task", "kwargs": {}}, "unknown_task"),
        ({"task": "noop.batch8", "kwargs": {}}, "unknown_task"),
        ({"kwargs": {}, "headers": {"estimate": "lots"}}, "invalid_estimate"),
        ({"kwargs": {}, "headers": {"estimate": Estimate(max_batch=0).to_header()}}, "invalid_estimate"),
    ],
)
def test_a_bad_job_fails_at_once_and_holds_up_nobody(
    cluster: Cluster, options: dict[str, Any], reason: str
) -> None:
    """Whatever a client sends costs one job."""
    cluster.send("noop", **options)
    cluster.send("noop", kwargs={"number": 7, "log": cluster.run_log})
    cluster.start_worker()
    reports = wait_until(cluster.dead, "the bad job is refused")
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the good job is settled")

    assert [report["reason"] for report in reports] == [reason]
    assert [number for number, _, _ in cluster.runs()] == [7]


@pytest.mark.parametrize("text", [b"", b"not json", b"[]", b"{}", b'{"headers": 1}', b'{"headers": {}}'])
def test_a_message_that_is_none_is_dropped_with_a_report(cluster: Cluster, text: bytes) -> None:
    """Garbage in the list neither stops the worker nor stays in the way."""
    cluster.server.lpush("noop", text)
    cluster.send("noop", kwargs={"number": 7, "log": cluster.run_log})
    worker = cluster.start_worker()
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the good job is settled")

    assert cluster.dead()[0]["reason"] in {"undecodable_message", "unknown_task"}
    assert worker.process.poll() is None


def test_a_job_with_a_later_time_waits_in_redis(cluster: Cluster) -> None:
    """An ETA holds neither a reservation nor a place in the worker."""
    cluster.start_worker()
    cluster.send(
        "noop", kwargs={"number": 1, "log": cluster.run_log}, eta=datetime.now(UTC) + timedelta(seconds=3)
    )
    wait_until(lambda: cluster.server.zcard(keys.DELAYED), "the job is parked")

    assert cluster.inflight() == 0
    wait_until(cluster.runs, "the job runs when it is due")


def test_a_head_too_large_for_the_node_is_set_aside(cluster: Cluster) -> None:
    """Decision 5: no head blocks a queue; the large job waits for a bigger node."""
    estimate = Estimate(memory_fixed_bytes=2**50, io_slots=1).to_header()
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log}, headers={"estimate": estimate})
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    cluster.start_worker()
    wait_until(cluster.runs, "the small job has run")

    assert [number for number, _, _ in cluster.runs()] == [2]
    assert cluster.server.zrange(keys.large("noop"), 0, -1, withscores=True)[0][1] == 2**50


def test_without_other_nodes_a_job_too_large_fails_with_numbers(cluster: Cluster) -> None:
    """A single node says what the job needs and what there is, instead of waiting for ever."""
    estimate = Estimate(memory_fixed_bytes=2**50, io_slots=1).to_header()
    cluster.send("noop", kwargs={"number": 1}, headers={"estimate": estimate})
    cluster.start_worker(single_node=True)
    reports = wait_until(cluster.dead, "the job is refused")

    assert reports[0]["reason"] == "needs_bigger_node"
    assert reports[0]["cause"].startswith("needs 1048576 GiB, this node offers at most ")


def test_an_entry_set_aside_runs_on_a_node_that_has_room(cluster: Cluster) -> None:
    """The large set is looked at first by a node that can take its largest entry."""
    estimate = Estimate(memory_fixed_bytes=1024 * MIB, io_slots=1).to_header()
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log}, headers={"estimate": estimate})
    small = cluster.start_worker("small", memory_bytes=1200 * MIB)
    wait_until(lambda: cluster.server.zcard(keys.large("noop")), "the small node sets it aside")
    cluster.start_worker("big")
    wait_until(cluster.runs, "the big node runs it")

    assert small.process.poll() is None
    assert cluster.server.zcard(keys.large("noop")) == 0


def test_the_peak_of_a_batch_is_measured_and_within_what_it_allocated(cluster: Cluster) -> None:
    """A child that uses more than was reserved is told by its measured peak."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "allocate_bytes": 40 * MIB})
    worker = cluster.start_worker()
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the job is settled")
    wait_until(lambda: "reservation_exceeded" in worker.log, "the overuse is noticed")

    peak_bytes = int(worker.log.split("peak_bytes=")[1].split()[0])
    # The kernel sums its page counters lazily: the mark may be some hundred KiB off.
    assert 39 * MIB < peak_bytes < 44 * MIB


def test_inspect_answers_with_the_state_of_the_governor(cluster: Cluster) -> None:
    """The stock control commands work, and stats carries the governor."""
    cluster.start_worker()
    with cluster.stock as client:
        inspect = client.control.inspect(timeout=5)
        stats = wait_until(inspect.stats, "a worker answers")
        queues = inspect.active_queues()
    governor = next(iter(stats.values()))["governor"]

    assert governor["pressure"] == "GREEN"
    assert int(governor["budget_memory_bytes"]) > 0
    assert queues is not None
    assert {queue["name"] for queue in next(iter(queues.values()))} >= {"noop", "noop.batch8"}


def test_a_cancelled_queue_is_left_alone_until_it_is_added_again(cluster: Cluster) -> None:
    """cancel_consumer and add_consumer work as in a stock worker."""
    cluster.start_worker()
    cluster.ask("cancel_consumer", queue="noop")
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    cluster.send("noop.batch8", kwargs={"number": 2, "log": cluster.run_log})
    wait_until(cluster.runs, "the other queue is served")
    assert [number for number, _, _ in cluster.runs()] == [2]
    cluster.ask("add_consumer", queue="noop")

    wait_until(lambda: len(cluster.runs()) == 2, "the queue is served again")


def test_a_revoked_job_that_waits_never_runs(cluster: Cluster) -> None:
    """Revocation by id works for a job that is still in Redis."""
    worker = cluster.start_worker(cpus=1)
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 3})
    wait_until(cluster.runs, "the first job runs")
    waiting = cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    cluster.ask("revoke", task_id=waiting)
    reports = wait_until(cluster.dead, "the waiting job is settled as cancelled")

    assert reports[0]["reason"] == "cancelled"
    assert [number for number, _, _ in cluster.runs()] == [1]
    assert worker.process.poll() is None


def test_terminating_a_running_job_kills_it_and_spares_the_others(cluster: Cluster) -> None:
    """revoke(terminate) ends the job's process; another job goes on."""
    cluster.start_worker(cpus=2)
    running = cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(cluster.runs, "the job runs")
    cluster.ask("revoke", task_id=running, terminate=True, signal="SIGKILL")
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    wait_until(lambda: len(cluster.runs()) == 2 and not cluster.inflight(), "the next job is settled")

    assert cluster.dead()[0]["reason"] == "cancelled"


def test_events_of_a_job_are_those_of_stock_celery(cluster: Cluster) -> None:
    """received, started, succeeded: what Flower needs."""
    cluster.start_worker()
    seen: dict[str, list[str]] = {}
    complete = ["task-received", "task-started", "task-succeeded"]

    def note(event: dict[str, Any]) -> None:
        seen.setdefault(event.get("uuid", ""), []).append(event["type"])
        receiver.should_stop = complete in seen.values()

    with cluster.stock as client, client.connection() as connection:
        receiver = client.events.Receiver(connection, handlers={"*": note})
        listener = Thread(target=receiver.capture, kwargs={"limit": None, "timeout": DEADLINE_SECONDS})
        listener.start()
        # Events are not kept for those who come late: send until one job is seen whole.
        for _ in range(int(DEADLINE_SECONDS)):
            cluster.send("noop")
            listener.join(1.0)
            if not listener.is_alive():
                break

    assert complete in seen.values()


def test_the_registry_of_nodes_shows_budget_and_reservations(cluster: Cluster) -> None:
    """Each node keeps an entry that ends with its lease."""
    worker = cluster.start_worker("shown")
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "sleep_seconds": 600})
    wait_until(lambda: cluster.reserved_bytes("shown") == 5 * MIB, "the reservation is shown")
    worker.stop(signal.SIGKILL)

    wait_until(lambda: not cluster.server.exists(keys.node("shown")), "the entry ends with the lease")
    assert json.dumps(cluster.dead()) == "[]"


def test_a_job_that_needs_more_than_its_kind_says_gets_it(cluster: Cluster) -> None:
    """The callback names its need; the message goes back with it, no attempt counted."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log, "needs_bytes": 300 * MIB})
    worker = cluster.start_worker()
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the job is settled")

    assert len(cluster.runs()) == 1
    assert cluster.dead() == []
    assert "suspect" not in worker.log


def test_a_job_that_asks_for_more_for_ever_fails(cluster: Cluster) -> None:
    """A need that is no larger than the grant would come back without end."""
    cluster.send("noop", kwargs={"stubborn": True})
    cluster.start_worker()
    reports = wait_until(cluster.dead, "the job is given up")

    assert reports[0]["reason"] == "internal_error"
    assert not cluster.inflight()


def test_a_job_that_ten_nodes_were_lost_with_is_given_up(cluster: Cluster) -> None:
    """Lost nodes count apart from dead children, with a limit of their own."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    for number, lost in ((1, 10), (2, 9)):
        text = cluster.server.rpop("noop")
        assert isinstance(text, bytes)
        history = f'{{"tiepoint":{{"attempts":0,"lost":{lost},"estimate":{{}}}},'.encode()
        cluster.server.lpush("noop", history + text[1:])
        assert f'"number": {number}'.encode() in base64.b64decode(json.loads(text)["body"])
    cluster.start_worker()
    wait_until(lambda: cluster.runs() and cluster.dead() and not cluster.inflight(), "both are settled")

    assert [number for number, _, _ in cluster.runs()] == [2]
    assert "10 nodes were lost" in cluster.dead()[0]["cause"]


def test_a_kind_of_powers_of_two_gets_no_other_batch(cluster: Cluster) -> None:
    """Seven waiting jobs become batches of 4, 2 and 1 (or smaller powers)."""
    for number in range(7):
        cluster.send("noop.powers", kwargs={"number": number, "log": cluster.run_log})
    cluster.start_worker(cpus=1)
    wait_until(lambda: len(cluster.runs()) == 7 and not cluster.inflight(), "all are settled")

    assert {batch for _, batch, _ in cluster.runs()} <= {1, 2, 4}
    assert max(batch for _, batch, _ in cluster.runs()) > 1


def test_the_worker_command_starts_a_governed_worker(cluster: Cluster) -> None:
    """`tiepoint worker` is the same worker with its settings as options."""
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log})
    options = ["--broker", cluster.broker_url, "--store", str(cluster.folder / "store"), "--name", "typed"]
    options += ["--cpus", "1", "--profile", "dedicated"]
    command = [sys.executable, "-P", "-m", "worker.cli", "worker", *options]
    worker = cluster.start_worker("typed", command=command)
    wait_until(cluster.runs, "the job has run")

    assert cluster.server.hget(keys.node("typed"), "budget_cpu_threads") == b"1"
    assert worker.stop(signal.SIGTERM) == 0


def test_a_job_for_another_sort_of_node_stays_aside_without_harm(cluster: Cluster) -> None:
    """No GPU here: the job waits for a node that has one, the others run, the worker lives."""
    if find_gpu(psutil.virtual_memory().total).gpu is not None:
        pytest.skip("this machine has a GPU")
    estimate = Estimate(memory_fixed_bytes=MIB, gpu_slots=1).to_header()
    cluster.send("noop", kwargs={"number": 1, "log": cluster.run_log}, headers={"estimate": estimate})
    worker = cluster.start_worker()
    wait_until(lambda: cluster.server.zcard(keys.large("noop")), "it is set aside")
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the other job is settled")

    assert [number for number, _, _ in cluster.runs()] == [2]
    assert worker.process.poll() is None
    assert "Error" not in worker.log


def test_an_estimate_beyond_64_bits_fails_at_once(cluster: Cluster) -> None:
    """No node can ever take it."""
    estimate = Estimate(memory_fixed_bytes=2**64 - 1, memory_per_item_bytes=2**64 - 1).to_header()
    cluster.send("noop", kwargs={"number": 1}, headers={"estimate": estimate})
    cluster.start_worker()
    reports = wait_until(cluster.dead, "it is refused")

    assert reports[0]["reason"] == "needs_bigger_node"


def test_without_other_nodes_what_does_not_fit_for_30_s_fails_with_numbers(cluster: Cluster) -> None:
    """It would fit an empty machine, but this one's memory is in use by others."""
    memory = psutil.virtual_memory()
    reserve_bytes = max(512 * MIB, memory.total // 16)
    most_ever_bytes, most_now_bytes = memory.total - reserve_bytes, memory.available - reserve_bytes
    between = Estimate(memory_fixed_bytes=(most_ever_bytes + most_now_bytes) // 2, io_slots=1)
    cluster.send("noop", kwargs={"number": 1}, headers={"estimate": between.to_header()})
    cluster.send("noop", kwargs={"number": 2, "log": cluster.run_log})
    cluster.start_worker(single_node=True)
    wait_until(cluster.runs, "the job behind it has run")
    reports = wait_until(cluster.dead, "it is given up")

    assert reports[0]["reason"] == "needs_bigger_node"
    assert " free of " in reports[0]["cause"]


def test_equal_jobs_that_wait_for_memory_keep_their_order(cluster: Cluster) -> None:
    """Each takes more than half of the memory: one runs at a time, first come first served."""
    most = psutil.virtual_memory().available - max(512 * MIB, psutil.virtual_memory().total // 16)
    estimate = Estimate(memory_fixed_bytes=most * 6 // 10, io_slots=1).to_header()
    for number in range(8):
        kwargs = {"number": number, "log": cluster.run_log, "sleep_seconds": 0.4}
        cluster.send("noop", kwargs=kwargs, headers={"estimate": estimate})
    cluster.start_worker()
    wait_until(lambda: len(cluster.runs()) == 8 and not cluster.inflight(), "all are settled")

    assert [number for number, _, _ in cluster.runs()] == list(range(8))


def test_a_photo_too_large_for_the_partition_is_told_what_would_do(cluster: Cluster) -> None:
    """The failure names the photo as its owner does, and the --memory that would admit it."""
    estimate = Estimate(memory_fixed_bytes=1536 * MIB, io_slots=1).to_header()
    place = {"project": "p", "stage": "features", "item": "ab" * 32, "name": "Große Halle.jpg"}
    cluster.send("noop", kwargs={"number": 1}, headers={"estimate": estimate, **place})
    cluster.start_worker(single_node=True, memory_bytes=1024 * MIB)
    report = wait_until(cluster.dead, "it is refused")[0]

    assert report["name"] == "Große Halle.jpg"
    assert report["cause"].startswith("needs 1.50 GiB, this node offers at most 0.50 GiB")
    assert report["cure"] == "Resume the project with --memory 2048MiB or more."

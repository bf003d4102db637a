"""Old estimates run under today's reservation and stay as they are in Redis; near misses fail at once."""

import json
import signal
from dataclasses import replace
from typing import Any

import pytest

from tasks.catalog import load_kinds
from tasks.old_estimates import OLD_ESTIMATES
from tests.integration.conftest import Cluster, wait_until
from tests.integration.noop_kinds import MIB, OLD_ESTIMATE
from tests.unit.worker.builders import a_job
from worker import keys
from worker.envelope import to_message

KIND = "noop.forms"
NEAR_MISS = replace(OLD_ESTIMATE, memory_fixed_bytes=MIB + 1)
DIFFERENCE = f"noop.forms accepts: memory_fixed_bytes is {MIB + 1}, not {MIB}"
TAKEN_ANYWHERE = [
    (name, old)
    for name, forms in OLD_ESTIMATES.items()
    for old in forms
    if not load_kinds()[name].needs_opencl
]
"""What a node without a GPU does not pull is in ``test_gpu_matching``."""


def large_entry(estimate: str, cluster: Cluster) -> bytes:
    """Return a message as it lies in the large set of its kind."""
    payload = {"number": 1, "log": cluster.run_log}
    message = json.loads(to_message(a_job(kind=KIND, payload=payload)))
    message["headers"]["estimate"] = estimate
    return f"{KIND}\0{json.dumps(message)}".encode()


def send(cluster: Cluster, estimate: str, **kwargs: Any) -> None:
    """Send a no-op job with an explicit estimate, as a stock client does."""
    cluster.send(KIND, kwargs={"log": cluster.run_log, **kwargs}, headers={"estimate": estimate})


def test_an_old_form_runs_under_todays_reservation_and_is_not_rewritten(cluster: Cluster) -> None:
    """Other programs may still read what they have stored."""
    worker = cluster.start_worker()
    send(cluster, OLD_ESTIMATE.to_header(), number=1, sleep_seconds=600.0)
    wait_until(cluster.runs, "the job runs")
    wait_until(lambda: cluster.reserved_bytes("one") == 5 * MIB, "today's 4 MiB and 1 MiB are reserved")
    worker.stop(signal.SIGQUIT)

    [waiting] = [json.loads(text) for text in cluster.server.lrange(keys.queue_list(KIND, 0), 0, -1)]
    assert waiting["headers"]["estimate"] == OLD_ESTIMATE.to_header()
    assert waiting.get("tiepoint", {}).get("estimate", {}) == {}


def test_a_near_miss_fails_at_once_and_the_job_behind_it_runs(cluster: Cluster) -> None:
    """The list of the dead names the difference and what to send."""
    send(cluster, NEAR_MISS.to_header(), number=1)
    send(cluster, OLD_ESTIMATE.to_header(), number=2)
    cluster.start_worker()
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the good job has run")

    [dead] = cluster.dead()
    assert [number for number, _, _ in cluster.runs()] == [2]
    assert dead["reason"] == "invalid_estimate"
    assert dead["cause"].endswith(DIFFERENCE)
    assert '"memory_fixed_bytes":4194304' in dead["cure"]


def test_a_message_that_claims_to_be_moved_gets_no_more_than_more_memory(cluster: Cluster) -> None:
    """Whoever writes past Celery can forge a node's splice; a near miss in anything else is still refused."""
    today = load_kinds(("tests.integration.noop_kinds",))[KIND].estimate
    for number, forged in enumerate(
        (replace(today, cpu_threads=2), replace(today, memory_per_item_bytes=2 * MIB))
    ):
        text = to_message(a_job(kind=KIND, payload={"number": number, "log": cluster.run_log}))
        history = f'{{"tiepoint":{{"attempts":0,"lost":0,"estimate":{forged.to_header()}}},'
        cluster.server.lpush(KIND, history + text[1:])
    cluster.start_worker()
    wait_until(lambda: cluster.runs() and not cluster.inflight(), "the one that asks for memory has run")

    [dead] = cluster.dead()
    assert [number for number, _, _ in cluster.runs()] == [1]
    assert dead["reason"] == "invalid_estimate"
    assert "cpu_threads is 2, not 1" in dead["cause"]


def test_each_old_form_of_the_catalogue_is_refused_by_a_worker_when_it_is_one_thread_off(
    cluster: Cluster,
) -> None:
    """Every row of the table reaches the worker."""
    sent = [(name, replace(old, cpu_threads=old.cpu_threads + 1)) for name, old in TAKEN_ANYWHERE]
    for name, estimate in sent:
        cluster.send(name, kwargs={}, headers={"estimate": estimate.to_header()})
    cluster.start_worker()
    wait_until(lambda: len(cluster.dead()) >= len(sent), "every job has failed")

    told = {(dead["kind"], dead["reason"]) for dead in cluster.dead()}
    assert told == {(name, "invalid_estimate") for name, _ in sent}
    for name, estimate in sent:
        causes = [dead["cause"] for dead in cluster.dead() if dead["kind"] == name]
        assert any(f"cpu_threads is {estimate.cpu_threads}, not " in cause for cause in causes)


def test_each_old_form_of_the_catalogue_passes_a_worker(cluster: Cluster) -> None:
    """It comes as far as its arguments, which are wrong here."""
    sent = TAKEN_ANYWHERE
    for name, old in sent:
        cluster.send(name, kwargs={"no_such": 1}, headers={"estimate": old.to_header()})
    cluster.start_worker()
    wait_until(lambda: len(cluster.dead()) >= len(sent), "every job has failed")

    assert load_kinds().keys() >= {name for name, _ in sent}
    assert {dead["reason"] for dead in cluster.dead()} == {"invalid_arguments"}


@pytest.mark.parametrize("charged_bytes", [MIB, 2**60], ids=["that fits", "that fits nowhere"])
def test_a_near_miss_in_a_large_set_fails_and_what_is_behind_it_runs(
    cluster: Cluster, charged_bytes: int
) -> None:
    """A worker of another version may have set it aside; here it is a wrong estimate, however large."""
    large = {
        large_entry(NEAR_MISS.to_header(), cluster): charged_bytes,
        large_entry(OLD_ESTIMATE.to_header(), cluster): 1000,
    }
    cluster.server.zadd(keys.large(KIND), large)
    cluster.start_worker(single_node="true")
    wait_until(lambda: cluster.dead() and cluster.runs(), "one has failed and one has run")

    assert [dead["cause"].endswith(DIFFERENCE) for dead in cluster.dead()] == [True]

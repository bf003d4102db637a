"""Flower shows a governed worker and its jobs, and its buttons do what they say."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.flower_process import USER, Flower, running_flower
from tests.integration.conftest import Cluster, wait_until
from worker import embedded
from worker.embedded import embedded_server

MIB = 1 << 20
FOREVER_SECONDS = 600.0
BOTH_WAYS = pytest.mark.parametrize("broker_url", ["socket", "port"], indirect=True)


@pytest.fixture
def broker_url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a fresh server; one behind a port has a password."""
    if getattr(request, "param", "socket") == "port":
        monkeypatch.setattr(embedded, "_LONGEST_SOCKET_PATH", 0)
    with embedded_server() as server:
        yield server.broker_url


@pytest.fixture
def flower(cluster: Cluster) -> Iterator[Flower]:
    """Return a Flower that looks at a cluster without workers yet."""
    with running_flower(cluster.broker_url, cluster.folder) as flower:
        yield flower


def described(flower: Flower, node: str = "one") -> dict[str, Any]:
    """Return what a worker says of itself, once it does."""

    def found() -> Any:
        workers = flower.workers()
        return next((worker for name, worker in workers.items() if name.startswith(f"{node}@")), None)

    worker: dict[str, Any] = wait_until(found, f"Flower has heard of {node}")
    return worker


def full_name(flower: Flower, node: str = "one") -> str:
    """Return a worker's name with its host."""
    return str(wait_until(lambda: flower.rows().get(node), f"{node} is on the page")["hostname"])


def wait_for_states(flower: Flower, ids: list[str], *wanted: str) -> None:
    """Wait until jobs are in these states."""
    wait_until(lambda: flower.states(*ids) == list(wanted), f"Flower shows {wanted}")


@BOTH_WAYS
def test_a_running_job_the_queues_and_the_governor_are_shown(cluster: Cluster, flower: Flower) -> None:
    """The lists of all priorities are added up, and what is reserved is there with its reason to wait."""
    cluster.start_worker(cpus=1)
    running = cluster.send("noop", kwargs={"sleep_seconds": FOREVER_SECONDS})
    wait_for_states(flower, [running], "STARTED")
    for priority in (0, 3, 6, 9):
        cluster.send("noop", priority=priority)
    worker = described(flower)
    governor = worker["stats"]["governor"]

    assert flower.queue_lengths()["noop"] == 4
    assert {queue["name"] for queue in worker["active_queues"]} >= {"noop", "features.extract"}
    assert int(governor["reserved_memory_bytes"]) >= 5 * MIB
    assert (governor["name"], governor["active_reservations"]) == ("one", "1")
    assert any(decision.startswith("START") for decision in governor["decisions"])
    assert worker["stats"]["pool"]["busy"] == 1


def test_a_job_that_is_terminated_makes_room_for_the_others(cluster: Cluster, flower: Flower) -> None:
    """Terminate ends a running job, Revoke one that waits; the rest runs."""
    cluster.start_worker(cpus=1)
    running = cluster.send("noop", kwargs={"sleep_seconds": FOREVER_SECONDS})
    wait_for_states(flower, [running], "STARTED")
    waiting = [cluster.send("noop", kwargs={"fail": fail}) for fail in (False, True, False)]
    answers = [
        flower.ask(f"/api/task/revoke/{waiting[0]}", method="POST"),
        flower.ask(f"/api/task/revoke/{running}?terminate=true&signal=SIGKILL", method="POST"),
    ]

    assert [answer.status for answer in answers] == [200, 200]
    wait_for_states(flower, [running, *waiting], "REVOKED", "REVOKED", "FAILURE", "SUCCESS")
    assert flower.tasks()[waiting[1]]["exception"] == "unreadable: told to"
    assert len(cluster.dead()) == 3


def test_a_job_whose_process_died_is_shown_as_tried_again(cluster: Cluster, flower: Flower) -> None:
    """Not as running for as long as it waits."""
    cluster.start_worker(cpus=1)
    job = cluster.send("noop", kwargs={"kill_once": str(cluster.folder / "killed")})
    wait_for_states(flower, [job], "SUCCESS")

    row = flower.rows()["one"]
    assert (row["task-started"], row["task-retried"], row["task-succeeded"]) == (2, 1, 1)
    assert flower.tasks()[job]["retries"] is not None
    assert "killed" in flower.tasks()[job]["exception"]


def test_a_worker_that_is_shut_down_finishes_its_job(cluster: Cluster, flower: Flower) -> None:
    """The button is a warm shutdown: nothing is lost, and the page says that it is gone."""
    worker = cluster.start_worker(cpus=1)
    described(flower)
    job = cluster.send("noop", kwargs={"sleep_seconds": 1})
    wait_for_states(flower, [job], "STARTED")
    answer = flower.ask(f"/api/worker/shutdown/{full_name(flower)}", method="POST")

    assert answer.json == {"message": "Shutting down!"}
    assert worker.process.wait(60) == 0
    wait_for_states(flower, [job], "SUCCESS")
    wait_until(lambda: not flower.rows()["one"]["status"], "it is shown as offline")
    assert cluster.inflight() == 0


def test_the_number_of_processes_follows_the_buttons(cluster: Cluster, flower: Flower) -> None:
    """Grow and Shrink; the governor binds all the same."""
    cluster.start_worker(cpus=1)
    described(flower)
    grown = flower.ask(f"/api/worker/pool/grow/{full_name(flower)}?n=1", method="POST")
    wait_until(lambda: len(described(flower)["stats"]["pool"]["processes"]) == 2, "there are two")
    flower.ask(f"/api/worker/pool/shrink/{full_name(flower)}?n=1", method="POST")

    assert grown.status == 200
    wait_until(lambda: len(described(flower)["stats"]["pool"]["processes"]) == 1, "there is one")


def test_a_queue_is_left_and_entered_by_its_buttons(cluster: Cluster, flower: Flower) -> None:
    """The jobs of a queue that nobody consumes wait."""
    cluster.start_worker(cpus=1)
    described(flower)
    name = full_name(flower)
    flower.ask(f"/api/worker/queue/cancel-consumer/{name}?queue=noop", method="POST")
    wait_until(lambda: "noop" not in queues_of(flower), "it is left")
    job, other = cluster.send("noop"), cluster.send("noop.batch8")
    wait_for_states(flower, [other], "SUCCESS")

    assert flower.states(job) == [None]
    flower.ask(f"/api/worker/queue/add-consumer/{name}?queue=noop", method="POST")
    wait_for_states(flower, [job], "SUCCESS")


def queues_of(flower: Flower) -> set[str]:
    """Return the queues that a worker takes jobs from."""
    return {queue["name"] for queue in described(flower)["active_queues"]}


def test_arguments_are_shown_by_their_beginning(cluster: Cluster, flower: Flower) -> None:
    """Flower keeps them in memory for every job that it remembers."""
    cluster.start_worker(cpus=1)
    job = cluster.send("noop", kwargs={"kill_once": "x" * 3000})
    wait_for_states(flower, [job], "FAILURE")
    shown = flower.tasks()[job]

    assert shown["kwargs"].startswith("{'kill_once': 'xxx")
    assert len(shown["kwargs"]) == 256
    assert len(shown["exception"]) == 1000


def test_the_oldest_jobs_are_forgotten(cluster: Cluster) -> None:
    """And the newest are not."""
    with running_flower(cluster.broker_url, cluster.folder, "--max-tasks", "5") as flower:
        cluster.start_worker(cpus=1)
        described(flower)
        jobs = [cluster.send("noop") for _ in range(12)]
        wait_for_states(flower, jobs[-1:], "SUCCESS")

        assert set(flower.tasks()) == set(jobs[-5:])


def test_a_worker_that_is_gone_leaves_the_page(cluster: Cluster) -> None:
    """Killed, it says nothing; its heartbeats end."""
    with running_flower(cluster.broker_url, cluster.folder, "--purge-seconds", "5") as flower:
        worker = cluster.start_worker(cpus=1)
        wait_until(lambda: flower.rows().get("one", {}).get("status"), "it is on the page")
        worker.process.kill()
        wait_until(lambda: not flower.rows().get("one", {"status": False})["status"], "it is offline")

        wait_until(lambda: "one" not in flower.rows(), "it has left the page")


def test_prometheus_is_told_what_nodes_plan(cluster: Cluster, flower: Flower) -> None:
    """Beside Flower's own figures."""
    planning = '{"margin_percent": 120, "margin_learning": {}}'
    cluster.start_worker(cpus=1, planning=planning)
    page = flower.ask("/metrics").text

    assert "tiepoint_learned_device_factor_percent 120.0" in page
    assert 'tiepoint_factor_verdicts{verdict="nothing_kept"} 1.0' in page
    assert "flower_" in page


def test_nobody_gets_in_without_the_password(flower: Flower) -> None:
    """Neither to the pages nor to the API."""
    for path in ("/", "/workers", "/tasks", "/broker", "/api/workers", "/api/tasks", "/api/queues/length"):
        assert flower.ask(path, user="").status == 401
        assert flower.ask(path, user="ann:open-sesame!").status == 401
        assert flower.ask(path).status == 200
    assert flower.ask("/api/worker/shutdown/one", method="POST", user="").status == 401


@BOTH_WAYS
def test_no_password_can_be_read_by_others(cluster: Cluster, flower: Flower) -> None:
    """Not in the list of processes, not in what Flower shows of a worker."""
    cluster.start_worker(cpus=1)
    told = repr(described(flower)) + flower.ask("/broker").text + flower.log
    (_, _, after) = cluster.broker_url.partition("://:")
    secrets = [USER.partition(":")[2], *([after.partition("@")[0]] if after else [])]

    arguments = " ".join(psutil.Process(flower.process.pid).cmdline())
    assert [secret for secret in secrets if secret in arguments + told] == []


@pytest.mark.parametrize("is_api_open", ["", "true"])
def test_without_users_nobody_can_press_a_button(cluster: Cluster, is_api_open: str) -> None:
    """Any page in a browser of this machine could; looking is allowed."""
    environment = {"FLOWER_UNAUTHENTICATED_API": is_api_open}
    with running_flower(cluster.broker_url, cluster.folder, user="", **environment) as flower:
        worker = cluster.start_worker(cpus=1)
        name = full_name(flower)
        answer = flower.ask(f"/api/worker/shutdown/{name}", method="POST")

        assert flower.ask("/api/workers").status == (200 if is_api_open else 401)
        assert answer.status == (403 if is_api_open else 401)
        assert "Shut Down" not in flower.ask(f"/worker/{name}").text
        assert worker.process.poll() is None

"""What a node has learned is in Redis soon after, survives it, and is believed where it holds."""

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from governor.planning.profile import CellKey, Durations, ProfileSet
from tests.integration.conftest import Cluster, Worker, wait_until
from tests.integration.scripted_node import ScriptedNode, leased_node
from tests.integration.test_planning import planning_of
from tests.unit.worker.test_cli import invoke
from worker import keys
from worker.factor_store import FactorKeeper
from worker.planning import NodePlanning
from worker.planning_settings import MarginLearning, PlanningSettings
from worker.redis_scripts import Script, run

KEY = keys.factors("one", "f", "p")


def keep(node: ScriptedNode, sequence: int, text: str = "x") -> int:
    """Write a state down as a node."""
    names = [keys.LEASES, KEY, keys.factor_index("one")]
    told = ["sequence", str(sequence), "text", text]
    return int(run(node.server, Script.KEEP_FACTORS, names, node.incarnation, sequence, 100, *told))


def kept_text(server: "redis.Redis") -> str:
    """Return what is written down."""
    text: Any = server.hget(KEY, "text")
    return str(text.decode())


def test_a_node_writes_its_states_in_their_order(server: "redis.Redis") -> None:
    """Whole, each in the place of the one before; they last, and are listed."""
    node = leased_node(server)
    answers = [keep(node, 1, "first"), keep(node, 2, "second")]

    assert answers == [1, 1]
    assert kept_text(server) == "second"
    assert 0 < int(server.ttl(KEY)) <= 100
    assert server.smembers(keys.factor_index("one")) == {KEY.encode()}


@pytest.mark.parametrize("sequence", [4, 5])
def test_a_state_that_is_not_later_is_refused(server: "redis.Redis", sequence: int) -> None:
    """Of the same sequence, too."""
    node = leased_node(server)
    keep(node, 5, "later")

    assert keep(node, sequence, "older") == 0
    assert kept_text(server) == "later"


def test_a_node_whose_lease_has_ended_writes_nothing(server: "redis.Redis") -> None:
    """A zombie has learned on, and its successor knows better."""
    node = leased_node(server)
    keep(node, 1, "alive")
    node.expire()

    assert keep(node, 9, "zombie") == -1
    assert kept_text(server) == "alive"


def learn(cluster: Cluster, worker: Worker, jobs: int) -> dict[str, Any]:
    """Let a worker work until it has learned from so many batches; return what it says."""
    for number in range(jobs):
        cluster.send("noop", kwargs={"number": number, "log": cluster.run_log})
        wait_until(lambda: not cluster.inflight() and not cluster.server.llen("noop"), "it is settled")
    assert worker.process.poll() is None
    planning = planning_of(cluster)
    assert planning is not None
    return planning


def start(cluster: Cluster, profiles: Path, *, cpus: int = 1) -> Worker:
    """Start a worker that learns."""
    told = json.dumps({"margin_learning": {}, "profiles": str(profiles)})
    return cluster.start_worker(cpus=cpus, planning=told)


def test_a_killed_node_goes_on_where_it_was_written_down(cluster: Cluster, profiles: Path) -> None:
    """Sixteen batches are; SIGKILL leaves no time for more. On other hardware nothing of it holds."""
    worker = start(cluster, profiles)
    before = learn(cluster, worker, 16)
    wait_until(lambda: cluster.server.exists(*_kept(cluster)) if _kept(cluster) else 0, "it is written down")
    worker.stop(signal.SIGKILL)
    again = start(cluster, profiles)
    restored = learn(cluster, again, 1)
    again.stop(signal.SIGTERM)
    start(cluster, profiles, cpus=2)
    fresh = planning_of(cluster)

    assert (before["verdict"], restored["verdict"]) == ("nothing_kept", "restored")
    assert restored["device_factor_percent"] >= before["device_factor_percent"] > 110
    assert fresh is not None
    assert (fresh["verdict"], fresh["device_factor_percent"]) == ("contradicted", 110)
    assert "was 1 and is 2" in fresh["verdict_reason"]


def test_factors_are_shown_and_forgotten_alive_or_not(cluster: Cluster, profiles: Path) -> None:
    """Memory and Redis: a live node that was reset writes nothing of before."""
    worker = start(cluster, profiles)
    learn(cluster, worker, 16)
    wait_until(lambda: told(cluster), "it is written down")
    before = told(cluster, "show", "one")
    by_node = invoke("node", "one", "--factors", "--broker", cluster.broker_url, "--json")
    reset = invoke("factors", "reset", "one", "--broker", cluster.broker_url)
    learned = planning_of(cluster)
    gone = told(cluster, "show", "one")
    learn(cluster, worker, 1)
    worker.stop(signal.SIGTERM)
    after = told(cluster, "show", "one")
    invoke("factors", "reset", "one", "--broker", cluster.broker_url)

    assert before[0]["kinds"]["noop"]["factor_percent"] > before[0]["device_factor_percent"] > 110
    assert json.loads(by_node.stdout) == {"factors": before}
    assert reset.exit_code == 0, reset.stderr
    assert learned is not None
    assert (learned["device_factor_percent"], gone) == (110, [])
    assert after[0]["observations"] == 1
    assert told(cluster, "show", "one") == []


def test_a_node_that_nobody_knows_cannot_start_over(cluster: Cluster) -> None:
    """In a sentence, exit code 2."""
    result = invoke("factors", "reset", "nobody", "--broker", cluster.broker_url)

    assert result.exit_code == 2
    assert "there is no live node nobody" in result.stderr


def told(cluster: Cluster, *arguments: str) -> list[dict[str, Any]]:
    """Return what `tiepoint factors` tells."""
    result = invoke("factors", *arguments, "--broker", cluster.broker_url, "--json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["factors"]
    return found


def test_a_node_that_ends_in_peace_writes_the_rest_down(cluster: Cluster, profiles: Path) -> None:
    """Fewer than sixteen, and sooner than five seconds."""
    worker = start(cluster, profiles)
    learn(cluster, worker, 3)
    worker.stop(signal.SIGTERM)
    (key,) = _kept(cluster)
    device_count: Any = cluster.server.hget(key, "device_count")

    assert int(device_count) == 3


def _kept(cluster: Cluster) -> list[bytes]:
    found: Any = cluster.server.smembers(keys.factor_index("one"))
    return sorted(found)


def a_keeper(url: str) -> FactorKeeper:
    """Return who keeps the factors of a node "one", which has learned from one batch."""
    durations = Durations(p50_ns=1, p95_ns=1, p99_ns=1)
    profiles = ProfileSet(cells={CellKey(kind="noop"): durations})
    planning = NodePlanning(PlanningSettings(margin_learning=MarginLearning()), profiles)
    plan = planning.plan("noop", items=1, others=0)
    assert plan is not None
    planning.complete(plan, 10)
    lease: Any = SimpleNamespace(incarnation="one|1")
    return FactorKeeper(url, "one", {"cpu_cores": "8"}, planning, lease)


def test_what_cannot_be_written_yet_is_written_when_it_can_be(server: "redis.Redis", redis_url: str) -> None:
    """A lease that has ended is taken anew; until then nothing is written, and nothing waits for it."""
    keeper = a_keeper(redis_url)
    keeper.restore(server)
    keeper.put_down()
    keys_before = server.exists(keeper.key)
    leased_node(server)
    wait_until(lambda: server.exists(keeper.key), "it is written")
    keeper.close()

    assert keys_before == 0
    assert keeper.describe()["persist_failures"] == 0


def test_without_redis_a_node_learns_on_and_ends_in_time(server: "redis.Redis", tmp_path: Path) -> None:
    """Failures are counted."""
    keeper = a_keeper(f"unix://{tmp_path}/gone.sock")
    keeper.restore(server)
    keeper.put_down()
    wait_until(lambda: keeper.failures, "it has failed")
    keeper.close()

    assert keeper.describe()["verdict"] == "nothing_kept"


def test_a_state_that_nobody_can_read_is_replaced(server: "redis.Redis", redis_url: str) -> None:
    """Whatever number it says it has."""
    leased_node(server)
    keeper = a_keeper(redis_url)
    server.hset(keeper.key, mapping={"schema": "9", "sequence": "500"})
    server.sadd(keys.factor_index("one"), keeper.key)
    keeper.restore(server)
    keeper.put_down()
    wait_until(lambda: server.hget(keeper.key, "schema") == b"1", "it is replaced")
    keeper.close()

    assert keeper.describe()["verdict"] == "unreadable"
    assert server.hget(keeper.key, "sequence") == b"501"

"""`tiepoint doctor`, against a real server: what is wrong is told, and what is right is not blamed."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from tasks.catalog import load_kinds
from tasks.store import Store
from tests.integration.scripted_node import leased_node
from worker import keys, queue_checks
from worker.cli import app
from worker.connections import plain_client
from worker.doctor import examine
from worker.findings import Finding, State
from worker.project_queue import ProjectQueue
from worker.queue_checks import Check, Queue
from worker.settings import Settings


@pytest.fixture
def queue(broker_url: str, server: "redis.Redis") -> Iterator[Queue]:
    """Return a fresh queue to be checked."""
    projects = ProjectQueue(broker_url.replace("redis+socket://", "unix://", 1))
    yield Queue(client=server, projects=projects, kinds=load_kinds(()), store_id="ours")
    projects.close()


def set_up(server: "redis.Redis", **options: str) -> None:
    """Change the server's configuration."""
    for name, value in options.items():
        server.config_set(name.replace("_", "-"), value)


def test_the_append_only_file_is_missed(queue: Queue, server: "redis.Redis") -> None:
    """Without it a restart loses what waits; with it there is nothing to say."""
    before = queue_checks.check_persistence(queue)
    set_up(server, appendonly="yes")
    after = queue_checks.check_persistence(queue)
    set_up(server, appendonly="no")  # It would end slowly.

    assert (before.state, after.state) == (State.WARNING, State.OK)
    assert "--appendonly yes" in before.cure


@pytest.mark.parametrize(
    ("policy", "maxmemory", "state"),
    [
        ("noeviction", "100mb", State.OK),
        ("allkeys-lru", "0", State.WARNING),
        ("allkeys-lru", "100mb", State.PROBLEM),
        ("volatile-ttl", "100mb", State.PROBLEM),
    ],
)
def test_a_policy_that_forgets_keys_is_told(
    queue: Queue, server: "redis.Redis", policy: str, maxmemory: str, state: State
) -> None:
    """It forgets leases and projects; not before there is a bound."""
    set_up(server, maxmemory_policy=policy, maxmemory=maxmemory)

    found = queue_checks.check_eviction(queue)

    assert found.state is state
    assert policy in found.told


@pytest.mark.parametrize(
    ("permille", "state"), [(700, State.OK), (900, State.WARNING), (1100, State.PROBLEM)]
)
def test_a_memory_that_fills_up_is_told(
    queue: Queue, server: "redis.Redis", permille: int, state: State
) -> None:
    """Well below the bound, near it, and above."""
    used_bytes = int(queue_checks.used_memory_bytes(server))
    set_up(server, maxmemory=str(used_bytes * 1000 // permille))

    assert queue_checks.check_memory(queue).state is state


@pytest.mark.parametrize(
    ("version", "state"), [("6.1.9", State.PROBLEM), ("6.2.0", State.OK), ("10.0.0", State.OK)]
)
def test_an_old_server_is_told(version: str, state: State) -> None:
    """6.2 is the first that knows all that is needed."""
    assert queue_checks.of_version({"redis_version": version}).state is state


@pytest.mark.parametrize(("milliseconds", "state"), [(20.0, State.OK), (20.1, State.WARNING)])
def test_a_slow_server_is_told(milliseconds: float, state: State) -> None:
    """At the bound, and just above it."""
    assert queue_checks.of_latency(milliseconds).state is state


def test_the_live_nodes_and_those_on_another_store_are_named(queue: Queue, server: "redis.Redis") -> None:
    """None, then one that works on our store, then one that does not."""
    found = [queue_checks.check_workers(queue)]
    for name, store in (("pc1", "ours"), ("pc2", "theirs")):
        leased_node(server, name)
        server.hset(keys.node(name), mapping={"name": name, "store_id": store})
        found.append(queue_checks.check_workers(queue))

    assert [one.state for one in found] == [State.WARNING, State.OK, State.PROBLEM]
    assert found[1].told == "alive: pc1"
    assert found[2].told.endswith(": pc2")


def test_what_is_in_the_queue_is_counted(queue: Queue, server: "redis.Redis") -> None:
    """Each in its place; dead jobs are worth a look."""
    server.lpush(keys.queue_list("features.extract", 3), "a", "b")
    server.zadd(keys.large("features.extract"), {"c": 1})
    server.zadd(keys.DELAYED, {"d": 1, "e": 2, "f": 3})
    server.zadd(keys.LEASES, {"pc1|1": 1})
    server.hset(keys.inflight("pc1|1"), mapping={"g": "g", "h": "h", "i": "i", "j": "j"})
    before = queue_checks.check_jobs(queue)
    server.lpush(keys.DEAD, "k")

    found = queue_checks.check_jobs(queue)

    assert (before.state, found.state) == (State.OK, State.WARNING)
    assert found.told == "2 waiting, 1 large, 3 delayed, 4 claimed, 1 dead"


def test_a_stream_that_asks_for_what_cannot_be_is_told(queue: Queue, server: "redis.Redis") -> None:
    """As the head of its list tells it."""
    before = queue_checks.check_streams(queue)
    payload = json.dumps({"headers": {"class": "protected"}, "body": ""})
    server.lpush(keys.queue_lists("matcher.run")[0], payload)

    assert before.state is State.OK
    assert "matcher.run is protected and tells no period_ms" in queue_checks.check_streams(queue).told


def test_what_stock_workers_have_left_behind_is_told(queue: Queue, server: "redis.Redis") -> None:
    """Nobody gives it back where no stock worker runs."""
    before = queue_checks.check_leftovers(queue)
    server.hset("unacked", "tag", "message")

    found = queue_checks.check_leftovers(queue)

    assert (before.state, found.state) == (State.OK, State.WARNING)
    assert "1 messages" in found.told


def test_a_node_that_makes_room_is_named(queue: Queue, server: "redis.Redis") -> None:
    """A cluster that drains takes less than it could; nothing is wrong with that."""
    server.hset(keys.DRAIN, "holder", "pc1|1")

    assert queue_checks.check_drain(queue).told.startswith("pc1 makes room")


@pytest.mark.parametrize("command", ["hset", "evalsha", "script|load", "publish", "zadd"])
def test_a_right_that_is_lacking_is_named(
    queue: Queue, server: "redis.Redis", broker_url: str, command: str
) -> None:
    """The user may do all but this; checking it changes nothing."""
    server.execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", f"-{command}")  # type: ignore[no-untyped-call]
    path = broker_url.removeprefix("redis+socket://")
    with plain_client(f"unix://poor:pw@{path}") as client:
        poor = Queue(client=client, projects=queue.projects, kinds=queue.kinds)
        found = queue_checks.check_rights(poor)

    assert found.state is State.PROBLEM
    assert found.told.startswith(f"its user may not: {command.upper().replace('|', ' ')}")
    assert server.dbsize() == 0


def test_one_that_may_do_everything_lacks_nothing(queue: Queue) -> None:
    """The default user of a server."""
    assert "workers and clients" in queue_checks.check_rights(queue).told


def test_a_queue_that_is_not_there_does_not_stop_the_checks_of_this_machine(tmp_path: Path) -> None:
    """One problem, with its cure, and then all the rest; nothing is made in the store for it."""
    settings = Settings(
        broker_url=f"redis+socket://{tmp_path}/none.sock",
        store=tmp_path,
        lock_folder=tmp_path / "lock",
    )

    found = {finding.name: finding for finding in examine(settings)}

    assert found["server"].state is State.PROBLEM
    assert found["store"].state is State.OK
    assert {"lock folder", "import names", "machine", "gpu"} <= set(found)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_server_that_accepts_and_says_nothing_is_waited_for_once(tmp_path: Path) -> None:
    """A frozen server: the first question times out, the others are not asked."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}/0"
        found = list(examine(Settings(broker_url=url, lock_folder=tmp_path)))

    assert [one.name for one in found if one.state is State.PROBLEM] == ["server"]


def test_json_and_the_exit_code_say_the_same(
    broker_url: str, server: "redis.Redis", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings alone are no failure, a problem is one."""
    monkeypatch.setenv("TIEPOINT_LOCK_FOLDER", str(tmp_path / "lock"))
    command = ["doctor", "--broker", broker_url, "--store", str(tmp_path), "--json"]
    good = CliRunner().invoke(app, command)
    set_up(server, maxmemory_policy="allkeys-lru", maxmemory="100mb")
    bad = CliRunner().invoke(app, command)

    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert {one["state"] for one in json.loads(good.stdout)["findings"]} == {"ok", "warning"}
    assert [one["name"] for one in json.loads(bad.stdout)["findings"] if one["state"] == "problem"] == [
        "eviction"
    ]


def test_every_check_bears_the_name_of_its_finding(queue: Queue) -> None:
    """A check that cannot look is told under the same name."""
    checks: list[Callable[[Queue], Finding]] = [*queue_checks.SERVER_CHECKS, *queue_checks.CONTENT_CHECKS]

    assert [check(queue).name for check in checks] == [named(check) for check in checks]


def named(check: Check) -> str:
    """Return the name that a check's findings should have."""
    return check.__name__.removeprefix("check_").replace("_", " ")


def test_a_store_that_others_have_made_is_recognised(tmp_path: Path, broker_url: str) -> None:
    """Its identity is read and compared with that of the nodes."""
    identity = Store(tmp_path).identity()
    settings = Settings(broker_url=broker_url, store=tmp_path, lock_folder=tmp_path / "lock")
    with plain_client(settings.redis_url) as client:
        leased_node(client, "pc1")
        client.hset(keys.node("pc1"), mapping={"name": "pc1", "store_id": identity})

        found = {finding.name: finding for finding in examine(settings)}

    assert found["workers"].told == "alive: pc1"

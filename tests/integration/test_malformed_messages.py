"""Whatever lies in a queue, the worker lives, the bad job is reported, and the good job behind it runs."""

import base64
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from governor.model import Estimate
from tasks.store import Store
from tests.integration.conftest import Cluster, wait_until
from tests.unit.worker.builders import KIND, a_job
from worker import keys
from worker.connections import plain_client
from worker.embedded import embedded_server
from worker.envelope import to_message

GONE = object()
"""Stands for a field that is left out."""
NUMBERS = count(1)
DEEP = "[" * 20_000 + "]" * 20_000


def altered(*, headers: Any = None, properties: Any = None, **fields: Any) -> bytes:
    """Return a good message with some fields replaced, or left out."""
    message: dict[str, Any] = json.loads(to_message(a_job()))
    for part, changes in (("headers", headers or {}), ("properties", properties or {})):
        message[part] = _changed(message[part], changes)
    return json.dumps(_changed(message, fields)).encode()


def _changed(fields: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**fields, **changes}.items() if value is not GONE}


def with_body(value: Any) -> bytes:
    """Return a message whose body is this JSON value."""
    return altered(body=json.dumps(value))


def nested(levels: int) -> Any:
    """Return a list in a list in a list ..."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def raw_estimate(raw: bytes) -> bytes:
    """Return a message whose header ``estimate`` holds these raw bytes."""
    return altered(headers={"estimate": "@@"}).replace(b"@@", raw)


UNDECODABLE = {
    "no JSON": b"hello",
    "no UTF-8": b"\xff\xfe",
    "no headers": b'{"body": "[]"}',
    "nested deep": b'{"headers": %s}' % DEEP.encode(),
    "history a number": altered(tiepoint=5),
    "history null": altered(tiepoint=None),
    "attempts a text": altered(tiepoint={"attempts": "x", "lost": 0}),
    "attempts negative": altered(tiepoint={"attempts": -9, "lost": 0}),
    "properties a text": altered().replace(b'"properties": {', b'"properties": "", "p": {'),
    "properties missing": altered().replace(b'"properties"', b'"p"'),
    "delivery info a text": altered(properties={"delivery_info": "x"}),
    "body encoding unknown": altered(properties={"body_encoding": "rot13"}),
    "body encoding a list": altered(properties={"body_encoding": []}),
    "body no base64": altered(body="é", properties={"body_encoding": "base64"}),
    "body base64 of no UTF-8": altered(body="/w==", properties={"body_encoding": "base64"}),
    "body missing": altered(body=GONE),
    "body no text": altered(body=[[], {}, {}]),
    "body no JSON": altered(body="no JSON"),
    "body nested deep": altered(body=f'[[], {{"number": {DEEP}}}, {{}}]'),
    "arguments nested too deep for a child": with_body([[], {"number": nested(300)}, {}]),
    "arguments no Unicode": with_body([[], {"\ud800": 1}, {}]),
    "keyword arguments a list": with_body([[], [1, 2], {}]),
    "embedded a list": with_body([[], {}, [1]]),
    "body a number": with_body(5),
    "body null": with_body(None),
    "body too short": with_body([[]]),
    "body too long": with_body([[], {}, {}, {}]),
    "body an object": with_body({"args": [], "kwargs": {}}),
    "compressed": altered(headers={"compression": "application/x-gzip"}),
    "pickled": altered(**{"content-type": "application/x-python-serialize"}),
    "content type a list": altered(**{"content-type": []}),
    "task a list": altered(headers={"task": []}),
    "task missing": altered(headers={"task": GONE}),
    "id a list": altered(headers={"id": []}),
    "id missing": altered(headers={"id": GONE}),
    "eta a number": altered(headers={"eta": 5}),
    "shadow a list": altered(headers={"shadow": [1]}),
    "item with a lone surrogate": altered(headers={"item": "\ud800"}),
    "estimate no UTF-8": raw_estimate(b"\xff\xfe"),
    "a header that Celery trips over": altered(headers={"expires": ""}),
}
INVALID_ARGUMENTS = {
    "positional arguments": with_body([[1], {}, {}]),
    "expires no time": altered(headers={"expires": "soon"}),
    "expires a number": altered(headers={"expires": 5}),
    "a date of kombu's": with_body(
        [[], {"number": {"__type__": "datetime", "__value__": "2001-01-01T00:00:00"}}, {}]
    ),
    "a wrong date of kombu's": with_body([[], {"number": {"__type__": "datetime", "__value__": 5}}, {}]),
}
INVALID_ESTIMATE = {
    "estimate nested deep": altered(headers={"estimate": DEEP}),
    "estimate of too many digits": altered(headers={"estimate": '{"max_batch": ' + "9" * 5000 + "}"}),
    "estimate of an endless amount": altered(
        headers={"estimate": '{"memory_fixed_bytes": 1' + "0" * 4000 + "}"}
    ),
    "estimate out of range": altered(headers={"estimate": Estimate(max_batch=0).to_header()}),
}
UNKNOWN_TASK = {
    "unknown task": altered(headers={"task": "no.such.task"}),
    "task of another queue": altered(headers={"task": "noop.batch8"}),
}
CANCELLED = {"expired": altered(headers={"expires": "2001-01-01T00:00:00+00:00"})}
CASES = [
    pytest.param(text, reason, id=f"{reason}: {name}")
    for reason, messages in (
        ("undecodable_message", UNDECODABLE),
        ("invalid_arguments", INVALID_ARGUMENTS),
        ("invalid_estimate", INVALID_ESTIMATE),
        ("unknown_task", UNKNOWN_TASK),
        ("cancelled", CANCELLED),
    )
    for name, text in messages.items()
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Return one cluster for all tests: what one message does must not matter to the next."""
    with embedded_server() as embedded:
        url = embedded.broker_url
        client = plain_client(url.replace("redis+socket://", "unix://", 1))
        cluster = Cluster(broker_url=url, server=client, folder=tmp_path_factory.mktemp("malformed"))
        Store(cluster.folder / "store").create()
        yield cluster
        for worker in cluster.workers:
            worker.process.kill()
            worker.process.wait()
        client.close()


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """Return the cluster with its one worker; a new one where a test has ended the last."""
    if not shared.workers or shared.workers[-1].process.poll() is not None:
        shared.server.flushall()
        shared.start_worker(f"node{len(shared.workers)}")
    shared.server.delete(keys.DEAD)
    return shared


def has_run(cluster: Cluster, number: int) -> bool:
    """Tell whether a job has run and everything is settled."""
    return number in {n for n, _, _ in cluster.runs()} and not cluster.inflight()


def settle_with_a_good_job_behind(cluster: Cluster, text: bytes) -> list[dict[str, Any]]:
    """Send a message and a good job; return the reports of the dead once both are settled."""
    worker, number = cluster.workers[-1], next(NUMBERS)
    cluster.server.lpush(KIND, text)
    cluster.send(KIND, kwargs={"number": number, "log": cluster.run_log})
    wait_until(lambda: has_run(cluster, number) or worker.process.poll() is not None, "the good job has run")
    assert worker.process.poll() is None, worker.log[-3000:]
    return cluster.dead()


@pytest.mark.parametrize(("text", "reason"), CASES)
def test_a_malformed_message_costs_itself_only(cluster: Cluster, text: bytes, reason: str) -> None:
    """It is reported with the reason that is its own."""
    reports = settle_with_a_good_job_behind(cluster, text)

    assert [report["reason"] for report in reports] == [reason]
    assert all(report["cause"] and report["cure"] for report in reports)
    assert len(json.dumps(reports)) < 2000


def test_headers_make_no_project(cluster: Cluster) -> None:
    """A name in a header is not a project: its failures would make one up."""
    settle_with_a_good_job_behind(cluster, altered(headers={"project": "made-up", "task": "no.such.task"}))
    settle_with_a_good_job_behind(cluster, altered(body=json.dumps([[], {"no_such": 1}, {}])))

    assert not list((cluster.folder / "store").glob("projects/*"))


def test_a_malformed_head_that_was_set_aside_costs_itself_only(cluster: Cluster) -> None:
    """The large set is another way into the same reception."""
    cluster.server.zadd(
        keys.large(KIND), {KIND.encode() + b"\0" + INVALID_ESTIMATE["estimate nested deep"]: 1000}
    )
    reports = settle_with_a_good_job_behind(cluster, altered(tiepoint=5))

    assert sorted(report["reason"] for report in reports) == ["invalid_estimate", "undecodable_message"]


def test_a_body_in_base64_is_as_good_as_text(cluster: Cluster) -> None:
    """Celery's own clients send it so: the checks above refuse no good job."""
    number = next(NUMBERS)
    body = json.dumps([[], {"number": number, "log": cluster.run_log}, {}]).encode()
    text = altered(body=base64.b64encode(body).decode(), properties={"body_encoding": "base64"})

    assert settle_with_a_good_job_behind(cluster, text) == []
    assert number in {n for n, _, _ in cluster.runs()}

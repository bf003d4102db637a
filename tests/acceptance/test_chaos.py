"""The chaos harness itself: what it notices, and that it can fail. What it finds is `make chaos`'s."""

from pathlib import Path

import pytest

from tests.acceptance import chaos
from tests.acceptance.chaos_aof import AppendOnlyFile, Command
from tests.acceptance.chaos_ledger import Ledger
from tests.acceptance.chaos_schedule import Chance, schedule

CHANCES = {"often": Chance(weight=3, seconds=(1, 2)), "seldom": Chance(weight=1, seconds=(0, 0))}
LIST, HELD = b"noop", b"tiepoint:inflight:one|1"


SEED_OF_BOTH = "1"
"""Whose first round takes a message away, and whose second copies one."""


def message(job: str) -> bytes:
    """Return a job's message, as far as the account reads it."""
    return b'{"body":"","headers":{"id": "%s","root_id": "%s"}}' % (job.encode(), job.encode())


PUSH: Command = (b"LPUSH", LIST, message("a"))
POP: Command = (b"RPOP", LIST, b"1")
HOLD: Command = (b"HSET", HELD, b"1:0001:noop", message("a"))
SETTLE: Command = (b"HDEL", HELD, b"1:0001:noop")
GIVEN_BACK = b'{"tiepoint":{"attempts":1,"lost":0,"estimate":{}},' + message("a")[1:]
GIVE_BACK: Command = (b"RPUSH", LIST, GIVEN_BACK)
PARK: Command = (b"ZADD", b"tiepoint:delayed", b"1", LIST + b"\0" + GIVEN_BACK)
FORGET: Command = (b"ZREM", b"tiepoint:delayed", LIST + b"\0" + GIVEN_BACK)


def entered(*transactions: list[Command]) -> Ledger:
    """Return an account of these."""
    ledger = Ledger()
    ledger.enter(transactions)
    return ledger


def as_written(*commands: Command) -> bytes:
    """Return commands as a server writes them down."""
    return b"".join(
        b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in command)
        for command in commands
    )


def test_a_transaction_is_read_when_it_is_complete(tmp_path: Path) -> None:
    """What a killed server has left of one is none; it is read once, when it is there."""
    path = tmp_path / "aof"
    whole = as_written((b"MULTI",), POP, HOLD, (b"EXEC",))
    path.write_bytes(as_written(PUSH) + whole[:-3])
    file = AppendOnlyFile(path)
    first = list(file.transactions())
    path.write_bytes(as_written(PUSH) + whole)

    assert first == [[PUSH]]
    assert list(file.transactions()) == [[POP, HOLD]]
    assert list(file.transactions()) == []


def test_what_is_claimed_given_back_and_settled_is_done_once() -> None:
    """A job's whole life."""
    ledger = entered([PUSH], [POP, HOLD], [SETTLE, GIVE_BACK], [POP, HOLD], [SETTLE])

    assert (ledger.settled, ledger.waiting, ledger.lost, ledger.doubled) == ({"a": 1}, set(), set(), set())
    assert (ledger.most_places, ledger.ever_astray, ledger.given_back) == (1, set(), 1)


def test_what_a_dead_node_held_goes_back_in_one_step() -> None:
    """The hash is deleted with all that was pushed from it."""
    ledger = entered([PUSH], [POP, HOLD], [GIVE_BACK, (b"DEL", HELD)])

    assert (ledger.waiting, ledger.ever_astray, ledger.settled) == ({"a"}, set(), {})
    assert ledger.given_back == 1


@pytest.mark.parametrize(
    "steps",
    [
        [[PUSH], [POP]],
        [[PUSH], [POP, HOLD], [(b"DEL", HELD)]],
        [[PUSH], [(b"DEL", LIST)]],
        [[PUSH], [POP, HOLD], [SETTLE, PARK], [FORGET]],
    ],
    ids=["popped", "held", "list", "delayed"],
)
def test_what_vanishes_without_having_been_settled_is_lost(steps: list[list[Command]]) -> None:
    """Wherever it was."""
    assert entered(*steps).lost == {"a"}


def test_what_is_away_between_two_steps_is_noticed_though_it_comes_back() -> None:
    """A server that is killed in between loses it: so it is with stock Celery."""
    ledger = entered([PUSH], [POP], [HOLD])

    assert (ledger.lost, ledger.ever_astray, ledger.waiting) == (set(), {"a"}, {"a"})


@pytest.mark.parametrize(
    "steps",
    [
        [[PUSH], [POP, HOLD], [SETTLE], [PUSH]],
        [[PUSH], [PUSH], [POP, HOLD], [SETTLE], [POP, HOLD], [SETTLE]],
    ],
    ids=["given out again", "settled twice"],
)
def test_what_comes_again_after_it_was_settled_is_doubled(steps: list[list[Command]]) -> None:
    """Given out again, or settled again."""
    assert entered(*steps).doubled == {"a"}


def test_a_message_in_two_places_is_noticed() -> None:
    """Even if only one of them is settled later."""
    assert entered([PUSH], [HOLD]).most_places == 2


def test_the_same_seed_draws_the_same_faults() -> None:
    """And another seed others."""
    one, same, other = (schedule(seed, CHANCES, seconds=60, rate=1) for seed in (1, 1, 2))

    assert one == same != other


def test_faults_come_as_often_as_told_and_some_at_the_same_moment() -> None:
    """A Poisson process: about as many moments as rate times seconds; weights and durations are kept."""
    planned = schedule(7, CHANCES, seconds=2000, rate=0.5)
    moments = {fault.at_seconds for fault in planned}
    often = [fault for fault in planned if fault.name == "often"]

    assert 900 < len(moments) < 1100
    assert len(planned) - len(moments) > 200
    assert 0.7 < len(often) / len(planned) < 0.8
    assert all(1 <= fault.for_seconds <= 2 for fault in often)


def test_a_message_that_is_taken_and_one_that_is_copied_fail_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a real server and a real worker: the harness can fail, and says how to see it again."""
    arguments = ["--rounds", "2", "--jobs", "24", "--longest-job", "0.8", "--workers", "1", "--photos", ""]
    sabotage = ["--faults", "drop_message,double_message", "--seed", SEED_OF_BOTH, "--folder", str(tmp_path)]
    returncode = chaos.main([*arguments, *sabotage])
    *_, advice, summary = capsys.readouterr().out.splitlines()

    assert returncode == 1
    assert {"lost=1", "doubled=1"} <= set(summary.split())
    assert f"--seed {SEED_OF_BOTH} " in advice

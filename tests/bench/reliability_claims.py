"""Holds the cases of who has a message: long jobs, frozen nodes, a node that joins."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tests.bench.reliability_case import Case, Checks, Result, conclude, nothing_lost
from tests.bench.reliability_kinds import ONE, result_key
from tests.bench.reliability_nodes import DEFAULT_SWEEPS, SWIFT_SWEEPS
from tests.bench.reliability_scene import Scene

JOB_SECONDS = 25.0
APART_SECONDS = 6.0
"""Between the starts of the two workers: stock's first looks for lost jobs are as far apart."""
ROUNDS = 5
_SETTLE_SECONDS = 1.0


def long_job(
    scene: Scene,
    *,
    seconds: float = JOB_SECONDS,
    apart_seconds: float = APART_SECONDS,
    stock: Mapping[str, Any] = DEFAULT_SWEEPS,
) -> Result:
    """Run one job that takes five times as long as messages are lent for, on two workers."""
    scene.configure(stock=stock)
    scene.start("a", processes=2)
    scene.send(seconds=seconds)
    scene.until(scene.log.starts, "the job runs")
    scene.watch(apart_seconds, until=lambda: False)
    scene.start("b", processes=2)
    scene.watch(3 * seconds + scene.patience_seconds)
    return conclude(scene)


def frozen_when_idle(scene: Scene, *, rounds: int = ROUNDS) -> Result:
    """Freeze an idle worker, send it a job at once, kill it, start another; and again."""
    scene.configure(stock=SWIFT_SWEEPS)
    with scene.sender() as send:
        for number in range(rounds):
            node = scene.start(f"node{number}")
            scene.until(lambda: not scene.client.llen(ONE), "nothing waits")
            scene.watch(_SETTLE_SECONDS, until=lambda: False)  # It waits for messages, whichever way it does.
            node.freeze()
            send()
            scene.watch(_SETTLE_SECONDS, until=lambda: False)
            node.kill()
    scene.start("last")
    scene.watch(scene.patience_seconds)
    return conclude(scene)


def joining_node(scene: Scene, *, prefetch: int = 1) -> Result:
    """Let a busy worker see two jobs, then another worker join."""
    scene.configure(stock={"worker_prefetch_multiplier": prefetch})
    first_gate, gate = scene.folder / "first-gate", scene.folder / "gate"
    scene.start("a")
    scene.send(gate=str(first_gate))
    scene.until(scene.log.starts, "the first job runs")
    for _ in range(2):
        scene.send(gate=str(gate))
    scene.watch(_SETTLE_SECONDS, until=lambda: False)
    scene.start("b")
    scene.watch(scene.patience_seconds, until=lambda: len(scene.log.starts()) == 2)
    first_gate.touch()
    scene.watch(scene.patience_seconds, until=lambda: len(scene.log.starts()) == 3)
    gate.touch()
    scene.watch(scene.patience_seconds)
    nodes = [line.node for line in scene.log.starts() if line.job > 0]
    return conclude(scene, of_two={name: nodes.count(name) for name in ("a", "b")})


def frozen_past_its_lease(scene: Scene) -> Result:
    """Freeze a node over a job until another has it, then let it go on: both come to the end."""
    scene.configure(stock=SWIFT_SWEEPS)
    gate = scene.folder / "gate"
    first = scene.start("a")
    scene.send(gate=str(gate))
    scene.until(scene.log.starts, "the job runs")
    first.freeze()
    scene.start("b")
    scene.until(lambda: len(scene.log.starts()) == 2, "the job runs on the other node")
    first.wake()
    gate.touch()
    scene.watch(scene.patience_seconds, until=lambda: len(scene.log.ends()) == 2 and scene.is_over())
    scene.watch(_SETTLE_SECONDS, until=lambda: False)
    scene.send()
    scene.watch(scene.patience_seconds)
    counters = [reply["governor"]["counters"] for reply in scene.stats().values() if "governor" in reply]
    return conclude(
        scene,
        refused=sum(each["refused_settlements"] for each in counters),
        results=sum(scene.store.is_intact(result_key(job)) for job in range(scene.jobs)),
    )


def _once(result: Result) -> Checks:
    return {
        **nothing_lost(result),
        "each job starts once": result.tally.starts == result.tally.jobs,
        "each job is done": result.tally.done == result.tally.jobs,
    }


def _one_each(result: Result) -> Checks:
    return {**_once(result), "each node gets one of the two": result.figures["of_two"] == {"a": 1, "b": 1}}


def _accepted_once(result: Result) -> Checks:
    tally, figures = result.tally, result.figures
    return {
        **nothing_lost(result),
        "each job is done": tally.done == tally.jobs,
        "a result that comes late is refused": figures["refused"] == tally.ended_twice,
        "each job has one whole result in the store": figures["results"] == tally.jobs,
    }


CASES = (
    Case(
        letter="a",
        title=f"a job of {JOB_SECONDS:.0f} s, messages lent for 5 s, two workers",
        play=long_job,
        checks=_once,
        stock_variants={"stock, swift sweeps": partial(long_job, stock=SWIFT_SWEEPS)},
    ),
    Case(
        letter="b",
        title=f"{ROUNDS} times: an idle worker is frozen, a job is sent, the worker is killed",
        play=frozen_when_idle,
        checks=_once,
    ),
    Case(
        letter="e",
        title="a worker is busy, two jobs wait, another worker joins",
        play=joining_node,
        checks=_one_each,
        stock_variants={"stock, prefetch 4": partial(joining_node, prefetch=4)},
    ),
    Case(
        letter="i",
        title="a node is frozen past its lease, then goes on",
        play=frozen_past_its_lease,
        checks=_accepted_once,
    ),
)

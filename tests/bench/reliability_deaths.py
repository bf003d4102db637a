"""Holds the cases of processes that die: a job that kills its own, limits of time, random kills."""

import random
import statistics
import time
from contextlib import suppress
from functools import partial
from typing import Any

import psutil

from tests.bench.reliability_case import Case, Checks, Result, conclude, nothing_lost
from tests.bench.reliability_kinds import FOUR, ONE
from tests.bench.reliability_nodes import SWIFT_SWEEPS, Node
from tests.bench.reliability_scene import Scene
from worker.dead_jobs import DeadEnding

WATCHED_SECONDS = 25.0
LIMIT_SECONDS = 3
GONE_WITHIN_SECONDS = 5.0
KILLS, STOCK_KILLS = 200, 20
SEED = 20
MOST_ATTEMPTS = 3


def killer_in_a_batch(scene: Scene, *, watched_seconds: float = WATCHED_SECONDS) -> Result:
    """Give four jobs at once, the third of which kills its process."""
    return _with_a_killer(scene, kind=FOUR, jobs=4, killer=2, watched_seconds=watched_seconds)


def killer(scene: Scene, *, watched_seconds: float = WATCHED_SECONDS) -> Result:
    """Give one job, which kills its process."""
    return _with_a_killer(scene, kind=ONE, jobs=1, killer=0, watched_seconds=watched_seconds)


def _with_a_killer(scene: Scene, *, kind: str, jobs: int, killer: int, watched_seconds: float) -> Result:
    scene.configure(stock=SWIFT_SWEEPS)
    with scene.sender() as send:
        for number in range(jobs):
            send(kind=kind, kills_itself=number == killer)
    scene.start("a")
    scene.watch(watched_seconds)
    starts = [line.job for line in scene.log.starts()]
    report = scene.failed().get(killer, {})
    others = [starts.count(job) for job in range(jobs) if job != killer]
    return conclude(
        scene,
        deaths=starts.count(killer),
        most_starts_of_others=max(others, default=0),
        given_up=sorted(scene.failed()),
        attempts=report.get("attempts"),
        ending=report.get("ending"),
        cause=report.get("cause"),
    )


def limit_with_sleepers(scene: Scene, *, gone_within_seconds: float = GONE_WITHIN_SECONDS) -> Result:
    """Give a job that starts two programs and waits for them, with a limit of time for the job."""
    scene.configure(stock=SWIFT_SWEEPS)
    scene.start("a")
    scene.send(starts_sleeper=True, options={"time_limit": LIMIT_SECONDS})
    scene.until(lambda: len(scene.log.left_behind()) == 2, "the programs run")
    sleepers = [psutil.Process(line.pid) for line in scene.log.left_behind()]
    scene.watch(LIMIT_SECONDS + scene.patience_seconds, until=lambda: 0 in scene.failed())
    scene.watch(gone_within_seconds, until=lambda: not any(map(_is_alive, sleepers)))
    alive = [sleeper for sleeper in sleepers if _is_alive(sleeper)]
    for sleeper in alive:
        sleeper.kill()
    report = scene.failed().get(0, {})
    return conclude(
        scene,
        alive_in_the_end=len(alive),
        ending=report.get("ending") or report.get("result", {}).get("exc_type"),
        cause=report.get("cause"),
    )


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def random_kills(scene: Scene, *, kills: int = KILLS, seed: int = SEED) -> Result:
    """Kill the one process that runs jobs at random moments; measure until the node starts the next."""
    scene.configure(stock=SWIFT_SWEEPS)
    chance = random.Random(seed)
    node = scene.start("a")
    seconds = []
    for _ in range(kills):
        while scene.client.llen(ONE) < 20:
            scene.send(seconds=0.1)
        scene.watch(chance.uniform(0.05, 0.25), until=lambda: False)
        seconds.append(_seconds_to_next_start(scene, node))
    scene.watch(60)
    return conclude(scene, **_spread(seconds), seed=seed, **_ledger(scene))


def _seconds_to_next_start(scene: Scene, node: Node) -> float:
    """Kill whoever runs a job; return how long it took until another process started one."""
    victim = scene.until(lambda: next(iter(node.children()), None), "a process is there")
    victim.kill()
    killed_ns = time.monotonic_ns()

    def next_start() -> Any:
        later = [line for line in scene.log.starts() if line.at_ns > killed_ns and line.pid != victim.pid]
        return later[0] if later else None

    return float(scene.until(next_start, "the next job starts").at_ns - killed_ns) / 1e9


def _spread(seconds: list[float]) -> dict[str, Any]:
    p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
    return {
        "kills": len(seconds),
        "next_start_median_s": round(statistics.median(seconds), 2),
        "next_start_p95_s": round(p95, 2),
        "next_start_max_s": round(max(seconds), 2),
    }


def _ledger(scene: Scene) -> dict[str, Any]:
    governors = [reply["governor"] for reply in scene.stats().values() if "governor" in reply]
    return {"still_reserved_bytes": sum(int(each["reserved_memory_bytes"]) for each in governors)}


def _killer_is_dead(result: Result) -> Checks:
    tally, figures = result.tally, result.figures
    return {
        **nothing_lost(result),
        f"the job that kills is given up after {MOST_ATTEMPTS} attempts": figures["deaths"] == MOST_ATTEMPTS
        and figures["attempts"] == MOST_ATTEMPTS,
        "it is the only one that is given up": len(figures["given_up"]) == tally.failed == 1,
        "its cause is told": figures["ending"] == DeadEnding.KILLED and "SIGKILL" in figures["cause"],
        "the others run once": tally.done == tally.jobs - 1 and figures["most_starts_of_others"] <= 1,
    }


def _limit_holds(result: Result) -> Checks:
    return {
        **nothing_lost(result),
        "nothing of it lives after 5 s": result.figures["alive_in_the_end"] == 0,
        "it has failed": result.tally.failed == 1,
        "its cause is told": result.figures["ending"] == DeadEnding.TIME_LIMIT,
    }


def _is_back_soon(result: Result) -> Checks:
    return {
        **nothing_lost(result),
        "the next start comes within 1 s in 95 of 100": result.figures["next_start_p95_s"] <= 1.0,
        "the next start comes within 5 s": result.figures["next_start_max_s"] <= 5.0,
        "nothing stays reserved": result.figures["still_reserved_bytes"] == 0,
    }


CASES = (
    Case(
        letter="c",
        title="four jobs, the third kills its process",
        play=killer_in_a_batch,
        checks=_killer_is_dead,
    ),
    Case(letter="d", title="a job that kills its process", play=killer, checks=_killer_is_dead),
    Case(
        letter="g",
        title=f"a job starts two programs and meets its limit of {LIMIT_SECONDS} s",
        play=limit_with_sleepers,
        checks=_limit_holds,
    ),
    Case(
        letter="h",
        title=f"{KILLS} random kills of processes that run jobs (stock: {STOCK_KILLS})",
        play=random_kills,
        checks=_is_back_soon,
        stock_play=partial(random_kills, kills=STOCK_KILLS),
    ),
)

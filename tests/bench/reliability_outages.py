"""Holds the cases of what is between the parts: Redis that is killed, events that are lost."""

import json
import random
from typing import Any

from celery.states import SUCCESS

from tasks.kind import Job
from tests.bench.reliability_case import Case, Checks, Result, conclude, nothing_lost
from tests.bench.reliability_events import LOST_PERCENT, SEED, listening
from tests.bench.reliability_kinds import ONE
from tests.bench.reliability_nodes import SWIFT_SWEEPS, TIEPOINT
from tests.bench.reliability_scene import PLAN, Scene
from tests.integration.scripted_node import leased_node
from worker import keys
from worker.envelope import to_push
from worker.project_queue import ProjectQueue
from worker.redis_scripts import Script, run

JOBS_OVER_RESTARTS = 40
RESTARTS = 3
DOWN_SECONDS = 1.0
MOST_SECONDS = 90.0
JOBS_WITH_EVENTS = 200
LOST_EVENTS_PERCENT = 10
RIGHT_WITHIN_SECONDS = 5.0
CHANCE_SEED = 11
_PROJECT, _STAGE = "p", "match"


def killed_redis(scene: Scene, *, jobs: int = JOBS_OVER_RESTARTS, seed: int = CHANCE_SEED) -> Result:
    """Kill Redis (which keeps its data) three times while jobs run."""
    scene.configure(stock=SWIFT_SWEEPS)
    chance = random.Random(seed)
    _send_all(scene, jobs, seconds=0.4)
    scene.start("a", processes=2)
    for _ in range(RESTARTS):
        before = len(scene.log.starts())
        scene.watch(30, until=lambda: len(scene.log.starts()) >= before + 4)  # noqa: B023 - awaited here
        scene.watch(chance.uniform(0, 0.4), until=lambda: False)
        scene.redis.kill()
        scene.watch(DOWN_SECONDS, until=lambda: False)
        scene.redis.start()
    scene.watch(MOST_SECONDS)
    ends_ns = [line.at_ns for line in (*scene.log.starts(), *scene.log.ends())]
    seconds = round((max(ends_ns) - min(ends_ns)) / 1e9, 1)
    return conclude(scene, restarts=RESTARTS, seconds=seconds, seed=seed)


def lost_events(
    scene: Scene,
    *,
    jobs: int = JOBS_WITH_EVENTS,
    right_within_seconds: float = RIGHT_WITHIN_SECONDS,
    seed: int = CHANCE_SEED,
) -> Result:
    """Lose a tenth of all events; compare what is shown with what is so."""
    lost = {LOST_PERCENT: str(LOST_EVENTS_PERCENT), SEED: str(seed)}
    scene.configure(stock=SWIFT_SWEEPS, lost_events=lost)
    scene.start("a", processes=2)
    with listening(scene.redis.broker_url) as succeeded:
        _give(scene, jobs)
        scene.watch(MOST_SECONDS, until=lambda: len({line.job for line in scene.log.ends()}) == jobs)
        is_right = scene.watch(right_within_seconds, until=lambda: _shown(scene, succeeded) == jobs)
        figures = {
            "shown_as_done": _shown(scene, succeeded),
            "is_right": is_right,
            "events_say_done": succeeded(),
            "results_say_done": scene.results(SUCCESS),
            "seed": seed,
        }
    scene.watch(MOST_SECONDS)
    return conclude(scene, **figures)


def _send_all(scene: Scene, jobs: int, **arguments: Any) -> None:
    with scene.sender() as send:
        for _ in range(jobs):
            send(**arguments)


def _give(scene: Scene, jobs: int) -> None:
    """Give jobs: ours as a project, whose live state `tiepoint status` shows."""
    if scene.sort is not TIEPOINT:
        _send_all(scene, jobs)
        return
    start_project(scene, jobs)


def start_project(scene: Scene, jobs: int) -> None:
    """Start a project whose first plan has pushed these jobs."""
    pushes = [to_push(_job(scene, number)) for number in range(jobs)]
    plan = to_push(_job(scene, jobs, stage=PLAN))
    plan["list"] = PLAN
    stages = json.dumps([PLAN, _STAGE])
    run(scene.client, Script.START_PROJECT, [keys.project(_PROJECT)], json.dumps(plan), stages)
    planner = leased_node(scene.client, "planner")
    ((tag, _),) = planner.claim(source=PLAN) or []
    place = {"project": _PROJECT, "stage": PLAN, "item": str(jobs)}
    planner.settle({"tag": tag, "action": "done", **place, "pushes": pushes})
    planner.release()
    scene.jobs += jobs
    scene.plans += 1


def _job(scene: Scene, number: int, stage: str = _STAGE) -> Job:
    payload = {"job": number, "log": str(scene.log.path)}
    return Job(kind=ONE, payload=payload, project=_PROJECT, stage=stage, item=str(number))


def _shown(scene: Scene, succeeded: Any) -> int:
    """Return how many jobs are shown as done: by the project's live state, or by who listens to events."""
    if scene.sort is not TIEPOINT:
        return int(succeeded())
    queue = ProjectQueue(scene.redis.redis_url)
    try:
        stage = queue.state(_PROJECT).stages.get(_STAGE)
    finally:
        queue.close()
    return stage.done if stage else 0


def _each_once(result: Result) -> Checks:
    return {
        **nothing_lost(result),
        "each job is done": result.tally.done == result.tally.jobs,
        "no job runs twice": result.tally.starts == result.tally.jobs,
    }


def _is_right(result: Result) -> Checks:
    return {
        **_each_once(result),
        "the status is right within 5 s": bool(result.figures["is_right"]),
        "events were lost": result.figures["events_say_done"] < result.tally.jobs,
    }


CASES = (
    Case(
        letter="f",
        title=f"Redis is killed and started again {RESTARTS} times while {JOBS_OVER_RESTARTS} jobs run",
        play=killed_redis,
        checks=_each_once,
    ),
    Case(
        letter="j",
        title=f"{LOST_EVENTS_PERCENT} % of the events are lost, {JOBS_WITH_EVENTS} jobs",
        play=lost_events,
        checks=_is_right,
    ),
)

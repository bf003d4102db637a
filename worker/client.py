"""Starts projects on a queue and watches them; the client side of the live state in Redis.

Does not cover results (:mod:`tasks.summary`) nor the command line.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from tasks.catalog import STAGES
from tasks.expand import PLAN_STAGE, ExpandPayload, expand_job
from worker import keys
from worker.connections import plain_client
from worker.envelope import to_push
from worker.redis_scripts import Script, run


class QueueError(Exception):
    """The queue did not answer, or not as it should; the text says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningFailure:
    """Why a project could not be planned, in words a user can act on."""

    cause: str
    cure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgress:
    """How far one stage is, as far as it is planned."""

    planned: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectState:
    """The live state of a project."""

    state: str
    """``running``, ``done``, ``failed``, or ``unknown`` where the queue knows no such project."""
    phase: str = ""
    failure: PlanningFailure | None = None
    """Why the state is ``failed``; None otherwise."""
    retried: int = 0
    peak_bytes: int = 0
    stages: dict[str, StageProgress] = field(default_factory=dict)
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)


class Client:
    """Talks to one queue; every method but ``close`` raises QueueError where it does not answer."""

    def __init__(self, redis_url: str) -> None:
        self._redis = plain_client(redis_url)

    def start(self, project_id: str, *, until: str) -> bool:
        """Start or resume a project whose store is ready; False where it is running already."""
        first = to_push(expand_job(ExpandPayload.model_validate({"project": project_id, "until": until})))
        with _queue_errors():
            started = run(
                self._redis,
                Script.START_PROJECT,
                [keys.project(project_id)],
                json.dumps(first),
                json.dumps([PLAN_STAGE, *STAGES]),
                "until",
                until,
            )
        return bool(started)

    def state(self, project_id: str) -> ProjectState:
        """Read a project's live state."""
        with _queue_errors():
            stored = self._redis.hgetall(keys.project(project_id))
        fields = {_text(name): _text(value) for name, value in stored.items()}
        return _state(fields) if fields else ProjectState(state="unknown")

    def waits_for(self, node_name: str) -> str:
        """Return what a node waits for, in its own words; empty while it works."""
        with _queue_errors():
            value = self._redis.hget(keys.node(node_name), "waits_for")
        return _text(value) if value else ""

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


@contextmanager
def _queue_errors() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise QueueError(f"the queue does not answer: {error}") from error


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _state(fields: dict[str, str]) -> ProjectState:
    stages = {name.rpartition(":")[0] for name in fields if name.endswith(":planned")}
    kinds = {name.split(":")[1] for name in fields if name.startswith("kind:")}
    return ProjectState(
        state=fields.get("state", "unknown"),
        phase=fields.get("phase", ""),
        failure=_failure(fields.get("failure", "")) if fields.get("state") == "failed" else None,
        retried=int(fields.get("retried", 0)),
        peak_bytes=int(fields.get("peak_bytes", 0)),
        stages={stage: _stage(fields, stage) for stage in sorted(stages)},
        kinds={kind: _kind(fields, kind) for kind in sorted(kinds)},
    )


def _failure(report: str) -> PlanningFailure:
    """Read a failed job's report (worker.settle:failed_entry); what is no report is the cause itself."""
    try:
        fields = json.loads(report)
        return PlanningFailure(cause=str(fields["cause"]), cure=str(fields["cure"]))
    except (ValueError, TypeError, KeyError):
        return PlanningFailure(cause=report or "no cause was reported", cure="Read the worker's log.")


def _stage(fields: dict[str, str], stage: str) -> StageProgress:
    started_ms = int(fields.get(f"{stage}:started_ms", 0))
    finished_ms = int(fields.get(f"{stage}:finished_ms", started_ms))
    return StageProgress(
        planned=int(fields.get(f"{stage}:planned", 0)),
        done=int(fields.get(f"{stage}:done", 0)),
        failed=int(fields.get(f"{stage}:failed", 0)),
        seconds=(finished_ms - started_ms) / 1000,
    )


def _kind(fields: dict[str, str], kind: str) -> dict[str, Any]:
    field_prefix = f"kind:{kind}:"
    return {
        "batches": int(fields[field_prefix + "batches"]),
        "reserved_bytes": int(fields.get(field_prefix + "reserved_bytes", 0)),
        "peak_bytes": int(fields.get(field_prefix + "peak_bytes", 0)),
        "worst_ratio": int(fields.get(field_prefix + "ratio_permille", 0)) / 1000,
    }

"""Holds the live state of a project as a client sees it, and reads it from the project's hash.

Does not cover how the hash is fetched (:mod:`worker.project_queue`), nor what
is in the store (:mod:`tasks.summary`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.catalog import STAGES
from tasks.outlook import AHEAD
from tasks.verification import INLIERS


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
    started_ms: int = 0
    """Server time at which its first job was planned; 0 = none is."""
    finished_ms: int = 0
    """Server time at which its last job was settled; 0 = none is."""

    @property
    def seconds(self) -> float:
        """Return how long it has taken so far, to the last job that is settled."""
        return max(self.finished_ms - self.started_ms, 0) / 1000 if self.finished_ms else 0.0

    @property
    def open(self) -> int:
        """Return how many jobs are planned and neither done nor failed."""
        return max(self.planned - self.done - self.failed, 0)

    def to_dict(self) -> dict[str, int | float]:
        """Return what is told of it."""
        return {
            "planned": self.planned,
            "done": self.done,
            "failed": self.failed,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectState:
    """The live state of a project."""

    state: str
    """``running``, ``done``, ``failed``, ``cancelled``; ``unknown`` where the queue knows no such project."""
    phase: str = ""
    outstanding: int = 0
    """Jobs that are planned and not settled."""
    failure: PlanningFailure | None = None
    """Why the state is ``failed``; None otherwise."""
    retried: int = 0
    peak_bytes: int = 0
    stages: dict[str, StageProgress] = field(default_factory=dict)
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)
    inliers: int = 0
    """Matches that the pairs verified in this run have kept."""
    ahead: dict[str, int] = field(default_factory=dict)
    """Jobs of each stage that are not planned yet, about, and the pairs of an image (tasks.outlook)."""


def read_state(fields: Mapping[str, str]) -> ProjectState:
    """Return the state that a project's hash holds; an empty one is unknown."""
    stages = {name.rpartition(":")[0] for name in fields if name.endswith(":planned")}
    kinds = {name.split(":")[1] for name in fields if name.startswith("kind:")}
    return ProjectState(
        state=fields.get("state", "unknown"),
        phase=fields.get("phase", ""),
        failure=_failure(fields.get("failure", "")) if fields.get("state") == "failed" else None,
        outstanding=int(fields.get("outstanding", 0)),
        retried=int(fields.get("retried", 0)),
        peak_bytes=int(fields.get("peak_bytes", 0)),
        stages={stage: _stage(fields, stage) for stage in sorted(stages)},
        kinds={kind: _kind(fields, kind) for kind in sorted(kinds)},
        inliers=int(fields.get(INLIERS, 0)),
        ahead=json.loads(fields.get(AHEAD, "{}")),
    )


def measured(state: ProjectState) -> dict[str, Any]:
    """Return the part of a project's summary that only the queue knows."""
    stages = {stage: progress for stage, progress in state.stages.items() if stage in STAGES}
    return {
        "seconds": {stage: progress.seconds for stage, progress in stages.items()},
        "jobs": {
            "done": sum(progress.done for progress in stages.values()),
            "failed": sum(progress.failed for progress in stages.values()),
            "retried": state.retried,
        },
        "kinds": state.kinds,
        "peak_memory_bytes": state.peak_bytes,
    }


def _failure(report: str) -> PlanningFailure:
    """Read a failed job's report (worker.settle:failed_entry); what is no report is the cause itself."""
    try:
        fields = json.loads(report)
        return PlanningFailure(cause=str(fields["cause"]), cure=str(fields["cure"]))
    except (ValueError, TypeError, KeyError):
        return PlanningFailure(cause=report or "no cause was reported", cure="Read the worker's log.")


def _stage(fields: Mapping[str, str], stage: str) -> StageProgress:
    return StageProgress(
        planned=int(fields.get(f"{stage}:planned", 0)),
        done=int(fields.get(f"{stage}:done", 0)),
        failed=int(fields.get(f"{stage}:failed", 0)),
        started_ms=int(fields.get(f"{stage}:started_ms", 0)),
        finished_ms=int(fields.get(f"{stage}:finished_ms", 0)),
    )


def _kind(fields: Mapping[str, str], kind: str) -> dict[str, Any]:
    field_prefix = f"kind:{kind}:"
    return {
        "batches": int(fields[field_prefix + "batches"]),
        "reserved_bytes": int(fields.get(field_prefix + "reserved_bytes", 0)),
        "peak_bytes": int(fields.get(field_prefix + "peak_bytes", 0)),
        "worst_ratio": int(fields.get(field_prefix + "ratio_permille", 0)) / 1000,
        "items": int(fields.get(field_prefix + "items", 0)),
        "busy_seconds": int(fields.get(field_prefix + "busy_us", 0)) / 1_000_000,
    }

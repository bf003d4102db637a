"""Simulates the queue of one project: settles as the script does; stages publish tiny artefacts.

What waits may be run in any order, run twice, or be lost on the way; nothing
here knows Redis.
"""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tasks.errors import MissingArtefactError
from tasks.expand import EXPAND_KIND, ExpandPayload, Phase, expand_job, run
from tasks.feature_sets import FeatureSet, features_key, publish_feature_set
from tasks.inputs import checked_photo, read_photo_record
from tasks.kind import Done, Failed, Job, NotReady, Outcome
from tasks.pair_jobs import MatchPayload, VerifyPayload, matches_key, verification_job, verification_key
from tasks.pairs import PairsPayload, run_pairs
from tasks.parameters import ProjectParameters
from tasks.reconstruction import model_key
from tasks.store import Json, PhotoRecord, Project, Source, Store
from tasks.tracks import TracksPayload, run_tracks
from tasks.visual_index import IndexPayload, run_index
from tests.unit.tasks.scene_store import GRANT

Stage = Callable[[Job], Outcome]
_RECORD = PhotoRecord(width_px=64, height_px=64, focal_length_px=77.0, focal_is_prior=False)


@dataclass
class PipelineQueue:
    """One project and its queue."""

    store: Store
    project: Project
    messages: list[Job] = field(default_factory=list)
    executed: list[Job] = field(default_factory=list)
    """Every job that was run, in order, the planner's own left out."""
    phases: list[str] = field(default_factory=list)
    """What each settled plan called its phase."""
    instead: dict[str, Stage] = field(default_factory=dict)
    """Replaces what a stage does."""
    _todo: set[tuple[str, str]] = field(default_factory=set)
    _continuation: tuple[Job, int] | None = None

    @property
    def is_done(self) -> bool:
        """Tell whether the planner has said that nothing is left."""
        return self.phases[-1:] == ["done"]

    @property
    def executed_stages(self) -> list[str]:
        """Return the stages in the order in which they were first reached."""
        return list(dict.fromkeys(job.stage for job in self.executed))

    def start(self, until: Phase = "model") -> None:
        """Push the first plan."""
        self._push(expand_job(ExpandPayload(project=self.project.id, until=until)))

    def run_to_the_end(self, most: int = 1000) -> None:
        """Run what waits, oldest first, until nothing does."""
        for _ in range(most):
            if not self.messages:
                return
            self.complete(0)
        raise TimeoutError(f"{most} jobs have run and the project is not done")

    def complete(self, index: int) -> None:
        """Run a waiting job and settle it."""
        job = self.messages.pop(index)
        self.settle(job, self.execute(job))

    def execute(self, job: Job) -> Outcome:
        """Run a job, settling nothing: as if its node were gone at the end."""
        if job.kind == EXPAND_KIND:
            (outcome,) = run([ExpandPayload.model_validate(job.payload)], GRANT, self.store)
            return outcome
        self.executed.append(job)
        return self.instead.get(job.stage, self.do)(job)

    def do(self, job: Job) -> Outcome:
        """Do what the job's stage does."""
        return _STAGES[job.stage](self, job)

    def settle(self, job: Job, outcome: Outcome) -> None:
        """Take a job off its stage, push what follows, continue the plan when few enough are left."""
        self._todo.discard((job.stage, job.item))
        if isinstance(outcome, Failed):
            self.project.record_failure(job.stage, job.item, outcome.failure)
        if isinstance(outcome, Done):
            for follow_up in outcome.follow_ups:
                self._push(follow_up)
            if outcome.progress:
                self.phases.append(outcome.progress["phase"])
            if outcome.continuation is not None:
                self._continuation = outcome.continuation, outcome.continue_at
        if self._continuation is not None and len(self._todo) <= self._continuation[1]:
            successor, self._continuation = self._continuation[0], None
            self._push(successor)

    def _push(self, job: Job) -> None:
        if (job.stage, job.item) not in self._todo:
            self._todo.add((job.stage, job.item))
            self.messages.append(job)


def new_queue(root: Path, images: int = 3, parameters: ProjectParameters | None = None) -> PipelineQueue:
    """Create a project of so many photos, none of them imported, and its queue."""
    store = Store(root)
    store.create()
    project = store.project("tiny")
    names = [f"{number:03}.jpg" for number in range(images)]
    sources = [Source(name=name, path=f"/photos/{name}") for name in names]
    project.create(parameters or ProjectParameters(), sources)
    return PipelineQueue(store=store, project=project)


def content_of(name: str) -> str:
    """Return the content hash that importing a photo gives it."""
    return hashlib.sha256(name.encode()).hexdigest()


def _import(queue: PipelineQueue, job: Job) -> Outcome:
    content = content_of(job.item)
    if not (queue.store.has_photo(content) and queue.store.photo_is_intact(content)):
        queue.store.discard_photo(content)
        queue.store.copy_photo(content, io.BytesIO(job.item.encode()))
    queue.store.record_photo(content, _RECORD)
    queue.project.register(job.item, content)
    return Done()


def _features(queue: PipelineQueue, job: Job) -> Outcome:
    try:
        read_photo_record(queue.store, job.item)
        checked_photo(queue.store, job.item)
    except MissingArtefactError as error:
        return NotReady(cause=str(error))
    features = FeatureSet(
        extractor="rootsift",
        width_px=64,
        height_px=64,
        keypoints=np.empty((0, 4), np.float32),
        descriptors=np.empty((0, 128), np.uint8),
    )
    publish_feature_set(queue.store, features_key(job.item, queue.project.parameters.features), features)
    return Done()


def _index(queue: PipelineQueue, job: Job) -> Outcome:
    (outcome,) = run_index([IndexPayload.model_validate(job.payload)], GRANT, queue.store)
    return outcome


def _pairs(queue: PipelineQueue, job: Job) -> Outcome:
    (outcome,) = run_pairs([PairsPayload.model_validate(job.payload)], GRANT, queue.store)
    return outcome


def _match(queue: PipelineQueue, job: Job) -> Outcome:
    payload = MatchPayload.model_validate(job.payload)
    key = matches_key(payload.left, payload.right, payload.features, payload.matching)
    queue.store.publish(key, {"matches": np.empty((0, 2), np.uint32)}, {})
    return Done(follow_ups=(verification_job(queue.project, payload.left, payload.right),))


def _verify(queue: PipelineQueue, job: Job) -> Outcome:
    payload = VerifyPayload.model_validate(job.payload)
    if not queue.store.has(matches_key(payload.left, payload.right, payload.features, payload.matching)):
        return NotReady(cause="the matches are missing")
    key = verification_key(
        payload.left, payload.right, payload.features, payload.matching, payload.verification
    )
    metadata: dict[str, Json] = {"left": payload.left, "right": payload.right, "config": 1}
    queue.store.publish(key, {"inliers": np.empty((0, 2), np.uint32)}, metadata)
    return Done()


def _tracks(queue: PipelineQueue, job: Job) -> Outcome:
    (outcome,) = run_tracks([TracksPayload.model_validate(job.payload)], GRANT, queue.store)
    return outcome


def _model(queue: PipelineQueue, _job: Job) -> Outcome:
    key = model_key(queue.store, queue.project)
    queue.store.publish_folder(key, _write_model)
    return Done()


def _write_model(folder: Path) -> None:
    (folder / "summary.json").write_text("{}")


_STAGES: dict[str, Callable[[PipelineQueue, Job], Outcome]] = {
    "import": _import,
    "features": _features,
    "index": _index,
    "pairs": _pairs,
    "match": _match,
    "verify": _verify,
    "tracks": _tracks,
    "model": _model,
}

"""Builds projects that are ready to be mapped, of points that a row of cameras sees."""

from pathlib import Path

from governor.model import Grant
from tasks import matching, pairs, tracks, verification
from tasks.kind import Done, Job, Kind, Outcome
from tasks.pairs import pairs_job
from tasks.parameters import ProjectParameters
from tasks.reconstruction import ModelPayload, run_reconstruction
from tasks.tracks import tracks_job
from tasks.verification import inlier_edge_count
from tests.unit.tasks.scene_store import SceneStore, build_scene

IMAGES, POINTS = 8, 250
ENOUGH = Grant(batch=1, cpu_threads=2, memory_bytes=1 << 40, io_slots=1)
_KINDS: dict[str, Kind] = {
    kind.name: kind for module in (matching, pairs, tracks, verification) for kind in module.KINDS
}


def build_verified_scene(
    root: Path, *, images: int = IMAGES, points: int = POINTS, parameters: ProjectParameters | None = None
) -> SceneStore:
    """Create a project up to its tracks; its mapping is still to do."""
    scene = build_scene(root, images=images, points=points, parameters=parameters)
    jobs = [pairs_job(scene.project, content) for content in scene.contents]
    while jobs:
        jobs = [follow_up for job in jobs for follow_up in _run(scene, job)]
    _run(scene, tracks_job(scene.project, inlier_edge_count(scene.store, scene.project)))
    return scene


def reconstruct(scene: SceneStore, grant: Grant = ENOUGH) -> Outcome:
    """Run the kind once and return its outcome."""
    (outcome,) = run_reconstruction([ModelPayload(project=scene.project.id)], grant, scene.store)
    return outcome


def _run(scene: SceneStore, job: Job) -> tuple[Job, ...]:
    kind = _KINDS[job.kind]
    (outcome,) = kind.run([kind.payload.model_validate(job.payload)], ENOUGH, scene.store)
    if not isinstance(outcome, Done):
        raise TypeError(f"{job.kind}: {outcome}")
    return outcome.follow_ups

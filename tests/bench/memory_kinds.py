"""Measures every other kind against its reservation: known hard batches, and a real project.

Does not cover feature extraction on its own (:mod:`tests.bench.memory_ladder`).
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from governor.model import Estimate
from tasks import expand, import_images, matching, pairs, tracks, verification, visual_index
from tasks.expand import EXPAND_KIND, ExpandPayload
from tasks.import_images import ImportPayload
from tasks.kind import Payload
from tasks.model_memory import model_estimate
from tasks.pair_jobs import MatchPayload, VerifyPayload
from tasks.pairing import pairing_of
from tasks.pairs import PairsPayload, pairs_estimate
from tasks.parameters import PairParameters, ProjectParameters
from tasks.reconstruction import ModelPayload, mapping_size
from tasks.store import Store
from tasks.tracks import TracksPayload, tracks_estimate
from tasks.verification import inlier_edge_count
from tasks.visual_index import IndexPayload
from tests.acceptance.child_batches import run_under
from tests.unit.tasks.mapped_scene import build_verified_scene
from tests.unit.tasks.photo_builders import store_at
from tests.unit.tasks.scene_store import GRANT, build_scene

FULL_SET = 8192
MANY_IMAGES = 2000
RUN_TIMEOUT_SECONDS = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFigure:
    """What one batch of a kind took, and what it had reserved."""

    kind: str
    case: str
    peak_bytes: int
    """0: within the noise of a batch that does nothing."""
    reserved_bytes: int

    @property
    def ratio(self) -> float:
        """Return the peak in parts of the reservation."""
        return self.peak_bytes / self.reserved_bytes

    @property
    def waste_ratio(self) -> float | None:
        """Return the reservation in parts of the peak; None where the peak is unknown."""
        return self.reserved_bytes / self.peak_bytes if self.peak_bytes else None


def hard_batches(photos: Path) -> Iterator[KindFigure]:
    """Measure the hardest known batch of each kind, each in a process of its own."""
    parts = (_importing, _full_sets, _many_images, _tracks_and_model)
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="tiepoint-kinds-") as name:
            yield from part(Path(name), photos)


def real_project(photos: Path) -> Iterator[KindFigure]:
    """Run a whole project; yield each kind's batch that came nearest to its reservation.

    Raises:
        subprocess.SubprocessError: it failed, or hung.
    """
    with tempfile.TemporaryDirectory(prefix="tiepoint-project-") as name:
        command = [sys.executable, "-P", "-m", "worker.cli", "run", str(photos), "--json", "--cpus", "2"]
        command += ["--project", str(Path(name) / "project"), "--pairs", "retrieval"]
        command += ["--profile", "dedicated"]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, check=True, text=True, timeout=RUN_TIMEOUT_SECONDS
        )
    kinds: dict[str, dict[str, Any]] = json.loads(done.stdout)["kinds"]
    for kind, fields in kinds.items():
        yield KindFigure(
            kind=kind,
            case=f"the worst of {fields['batches']}",
            peak_bytes=fields["peak_bytes"],
            reserved_bytes=fields["reserved_bytes"],
        )


def _figure(
    kind: str, case: str, estimate: Estimate, payloads: Sequence[Payload], store: Store, threads: int = 1
) -> KindFigure:
    sent = [payload.model_dump(mode="json") for payload in payloads]
    measured, used = run_under(estimate, kind, sent, store, threads)
    if set(measured.actions) != {"done"}:
        raise RuntimeError(f"{kind} ended with {measured.frames}")
    return KindFigure(
        kind=kind, case=case, peak_bytes=measured.peak_bytes, reserved_bytes=used.memory_bytes(len(payloads))
    )


def _importing(root: Path, photos: Path) -> Iterator[KindFigure]:
    store, payloads = store_at(root), []
    for number in range(32):
        source = root / f"{number}.jpg"
        # Bytes behind a picture's end make it another photo.
        source.write_bytes(min(photos.iterdir()).read_bytes() + bytes([number]))
        payloads.append(ImportPayload(project="survey", name=source.name, source=str(source)))
    yield _figure(import_images.IMPORT_KIND, "32 photos", import_images.ESTIMATE, payloads, store)


def _full_sets(root: Path, _photos: Path) -> Iterator[KindFigure]:
    scene = build_scene(root, images=17, points=FULL_SET)
    features, project, store = scene.project.parameters.features, scene.project.id, scene.store
    sets = [IndexPayload(image=content, features=features) for content in scene.contents[:16]]
    (index,) = visual_index.KINDS
    yield _figure(index.name, "16 sets of 8192, 12 threads", index.estimate, sets, store, threads=12)
    neighbours = [(min(pair), max(pair)) for pair in pairwise(scene.contents[:9])]
    matched = [MatchPayload(left=a, right=b, features=features, project=project) for a, b in neighbours]
    match = matching.KINDS[0]
    yield _figure(match.name, "8 pairs of 8192, 8 threads", match.estimate, matched, store, threads=8)
    list(match.run(matched, GRANT, store))
    verified = [VerifyPayload(left=left, right=right) for left, right in neighbours]
    verify = verification.KINDS[0]
    yield _figure(verify.name, "8 pairs of 8192 matches", verify.estimate, verified, store)


def _many_images(root: Path, _photos: Path) -> Iterator[KindFigure]:
    parameters = ProjectParameters(pairs=PairParameters(strategy="exhaustive"))
    scene = build_scene(root, images=MANY_IMAGES, parameters=parameters, with_features=False)
    estimate = pairs_estimate(pairing_of(scene.project))
    sources = [PairsPayload(project=scene.project.id, image=content) for content in scene.contents[:26]]
    case = f"26 of {MANY_IMAGES} images, 12 threads"
    yield _figure(pairs.KINDS[0].name, case, estimate, sources, scene.store, threads=12)
    plan = [ExpandPayload(project=scene.project.id)]
    yield _figure(EXPAND_KIND, f"{MANY_IMAGES} images", expand.KINDS[0].estimate, plan, scene.store)


def _tracks_and_model(root: Path, _photos: Path) -> Iterator[KindFigure]:
    scene = build_verified_scene(root, images=8, points=FULL_SET)
    project, store = scene.project.id, scene.store
    edges = inlier_edge_count(store, scene.project)
    for path in root.rglob("track_builder.run*"):
        shutil.rmtree(path)
    yield _figure(
        tracks.KINDS[0].name,
        f"{edges} edges",
        tracks_estimate(edges),
        [TracksPayload(project=project)],
        store,
    )
    size = mapping_size(store, scene.project)
    model = [ModelPayload(project=project)]
    case = f"{size.images} images, {size.max_observations} observations"
    yield _figure("model.reconstruct", case, model_estimate(size), model, store)

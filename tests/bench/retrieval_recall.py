"""Measures which of the pairs that exhaustive matching verifies the visual index would have proposed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from governor.model import Grant
from tasks.demo_scene import PHOTOS_FOLDER, render_scene
from tasks.kind import Done
from tasks.pairing import pairing_of
from tasks.parameters import Extractor, FeatureParameters, PairParameters, ProjectParameters
from tasks.retrieval import VisualIndex
from tasks.store import Project, Store
from tasks.verification import verified_pairs
from tasks.visual_index import KINDS, IndexPayload, run_index
from tests.conftest import photos_root
from tests.plain_runner import run_plain

TOPS = (5, 10, 20)
MIN_INLIERS = 30
_BATCH = KINDS[0].estimate.max_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """How much of a set retrieval finds; a pair counts as found when either image proposes the other."""

    name: str
    extractor: str
    images: int
    pairs: int
    """Verified with at least 30 inliers."""
    ratio_by_top: dict[int, float]


def exhaustive_project(name: str, extractor: Extractor, projects: Path) -> tuple[Store, Project]:
    """Return a set's project with all pairs matched and verified; what is in the folder already stays."""
    parameters = ProjectParameters(
        features=FeatureParameters(extractor=extractor), pairs=PairParameters(strategy="exhaustive")
    )
    result = run_plain(_photos(name, projects), projects / f"{name}-{extractor}", parameters)
    return result.store, result.project


def recall_of(name: str, store: Store, project: Project) -> Recall:
    """Return the recall of an exhaustively matched project."""
    contents = index_all(store, project)
    wanted = strong_pairs(store, project)
    return Recall(
        name=name,
        extractor=project.parameters.features.extractor,
        images=len(contents),
        pairs=len(wanted),
        ratio_by_top={top: _ratio(wanted, proposed_pairs(store, project, top)) for top in TOPS},
    )


def index_all(store: Store, project: Project) -> Sequence[str]:
    """Enter all images of a project into the index; return them by id."""
    contents = pairing_of(project).by_id
    parts = iter(contents)
    while part := list(islice(parts, _BATCH)):
        payloads = [IndexPayload(image=content, features=project.parameters.features) for content in part]
        grant = Grant(batch=len(part), cpu_threads=1, memory_bytes=KINDS[0].estimate.memory_bytes(len(part)))
        if not all(isinstance(outcome, Done) for outcome in run_index(payloads, grant, store)):
            raise RuntimeError(f"the features of {project.id} cannot be indexed")
    return contents


def strong_pairs(store: Store, project: Project) -> set[tuple[str, str]]:
    """Return the pairs (smaller id, larger id) that are verified with at least 30 inliers."""
    return {
        (pair.left, pair.right) for pair in verified_pairs(store, project) if len(pair.inliers) >= MIN_INLIERS
    }


def proposed_pairs(store: Store, project: Project, top: int) -> set[tuple[str, str]]:
    """Return the pairs that the index proposes when each image asks for its ``top`` neighbours."""
    indexed = replace(pairing_of(project), parameters=PairParameters(strategy="retrieval")).indexed
    contents = tuple(indexed)
    index = VisualIndex.of(store, tuple(indexed.values()))
    pairs: set[tuple[str, str]] = set()
    for source, content in enumerate(contents):
        (neighbours,) = index.neighbours([source], top, threads=1)
        others = (contents[neighbour.position] for neighbour in neighbours)
        pairs.update((min(content, other), max(content, other)) for other in others)
    return pairs


def _ratio(wanted: set[tuple[str, str]], proposed: set[tuple[str, str]]) -> float:
    return len(wanted & proposed) / len(wanted) if wanted else 1.0


def _photos(name: str, projects: Path) -> Path:
    if name != "demo":
        return photos_root() / name / "images"
    folder = projects / "demo-scene"
    if not folder.exists():
        render_scene(folder)
    return folder / PHOTOS_FOLDER

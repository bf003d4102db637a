"""Holds what is told of a project's models, and says in words why there is none.

It is the file summary.json in the model folder; it makes no model itself.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pycolmap
from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.errors import CorruptArtefactError
from tasks.georeference import Georeference
from tasks.mapping import registered_names
from tasks.two_view import TwoViewConfig
from tasks.verification import VerifiedPair

SUMMARY_FILE = "summary.json"


class _Summary(BaseModel):
    """Base: frozen, unknown keys refused, because it is read back from disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSummary(_Summary):
    """One sparse model."""

    registered_images: int
    points: int
    observations: int
    mean_reprojection_error_px: float
    mean_track_length: float
    images: tuple[str, ...]
    """Names of the registered images, sorted."""
    georeference: Georeference


class ModelReport(_Summary):
    """All models of a project, best first; ``models``[n] is the folder n."""

    models: tuple[ModelSummary, ...]
    unregistered_images: tuple[str, ...]
    """Names of the images with features that are in no model, sorted."""
    reason: str | None
    """Why there is no model, in words; None where there is one."""


def summarize(model: pycolmap.Reconstruction, georeference: Georeference) -> ModelSummary:
    """Return the figures of one model."""
    return ModelSummary(
        registered_images=model.num_reg_images(),
        points=model.num_points3D(),
        observations=model.compute_num_observations(),
        mean_reprojection_error_px=model.compute_mean_reprojection_error(),
        mean_track_length=model.compute_mean_track_length(),
        images=tuple(registered_names(model)),
        georeference=georeference,
    )


def write_report(folder: Path, report: ModelReport) -> None:
    """Write the report into a model folder."""
    (folder / SUMMARY_FILE).write_text(report.model_dump_json(indent=1) + "\n", encoding="utf-8")


def read_report(folder: Path) -> ModelReport:
    """Read the report of a model folder.

    Raises:
        CorruptArtefactError: there is none, or of another form.
    """
    try:
        return ModelReport.model_validate_json((folder / SUMMARY_FILE).read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise CorruptArtefactError(f"{folder / SUMMARY_FILE} is no report of models") from error


def reason_for_no_model(
    contents: Sequence[str], pairs: Iterable[VerifiedPair], min_model_size: int, largest_part: int
) -> str:
    """Say in one sentence why photos gave no model.

    ``contents`` are the ids of the images with features, ``pairs`` all pairs
    that were tried, ``largest_part`` the number of images in the largest
    model that was dropped as too small.
    """
    if len(contents) < min_model_size:
        return f"A model needs at least {min_model_size} photos; {len(contents)} could be used."
    if largest_part:
        return f"Only {largest_part} photos fit into one model; it takes at least {min_model_size}."
    accepted = [pair for pair in pairs if len(pair.inliers)]
    if not accepted:
        return "No two photos show the same details: they do not overlap, or have too little texture."
    group = _largest_group(contents, accepted)
    if group < min_model_size:
        return f"At most {group} photos overlap each other; a model needs {min_model_size}."
    if all(pair.config is TwoViewConfig.PANORAMIC for pair in accepted):
        return "All overlapping photos were taken from one spot; depth is seen only when the camera moves."
    best = max(len(pair.inliers) for pair in accepted)
    return (
        f"No pair of photos is good enough to start from: the best shares {best} details, and "
        "it takes about 100, seen from directions some 16 degrees apart."
    )


def _largest_group(contents: Sequence[str], pairs: Sequence[VerifiedPair]) -> int:
    """Return the number of images in the largest group that accepted pairs connect."""
    group_of = {content: {content} for content in contents}
    for pair in pairs:
        left, right = group_of[pair.left], group_of[pair.right]
        if left is not right:
            left |= right
            for content in right:
                group_of[content] = left
    return max(len(group) for group in group_of.values())

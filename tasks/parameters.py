"""Holds the parameters of a project: everything that can change a result, and how it is worked on.

Each group is a frozen pydantic model. But for ExecutionParameters, its canonical JSON is part of the names
of the artefacts it leads to, so a changed default is a changed name, never a
silent reuse.
"""

from typing import Annotated, Literal, Self, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Extractor = Literal["rootsift", "sift", "orb"]
PairStrategy = Literal["auto", "exhaustive", "retrieval", "sequential", "spatial"]
PAIR_STRATEGIES: tuple[PairStrategy, ...] = get_args(PairStrategy)


def canonical_strategies(text: str) -> str:
    """Return a union of pair strategies in its one form: each once, sorted, joined by commas.

    Raises:
        ValueError: a name that there is not, none at all, or `auto` joined with others.
    """
    names = {name.strip() for name in text.split(",")}
    unknown = sorted(names - set(PAIR_STRATEGIES))
    if unknown:
        known = ", ".join(PAIR_STRATEGIES)
        raise ValueError(f"{unknown[0]!r} is no pair strategy; there are {known}, and unions such as a,b")
    if "auto" in names and len(names) > 1:
        raise ValueError("auto chooses by itself and cannot be joined with others; leave it out")
    return ",".join(sorted(names))


class Parameters(BaseModel):
    """Base: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FeatureParameters(Parameters):
    """How keypoints and descriptors are made from one image."""

    extractor: Extractor = "rootsift"
    max_image_size_px: int = Field(default=3200, ge=64, le=65_535)
    """The longer side for detection; coordinates are given in the full image."""
    max_features: int = Field(default=8192, ge=1, le=8192)


class PairParameters(Parameters):
    """Which images are matched with which."""

    strategy: Annotated[str, AfterValidator(canonical_strategies)] = "auto"
    """One of PAIR_STRATEGIES, or several joined by commas: what any of them proposes is matched."""
    top_k: int = Field(default=64, ge=1, le=4096)
    """`retrieval`: how many images each image is paired with, those that resemble it most."""
    neighbours: int = Field(default=50, ge=1, le=4096)
    """`spatial`: how many images each image is paired with, those taken nearest to it..."""
    max_distance_m: float = Field(default=100.0, gt=0.0, allow_inf_nan=False)
    """...and within this distance; altitude is ignored."""
    window: int = Field(default=10, ge=1, le=1000)
    """`sequential`: how many following images each image is paired with."""
    loop_steps: bool = True
    """`sequential`: also pair at doubling distances beyond the window."""

    @property
    def strategies(self) -> frozenset[PairStrategy]:
        """Return the strategies as a set."""
        return frozenset(cast("PairStrategy", name) for name in self.strategy.split(","))


class MatchParameters(Parameters):
    """How descriptors of two images are matched."""

    ratio: float | None = Field(default=None, gt=0.0, le=1.0)
    """Nearest to second nearest distance; None = 0.80 for SIFT, 0.75 for ORB."""
    cross_check: bool = True


class VerificationParameters(Parameters):
    """When the matches of two images count as geometrically verified."""

    max_error_px: float = Field(default=1.5, gt=0.0, le=100.0)
    confidence: float = Field(default=0.9999, gt=0.0, lt=1.0)
    max_iterations: int = Field(default=10_000, ge=100, le=1_000_000)
    min_inliers: int = Field(default=15, ge=8)
    min_inlier_ratio: float = Field(default=0.2, ge=0.0, le=1.0)


class TrackParameters(Parameters):
    """How verified matches become tracks."""

    conflicts: Literal["split", "reject"] = "split"
    min_length: int = Field(default=2, ge=2)


class ModelParameters(Parameters):
    """How tracks become a sparse model."""

    min_model_size: int = Field(default=3, ge=2)
    camera_model: Literal["SIMPLE_RADIAL"] = "SIMPLE_RADIAL"


class ExecutionParameters(Parameters):
    """How the work is done where that changes no result: no part of any artefact's name."""

    matcher: Literal["cpu", "gpu"] = "cpu"
    """`gpu`: ORB descriptors are compared on graphics cards; the matches are the same."""


class ProjectParameters(Parameters):
    """Everything that decides a project's result, apart from its photos, and how it is worked on."""

    features: FeatureParameters = FeatureParameters()
    pairs: PairParameters = PairParameters()
    matching: MatchParameters = MatchParameters()
    verification: VerificationParameters = VerificationParameters()
    tracks: TrackParameters = TrackParameters()
    model: ModelParameters = ModelParameters()
    execution: ExecutionParameters = ExecutionParameters()

    @model_validator(mode="after")
    def _check_matcher(self) -> Self:
        if self.execution.matcher == "gpu" and self.features.extractor != "orb":
            raise ValueError(
                f"only ORB features are matched on a GPU, not {self.features.extractor}; "
                "choose ORB features, or leave the matcher at cpu"
            )
        return self

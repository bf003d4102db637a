"""Holds the options that several commands share, and how their texts are read.

Does not cover what a command does with them.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tasks.parameters import (
    ExecutionParameters,
    FeatureParameters,
    PairParameters,
    ProjectParameters,
    canonical_strategies,
)
from worker.settings import WrongSettingError


class Features(StrEnum):
    """Which features are extracted."""

    ROOTSIFT = "rootsift"
    SIFT = "sift"
    ORB = "orb"


class Matcher(StrEnum):
    """What compares the features."""

    CPU = "cpu"
    GPU = "gpu"


class Pairs(StrEnum):
    """Which images are matched with which; all but `auto` may be joined by commas."""

    AUTO = "auto"
    EXHAUSTIVE = "exhaustive"
    RETRIEVAL = "retrieval"
    SEQUENTIAL = "sequential"
    SPATIAL = "spatial"


class Profile(StrEnum):
    """How much of the machine jobs may take."""

    INTERACTIVE = "interactive"
    DEDICATED = "dedicated"


class Until(StrEnum):
    """The last phase to run."""

    IMPORT = "import"
    FEATURES = "features"
    INDEX = "index"
    MATCHING = "matching"
    TRACKS = "tracks"
    MODEL = "model"


def read_pairs(text: str) -> str:
    """Return a union of pair strategies in its one form.

    Raises:
        typer.BadParameter: a strategy that there is not, or `auto` joined with others.
    """
    try:
        return canonical_strategies(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
CpusOption = Annotated[int | None, typer.Option(min=1, help="Use at most this many CPU threads.")]
MemoryOption = Annotated[str | None, typer.Option(help="Use at most this much RAM, e.g. 4GiB.")]
ProfileOption = Annotated[Profile, typer.Option(help="interactive leaves room for you, dedicated does not.")]
UntilOption = Annotated[Until, typer.Option(help="Stop after this phase.")]
PhotosArgument = Annotated[Path, typer.Argument(help="The folder with the photos.")]
FeaturesOption = Annotated[Features, typer.Option(help="Which features to use.")]
PairsOption = Annotated[
    str,
    typer.Option(
        callback=read_pairs,
        metavar="STRATEGY[,STRATEGY]",
        help=f"Which images are matched with which: {', '.join(Pairs)}.",
    ),
]
MatcherOption = Annotated[
    Matcher, typer.Option(help="What compares ORB features: gpu needs an OpenCL driver; same matches.")
]
MaxImageSizeOption = Annotated[
    int, typer.Option(min=64, max=65_535, help="Longer side for detection, in pixels.")
]
MaxFeaturesOption = Annotated[int, typer.Option(min=1, max=8192, help="Features per image.")]
LinkOption = Annotated[bool, typer.Option(help="Leave the photos where they are instead of copying.")]


def read_bytes(text: str | None) -> int | None:
    """Parse an amount of memory such as 4GiB, 512MiB, 8G or 1000000000.

    Raises:
        typer.BadParameter: it is none.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])i?B?|B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text} is not an amount of memory; write it like 4GiB or 512MiB")
    power = " KMGT".index((match[2] or " ").upper())
    amount_bytes = int(float(match[1]) * 1024**power)
    if amount_bytes < 1:
        raise typer.BadParameter(f"{text} is not an amount of memory to run jobs in")
    return amount_bytes


def project_parameters(
    features: Features,
    pairs: str,
    *,
    max_image_size_px: int,
    max_features: int,
    matcher: Matcher = Matcher.CPU,
) -> ProjectParameters:
    """Return the parameters that a command's options ask for.

    Raises:
        WrongSettingError: features that are not matched on a GPU are to be.
    """
    if matcher is Matcher.GPU and features is not Features.ORB:
        raise WrongSettingError(
            f"--matcher gpu is for ORB features, not {features.value}; add --features orb, or leave it out"
        )
    return ProjectParameters(
        features=FeatureParameters(
            extractor=features.value, max_image_size_px=max_image_size_px, max_features=max_features
        ),
        pairs=PairParameters(strategy=pairs),
        execution=ExecutionParameters(matcher=matcher.value),
    )

"""Holds the options that several commands share, and how their texts are read.

Does not cover what a command does with them.
"""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from governor.planning.contract import Contract
from tasks.parameters import (
    ExecutionParameters,
    FeatureParameters,
    PairParameters,
    ProjectParameters,
    canonical_strategies,
)
from worker.contracts import LONGEST_MS, read_contract
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


class Class(StrEnum):
    """Who comes first."""

    PROTECTED = "protected"
    HIGH = "high"
    BEST_EFFORT = "best_effort"


ClassOption = Annotated[Class, typer.Option("--class", help="Who comes first.")]
DeadlineOption = Annotated[
    str | None, typer.Option(help="Of equal class what is due first comes first: so long from now, like 90s.")
]
MaxAgeOption = Annotated[
    str | None, typer.Option(help="What has not begun so long from now is left out, like 10m.")
]
_MS_PER = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000}


def read_milliseconds(text: str | None) -> int | None:
    """Parse a time such as 500ms, 90s, 1.5h or 2d, of 1 ms to 30 days.

    Raises:
        typer.BadParameter: it is none.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", text.strip())
    milliseconds = round(float(match[1]) * _MS_PER[match[2]]) if match else 0
    if not 1 <= milliseconds <= LONGEST_MS:
        raise typer.BadParameter(
            f"{text} is no time of 1 ms to 30 days; write it like 500ms, 90s, 10m, 2h, 1d"
        )
    return milliseconds


def project_contract(service_class: Class, deadline: str | None, max_age: str | None) -> Contract | None:
    """Return the contract of a project; None where nothing is asked for.

    Raises:
        typer.BadParameter: a time makes no sense.
    """
    times = {"deadline_ms": read_milliseconds(deadline), "max_age_ms": read_milliseconds(max_age)}
    if service_class is Class.BEST_EFFORT and not any(times.values()):
        return None
    return read_contract({"class": service_class.value, **times}).contract


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

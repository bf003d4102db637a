"""Holds how a node plans: its margin, whether it learns a factor, and from which profile.

Absent means that nothing is planned at all. Does not cover planning itself
(:mod:`worker.planning`).
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MARGIN_PERCENT = 110

_STRICT = ConfigDict(frozen=True, extra="forbid")
_Percent = Annotated[int, Field(strict=True)]


class PlanningFileError(ValueError):
    """A file of planning settings cannot be used; the text names it and says why."""


class MarginLearning(BaseModel):
    """``[planning.margin_learning]``: within what bounds the factor is learned; empty = these defaults."""

    model_config = _STRICT

    min_factor_percent: _Percent = Field(default=50, ge=10, le=100)
    max_factor_percent: _Percent = Field(default=1000, ge=100, le=10_000)
    min_observations: int = Field(default=48, ge=1, le=100_000, strict=True)
    """So many batches of real work come before a factor may fall."""
    persist: bool = Field(default=True, strict=True)
    """Whether what is learned is kept in Redis, for the node's next start."""


class PlanningSettings(BaseModel):
    """``[planning]``."""

    model_config = _STRICT

    margin_percent: _Percent = Field(default=MARGIN_PERCENT, ge=100, le=300)
    """What plans start with: of the fixed margin the floor, of the learned factor the first value."""
    margin_learning: MarginLearning | None = None
    """None: nothing is learned but the margin of each kind."""
    prediction: Literal["shadow", "active"] | None = None
    """What becomes of the plans by observed p95 and margin where a factor is learned: ``shadow`` counts how
    often they would have been overrun. They are the active ones where none is learned."""
    profiles: Path | None = None
    """File of measured durations; None = the ones that came with this version."""

    @model_validator(mode="after")
    def _one_controller(self) -> Self:
        learning = self.margin_learning
        if learning is not None and self.prediction == "active":
            raise ValueError(
                "planning.prediction: active beside planning.margin_learning: two controllers of one plan "
                "would chase each other; say shadow, or leave one of them out"
            )
        if learning is not None and learning.max_factor_percent < self.margin_percent:
            raise ValueError(
                f"planning.margin_learning.max_factor_percent: {learning.max_factor_percent} is below "
                f"planning.margin_percent, {self.margin_percent}, which the factor starts with"
            )
        return self


def read_planning_file(path: Path) -> dict[str, Any]:
    """Return what the table ``[planning]`` of a TOML file says, not checked yet.

    A relative path of profiles is one from the file's own folder.

    Raises:
        PlanningFileError: it cannot be read, or holds anything else.
    """
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PlanningFileError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanningFileError(f"{path} is not TOML: {error}") from error
    unknown = sorted(tables.keys() - {"planning"})
    planning = tables.get("planning")
    if unknown or not isinstance(planning, dict):
        what = f"{unknown[0]} is not known here" if unknown else "there is no table [planning]"
        raise PlanningFileError(f"{path}: {what}; the file holds [planning] and [planning.margin_learning]")
    if isinstance(planning.get("profiles"), str):
        planning["profiles"] = str(path.resolve().parent / planning["profiles"])
    return planning

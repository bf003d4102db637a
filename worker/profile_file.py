"""Reads and writes files of measured durations: JSON, strict, small.

Does not cover how durations are measured, nor which of them a batch is
planned with (:mod:`governor.planning.profile`).
"""

import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from governor.planning.cell import MAX_BATCH_CLASS, batch_class
from governor.planning.profile import MAX_OCCUPANCY, MIN_SAMPLES, CellKey, Durations, LinearCost, ProfileSet

SCHEMA = 1
_MOST_BYTES = 4 * 2**20
_REFERENCE = "reference.json"
_STRICT = ConfigDict(frozen=True, extra="forbid", strict=True)
_Nanoseconds = Annotated[int, Field(gt=0, lt=2**63)]
_Name = Annotated[str, Field(min_length=1, max_length=128)]


class ProfileFileError(Exception):
    """A file of profiles cannot be used; the text names the file, the cause and the cure."""


class _Cell(BaseModel):
    model_config = _STRICT

    kind: _Name
    variant: Literal["cpu", "gpu"] = "cpu"
    batch_class: int = Field(ge=1, le=MAX_BATCH_CLASS)
    occupancy: int = Field(ge=0, le=MAX_OCCUPANCY)
    samples: int = Field(ge=MIN_SAMPLES)
    p50_ns: _Nanoseconds
    p95_ns: _Nanoseconds
    p99_ns: _Nanoseconds

    @model_validator(mode="after")
    def _of_this_world(self) -> Self:
        if batch_class(self.batch_class) != self.batch_class:
            raise ValueError(f"batch_class: {self.batch_class} is no power of two")
        if not self.durations.is_valid():
            raise ValueError("p50_ns <= p95_ns <= p99_ns does not hold")
        return self

    @property
    def key(self) -> CellKey:
        return CellKey(
            kind=self.kind, variant=self.variant, batch_class=self.batch_class, occupancy=self.occupancy
        )

    @property
    def durations(self) -> Durations:
        return Durations(p50_ns=self.p50_ns, p95_ns=self.p95_ns, p99_ns=self.p99_ns)


class _Linear(BaseModel):
    model_config = _STRICT

    setup_ns: int = Field(ge=0, lt=2**63)
    per_item_ns: _Nanoseconds


class _File(BaseModel):
    model_config = _STRICT

    schema_version: Literal[1] = Field(alias="schema")
    conditions: dict[_Name, Annotated[str, Field(max_length=4096)]]
    hardware: dict[_Name, Annotated[str, Field(max_length=4096)]] = {}
    cells: list[_Cell] = Field(max_length=20_000)
    linear: dict[_Name, _Linear] = {}


def read_profiles(path: Path | None) -> ProfileSet:
    """Return the profiles of a file, or with None those that came with this version.

    Raises:
        ProfileFileError: it cannot be read, or says what no profile can.
    """
    name, text = _text(path)
    try:
        read = _File.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ProfileFileError(
            f"{name} holds no profiles that can be used: {where}: {first['msg']}; measure them again"
        ) from error
    cells = {cell.key: cell.durations for cell in read.cells}
    if len(cells) < len(read.cells):
        raise ProfileFileError(f"{name} holds a cell twice; measure the profiles again")
    linear = {
        kind: LinearCost(setup_ns=cost.setup_ns, per_item_ns=cost.per_item_ns)
        for kind, cost in read.linear.items()
    }
    return ProfileSet(cells=cells, linear=linear, conditions=read.conditions, hardware=read.hardware)


def _text(path: Path | None) -> tuple[str, bytes]:
    if path is None:
        return f"the reference set {_REFERENCE}", (files("worker.profiles") / _REFERENCE).read_bytes()
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ProfileFileError(f"{path} cannot be read: {error.strerror}; name another file") from error
    if len(text) > _MOST_BYTES:
        raise ProfileFileError(f"{path} has more than 4 MiB and holds no profiles; name another file")
    return str(path), text


def write_profiles(path: Path, profiles: ProfileSet, samples: Mapping[CellKey, int]) -> None:
    """Write profiles whole or not at all; ``samples`` says how many durations each cell comes from.

    Raises:
        ProfileFileError: the file cannot be written.
    """
    told = {
        "schema": SCHEMA,
        "conditions": dict(sorted(profiles.conditions.items())),
        "hardware": dict(sorted(profiles.hardware.items())),
        "cells": [_cell(key, profiles.cells[key], samples[key]) for key in sorted(profiles.cells)],
        "linear": {
            kind: {"setup_ns": cost.setup_ns, "per_item_ns": cost.per_item_ns}
            for kind, cost in sorted(profiles.linear.items())
        },
    }
    try:
        _replace(path, json.dumps(told, indent=1) + "\n")
    except OSError as error:
        raise ProfileFileError(f"{path} cannot be written: {error.strerror}; name another file") from error


def _replace(path: Path, text: str) -> None:
    # Opened as any file is: a worker of another user may have to read it.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _cell(key: CellKey, durations: Durations, samples: int) -> dict[str, str | int]:
    return {
        "kind": key.kind,
        "variant": key.variant,
        "batch_class": key.batch_class,
        "occupancy": key.occupancy,
        "samples": samples,
        "p50_ns": durations.p50_ns,
        "p95_ns": durations.p95_ns,
        "p99_ns": durations.p99_ns,
    }

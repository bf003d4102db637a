"""Holds measured durations of job kinds, and finds the ones that a batch is planned with.

A profile comes from a file that ``tiepoint calibrate`` writes; its identity
tells apart what was measured under different conditions. Integers only. Does
not cover the file nor what is measured.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from governor.planning.cell import MAX_BATCH_CLASS, batch_class

MAX_OCCUPANCY = 7
MIN_SAMPLES = 100


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CellKey:
    """What a duration depends on, besides the node and the picture."""

    kind: str
    variant: str = "cpu"
    """Execution mode of the kind: ``cpu`` or ``gpu``."""
    batch_class: int = 1
    """Next power of two of the batch's items, 1..64."""
    occupancy: int = 0
    """Other reservations that are active on the node when the batch starts, 0..7."""

    @classmethod
    def of(cls, kind: str, *, items: int, others: int, variant: str = "cpu") -> "CellKey":
        """Return the cell of a batch beside so many others."""
        return cls(
            kind=kind, variant=variant, batch_class=batch_class(items), occupancy=min(others, MAX_OCCUPANCY)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Quantiles of the duration per item, in nanoseconds."""

    p50_ns: int
    p95_ns: int
    p99_ns: int

    def is_valid(self) -> bool:
        """Tell whether the quantiles are in order and of this world."""
        return 0 < self.p50_ns <= self.p95_ns <= self.p99_ns

    def scaled(self, permille: int) -> "Durations":
        """Return the profile of a machine that takes permille / 1000 of the time, rounded down."""
        return Durations(
            p50_ns=self.p50_ns * permille // 1000,
            p95_ns=self.p95_ns * permille // 1000,
            p99_ns=self.p99_ns * permille // 1000,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearCost:
    """What is said of a kind that was not measured: setup + items x per item."""

    setup_ns: int
    per_item_ns: int

    def durations(self, items: int) -> Durations:
        """Return the duration per item of a batch, the same for every quantile."""
        per_item_ns = -(-(self.setup_ns + items * self.per_item_ns) // items)
        return Durations(p50_ns=per_item_ns, p95_ns=per_item_ns, p99_ns=per_item_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What a profile says of a batch; per item."""

    durations: Durations
    is_verified: bool
    """It was measured, and not computed from setup and per-item costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSet:
    """All profiles of a node."""

    cells: Mapping[CellKey, Durations]
    linear: Mapping[str, LinearCost] = field(default_factory=dict)
    """By kind, for what has no cell."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Versions, OpenCV's build and parameters that change cost: a part of the identity."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """What it was measured on: no part of the identity, for learned factors are there to bridge that."""

    @property
    def measured_kinds(self) -> frozenset[str]:
        """Return the kinds of which at least one cell was measured."""
        return frozenset(key.kind for key in self.cells)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of which anything is known."""
        return self.measured_kinds | self.linear.keys()

    def find(self, key: CellKey, items: int) -> Profiled | None:
        """Return what a batch is planned with, None where nothing is known of its kind.

        A batch class that was not measured is planned as the next larger one
        that was, an occupancy as the next larger or else the highest one.
        """
        size = key.batch_class
        while size <= MAX_BATCH_CLASS:
            measured = self._at(key.kind, key.variant, size, key.occupancy)
            if measured is not None:
                return Profiled(durations=measured, is_verified=True)
            size *= 2
        cost = self.linear.get(key.kind)
        return None if cost is None else Profiled(durations=cost.durations(items), is_verified=False)

    def _at(self, kind: str, variant: str, size: int, occupancy: int) -> Durations | None:
        at_least = range(occupancy, MAX_OCCUPANCY + 1)
        below = range(occupancy - 1, -1, -1)
        for candidate in (*at_least, *below):
            key = CellKey(kind=kind, variant=variant, batch_class=size, occupancy=candidate)
            if key in self.cells:
                return self.cells[key]
        return None

    def identity(self, kind: str) -> str:
        """Return what a kind's profile is known by: SHA-256 over its canonical JSON."""
        cells = sorted(
            [key.variant, key.batch_class, key.occupancy, found.p50_ns, found.p95_ns, found.p99_ns]
            for key, found in self.cells.items()
            if key.kind == kind
        )
        cost = self.linear.get(kind)
        described = {
            "schema": 1,
            "kind": kind,
            "conditions": dict(self.conditions),
            "cells": cells,
            "linear": None if cost is None else [cost.setup_ns, cost.per_item_ns],
        }
        canonical = json.dumps(described, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

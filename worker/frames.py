"""Holds the frames between the main process and a child: one JSON object per line.

Main to child: a batch request. Child to main: once it has loaded what a kind needs,
that it is warm; an outcome per item as it is published; a report of the whole batch.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

from governor.model import Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The entry of a project's stage set that a job settles."""

    project: str
    stage: str
    item: str
    name: str = ""
    """What the user calls the item; empty = the item itself."""

    @property
    def told_as(self) -> str:
        """Return what messages call the item."""
        return self.name or self.item


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """One call of a kind's callback."""

    batch_id: str
    kind: str
    payloads: tuple[dict[str, Any], ...]
    places: tuple[Place | None, ...]
    """Where each item stands in its project; None for a job that belongs to none."""
    grant: Grant
    contracts: tuple[dict[str, Any], ...] = ()
    """What each item's headers say of its contract: what follows from it has the same."""
    store_id: str = ""
    """What the store calls itself that the batch is for; "" = not known."""
    soft_seconds: float | None = None
    """The least soft time limit of its items; None = none has one."""

    def contract(self, index: int) -> dict[str, Any]:
        """Return what an item's headers say of its contract."""
        return self.contracts[index] if self.contracts else {}

    def to_line(self) -> bytes:
        """Encode as one line."""
        # Not by asdict: it would copy every payload, to no purpose.
        return encode(
            {
                "batch_id": self.batch_id,
                "kind": self.kind,
                "payloads": self.payloads,
                "places": [_fields_of(place) if place else None for place in self.places],
                "grant": _fields_of(self.grant),
                "contracts": self.contracts,
                "store_id": self.store_id,
                "soft_seconds": self.soft_seconds,
            }
        )

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Decode what :meth:`to_line` wrote."""
        fields = json.loads(line)
        fields["payloads"] = tuple(fields["payloads"])
        fields["places"] = tuple(Place(**place) if place else None for place in fields["places"])
        fields["grant"] = Grant(**fields["grant"])
        fields["contracts"] = tuple(fields["contracts"])
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What the child measured over one batch."""

    peak_bytes: int
    """Above the warm child; 0 = unknown."""
    recorded_items: int
    """Sum over the outcomes; 0 for a batch that found everything done."""
    retire: bool
    """The child keeps memory or processes, or was interrupted: the reservation ends when it is gone."""
    worked_items: int = 0
    """Items that are done and were not before."""


def _fields_of(value: Place | Grant) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def encode(frame: dict[str, Any]) -> bytes:
    """Encode one frame as a line."""
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


class LineBuffer:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield the frames completed by this data."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)

"""Reads the service contract of a message from its headers: who comes first, and until when it is of use.

Flat headers, so that any Celery client can send them (``docs/payloads.md``).
Does not cover what follows from a contract (:mod:`governor.planning.contract`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from governor.planning.contract import Contract, ServiceClass

CLASSES = {
    "protected": ServiceClass.PROTECTED,
    "high": ServiceClass.HIGH,
    "best_effort": ServiceClass.BEST_EFFORT,
}
LONGEST_MS = 30 * 24 * 3_600_000
LONGEST_KEY = 128
NS_PER_MS = 1_000_000
_LATEST_MS = 2**53
"""Beyond, clients that hold numbers as floats would send another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentContract:
    """A contract as a message brings it."""

    contract: Contract
    captured_at_ms: int | None = None
    """When its data was captured, in milliseconds since 1970; None = when it was sent, as far as we know."""

    @property
    def priority(self) -> int:
        """Return kombu's priority of its class: the list that it belongs to."""
        return int(self.contract.service_class)

    def captured_ms(self, now_ms: int) -> int:
        """Return when its data was captured: not in the future, whatever its sender's clock says."""
        return now_ms if self.captured_at_ms is None else min(self.captured_at_ms, now_ms)

    def is_stale(self, now_ms: int, takes_ns: int = 0) -> bool:
        """Tell whether a result would be too old if the job started now, and took so long."""
        captured_ns = self.captured_ms(now_ms) * NS_PER_MS
        return self.contract.is_stale(captured_ns, now_ms * NS_PER_MS + takes_ns)


NOTHING_SAID = SentContract(contract=Contract())
"""Of a message that says nothing."""


def read_contract(headers: Mapping[str, Any]) -> SentContract:
    """Return the contract that a message's headers tell.

    Raises:
        ValueError: one of them is not of its type, or out of range; the text names it.
    """
    name = headers.get("class")
    if name is not None and (not isinstance(name, str) or name not in CLASSES):
        raise ValueError(f"class is {name!r}, not one of {', '.join(CLASSES)}")
    captured_at_ms = _whole(headers, "captured_at_ms", 0, _LATEST_MS)
    contract = Contract(
        service_class=ServiceClass.BEST_EFFORT if name is None else CLASSES[name],
        period_ns=_nanoseconds(headers, "period_ms"),
        deadline_ns=_nanoseconds(headers, "deadline_ms"),
        max_age_ns=_nanoseconds(headers, "max_age_ms"),
        supersede_key=_key(headers),
    )
    return SentContract(contract=contract, captured_at_ms=captured_at_ms)


def to_headers(sent: SentContract) -> dict[str, str | int]:
    """Return the headers that tell a contract; of best effort without more none but its class."""
    contract = sent.contract
    times = {
        "period_ms": contract.period_ns,
        "deadline_ms": contract.deadline_ns,
        "max_age_ms": contract.max_age_ns,
    }
    names = {value: name for name, value in CLASSES.items()}
    told: dict[str, str | int] = {"class": names[contract.service_class]}
    told |= {name: -(-value // NS_PER_MS) for name, value in times.items() if value is not None}
    if contract.supersede_key:
        told["supersede_key"] = contract.supersede_key
    if sent.captured_at_ms is not None:
        told["captured_at_ms"] = sent.captured_at_ms
    return told


def _nanoseconds(headers: Mapping[str, Any], name: str) -> int | None:
    value = _whole(headers, name, 1, LONGEST_MS)
    return None if value is None else value * NS_PER_MS


def _whole(headers: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}, not a whole number of {least} to {most}")
    return value


def _key(headers: Mapping[str, Any]) -> str:
    key = headers.get("supersede_key")
    if key is None:
        return ""
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY:
        raise ValueError(f"supersede_key is no text of 1 to {LONGEST_KEY} characters")
    return key

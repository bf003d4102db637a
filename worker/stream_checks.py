"""Checks what jobs that wait ask of time: whether anything can come of it.

Does not cover what follows from a contract (:mod:`worker.look_ahead`,
:mod:`worker.reception`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from governor.planning.contract import Contract, ServiceClass
from worker.contracts import NS_PER_MS, read_contract
from worker.findings import Finding, fine, warning
from worker.planning import NodePlanning

_NAME = "streams"
_MOST_NAMED = 4
_PLANS_IN_AN_AGE = 2
"""A job that waits for another of its kind has to be fresh all the same."""


def of_streams(waiting: Iterable[tuple[str, Mapping[str, Any]]], planning: NodePlanning | None) -> Finding:
    """Return what is to be said of jobs that wait, by kind and headers; ``planning`` is this machine's."""
    told: dict[str, None] = {}
    for kind, headers in waiting:
        try:
            contract = read_contract(headers).contract
        except ValueError:
            continue  # It fails by itself, and says so.
        told |= dict.fromkeys(_doubts(kind, contract, planning))
    if not told:
        return fine(_NAME, "no job that waits asks for what cannot be")
    return warning(_NAME, "; ".join([*told][:_MOST_NAMED]), "docs/live.md says what to send")


def _doubts(kind: str, contract: Contract, planning: NodePlanning | None) -> list[str]:
    found = []
    if contract.service_class is ServiceClass.PROTECTED and contract.period_ns is None:
        found.append(f"{kind} is protected and tells no period_ms: nothing is left free for its next job")
    plan = None if planning is None else planning.plan(kind, items=1, others=0)
    if plan is None or contract.max_age_ns is None:
        return found
    if contract.max_age_ns < _PLANS_IN_AN_AGE * plan.conservative_ns:
        age_ms, planned_ms = contract.max_age_ns // NS_PER_MS, plan.conservative_ns // NS_PER_MS
        found.append(
            f"{kind} is of no use after {age_ms} ms, and one job is planned with {planned_ms} ms here"
        )
    return found

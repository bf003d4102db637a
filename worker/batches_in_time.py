"""Decides how large a batch may be whose jobs have a deadline or a period: as large as ends in time.

Does not cover what a batch takes (:mod:`worker.planning`), nor whether it is
put off for another (:mod:`worker.look_ahead`).
"""

from collections.abc import Callable
from dataclasses import replace

from governor.model import Estimate
from governor.planning.cell import MAX_BATCH_CLASS
from governor.planning.contract import Contract
from governor.planning.planner import Plan

PlanOf = Callable[[int], Plan | None]
"""Plans a batch of so many items, None where nothing is known of its kind."""


def in_time(estimate: Estimate, contract: Contract, plan_of: PlanOf) -> Estimate:
    """Return an estimate that asks for no more items than are planned to end by the deadline and in a period.

    Halved until they are; the smallest batch runs in any case, for nothing is refused because of time.
    """
    limits_ns = [limit for limit in (contract.deadline_ns, contract.period_ns) if limit is not None]
    if not limits_ns:
        return estimate
    items = min(estimate.max_batch, MAX_BATCH_CLASS)
    while items > estimate.min_batch and not _ends_within(plan_of(items), min(limits_ns)):
        items = max(items // 2, estimate.min_batch)
    return replace(estimate, max_batch=min(items, estimate.max_batch))


def _ends_within(plan: Plan | None, limit_ns: int) -> bool:
    return plan is None or plan.conservative_ns <= limit_ns

"""Tells Prometheus what the nodes plan and learn: gauges in Flower's ``/metrics``, read from the registry.

One look at the registry for each scrape; where the queue does not answer
there are none. Does not cover what is planned (:mod:`worker.planning`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from worker.live_nodes import LiveNode
from worker.project_queue import ProjectQueue, QueueError

_OF_KINDS = {
    "tiepoint_margin_percent": (
        "margin_percent",
        "Margin of plans or learned factor, in percent.",
    ),
    "tiepoint_planning_observations": ("observations", "Batches that have taught, since the node's start."),
    "tiepoint_planning_overruns": ("overruns", "Of those, the ones that took longer than planned."),
    "tiepoint_planning_cells_ready": ("ready_cells", "Cells with enough durations to be believed."),
}


class PlanningCollector:
    """Reads the registry at each scrape."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url

    def describe(self) -> list[GaugeMetricFamily]:
        """Promise nothing: else Prometheus's client would scrape once to find out."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of all live nodes."""
        with closing(ProjectQueue(self._redis_url)) as queue:
            try:
                nodes = queue.nodes()
            except QueueError:
                return
        yield from gauges(nodes)


def gauges(nodes: Iterable[LiveNode]) -> Iterator[GaugeMetricFamily]:
    """Yield what the nodes that plan tell of it."""
    planning = {node.name: node.planning for node in nodes if node.planning}
    yield _learned_factor(planning.values())
    for name, (field, text) in _OF_KINDS.items():
        gauge = GaugeMetricFamily(name, text, labels=["node", "kind"])
        for node, told in planning.items():
            for kind, values in told.get("kinds", {}).items():
                gauge.add_metric([node, kind], _value(values, field))
        yield gauge
    yield from _of_nodes(planning)


def _learned_factor(planning: Iterable[Mapping[str, Any]]) -> GaugeMetricFamily:
    """Return the largest of the nodes' own factors: the slowest machine's; 0 where none learns."""
    largest = max((told.get("device_factor_percent", 0) for told in planning), default=0)
    text = "Largest learned factor of a node, in percent of the profile; 0: none learns."
    return GaugeMetricFamily("tiepoint_learned_device_factor_percent", text, value=largest)


def _of_nodes(planning: Mapping[str, Mapping[str, Any]]) -> Iterator[GaugeMetricFamily]:
    vetoes = GaugeMetricFamily("tiepoint_vetoes", "Batches put off for a stream's next job.", labels=["node"])
    drops = GaugeMetricFamily("tiepoint_drops", "Jobs dropped, by reason.", labels=["node", "reason"])
    failures = GaugeMetricFamily(
        "tiepoint_factor_persist_failures", "Attempts to write factors down that failed.", labels=["node"]
    )
    for node, told in planning.items():
        vetoes.add_metric([node], told.get("vetoes", 0))
        failures.add_metric([node], told.get("persist_failures", 0))
        for reason, count in told.get("drops", {}).items():
            drops.add_metric([node, reason], count)
    verdicts = GaugeMetricFamily(
        "tiepoint_factor_verdicts", "Live nodes by what became of their kept factors.", labels=["verdict"]
    )
    found = Counter(str(told["verdict"]) for told in planning.values() if "verdict" in told)
    for verdict, count in sorted(found.items()):
        verdicts.add_metric([verdict], count)
    yield from (vetoes, drops, failures, verdicts)


def _value(values: Mapping[str, Any], field: str) -> int:
    """Return a kind's value; its margin is the learned factor where one is learned."""
    value = values.get(field)
    if value is None and field == "margin_percent":
        value = values.get("factor_percent")
    return int(value or 0)

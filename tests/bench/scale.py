"""Measures the queue when it is large: ``python -m tests.bench.scale [--part PART ...] [--json]``.

* ``claim``: the server's own time per script at a thousand waiting messages and at a million
  (:mod:`tests.bench.scale_scripts`); wanted are at most 1.25 times as much.
* ``window``: what a project of a million pairs takes of the server (:mod:`tests.bench.scale_window`).
* ``consumers``: a full queue for 64 nodes (:mod:`tests.bench.scale_load`); wanted are 95 % of their
  time busy, and at most 1.2 claims per message.
* ``trickle``: one message at a time for 64 idle nodes; wanted are at most 4 claims per message.

Each part has a server of its own, and prints one JSON object: on one line with
``--json``, indented otherwise. Wanted figures that are missed end it with 1.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import scale_load, scale_scripts, scale_window
from tests.bench.scale_cluster import Place, ScaleError
from worker.connections import plain_client
from worker.embedded import embedded_server

MOST_CLAIM_RATIO = 1.25
LEAST_BUSY_RATIO = 0.95
MOST_CLAIMS_UNDER_LOAD = 1.2
MOST_CLAIMS_ON_A_TRICKLE = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large everything is."""

    messages: int
    pairs: int
    consumers: int
    processes: int

    @property
    def effort(self) -> scale_load.Effort:
        """Return what is simulated."""
        return scale_load.Effort(nodes=self.consumers, processes=min(self.processes, self.consumers))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The figures of one part, and which of them are not as wanted."""

    figures: dict[str, Any]
    missed: list[str]


def measure_claim(place: Place, sizes: Sizes) -> Report:
    """Measure the scripts at both depths."""
    figures = scale_scripts.measure_scripts(place.server, scale_scripts.Depths(deep=sizes.messages))
    return Report(
        figures=scale_scripts.to_dict(figures), missed=missed_by_claim(figures.scripts["claim"].ratio)
    )


def measure_window(place: Place, sizes: Sizes) -> Report:
    """Measure the windows of a large project; what they come to is for the reader to judge."""
    figures = scale_window.measure_window(place, pairs=sizes.pairs, nodes=sizes.consumers)
    return Report(figures=scale_window.to_dict(figures), missed=[])


def measure_consumers(place: Place, sizes: Sizes) -> Report:
    """Measure a cluster under load."""
    figures = scale_load.measure_load(place, sizes.effort)
    missed = missed_under_load(figures.busy_ratio, figures.claims_per_message)
    return Report(figures=scale_load.to_dict(figures), missed=missed + _left(figures.leftovers))


def measure_trickle(place: Place, sizes: Sizes) -> Report:
    """Measure a cluster that idles."""
    figures = scale_load.measure_trickle(place, sizes.effort)
    missed = missed_on_a_trickle(figures.claims_per_message)
    return Report(figures=scale_load.to_dict(figures), missed=missed + _left(figures.leftovers))


def missed_by_claim(ratio: float) -> list[str]:
    """Return what is not as wanted of the time of a claim."""
    return [f"claim: {ratio:.2f} times the time"] if ratio > MOST_CLAIM_RATIO else []


def missed_under_load(busy_ratio: float, claims_per_message: float) -> list[str]:
    """Return what is not as wanted of a cluster under load."""
    missed = []
    if busy_ratio < LEAST_BUSY_RATIO:
        missed.append(f"consumers: busy {busy_ratio:.3f} of the time")
    if claims_per_message > MOST_CLAIMS_UNDER_LOAD:
        missed.append(f"consumers: {claims_per_message:.2f} claims per message")
    return missed


def missed_on_a_trickle(claims_per_message: float) -> list[str]:
    """Return what is not as wanted of an idle cluster."""
    if claims_per_message <= MOST_CLAIMS_ON_A_TRICKLE:
        return []
    return [f"trickle: {claims_per_message:.2f} claims per message"]


def _left(leftovers: scale_load.Leftovers) -> list[str]:
    return [f"keys are left: {', '.join(leftovers.keys)}"] if leftovers.keys else []


PARTS: dict[str, Callable[[Place, Sizes], Report]] = {
    "claim": measure_claim,
    "window": measure_window,
    "consumers": measure_consumers,
    "trickle": measure_trickle,
}


@contextmanager
def fresh_place() -> Iterator[Place]:
    """Run a server that is used for one part only."""
    with (
        embedded_server() as running,
        tempfile.TemporaryDirectory(prefix="tiepoint-bench-") as folder,
        closing(plain_client(running.broker_url.replace("redis+socket://", "unix://", 1))) as server,
    ):
        yield Place(broker_url=running.broker_url, server=server, folder=Path(folder) / "store")


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--messages", type=int, default=1_000_000, help="waiting messages of the deep list")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="pairs of the large project")
    parser.add_argument("--consumers", type=int, default=64, help="simulated nodes")
    parser.add_argument("--processes", type=int, default=8, help="processes that simulate them")
    parser.add_argument("--json", action="store_true", help="print each object on one line")
    read = parser.parse_args(arguments)
    sizes = Sizes(
        messages=read.messages, pairs=read.pairs, consumers=read.consumers, processes=read.processes
    )
    missed = []
    for part in read.part:
        with fresh_place() as place:
            try:
                report = PARTS[part](place, sizes)
            except ScaleError as error:
                print(f"error: {part}: {error}", file=sys.stderr)  # noqa: T201 - the bench's output
                return 1
        line = {"part": part, **report.figures}
        print(json.dumps(line, indent=None if read.json else 2), flush=True)  # noqa: T201 - the bench's output
        missed += report.missed
    for sentence in missed:
        print(f"missed: {sentence}", file=sys.stderr)  # noqa: T201 - the bench's output
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

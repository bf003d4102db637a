"""Compares the simulation's whole tables with the specification's, cell by cell.

``python -m tests.bench.planning_tables``. Prints a line for each row, and exits
with 1 where a single figure differs. A part of it is in ``make test``.
"""

import sys
from collections.abc import Iterator

from governor.simulation import tables
from governor.simulation.tables import Pair

_FIFO: dict[int, Pair] = {
    90: (0, 4),
    95: (0, 103),
    100: (52, 333),
    105: (151, 346),
    110: (222, 522),
    125: (272, 973),
}
_EDGE: dict[tuple[str, int], tuple[Pair, Pair, Pair]] = {
    ("right", 90): ((0, 4), (0, 4), (0, 4)),
    ("right", 95): ((0, 103), (0, 103), (0, 103)),
    ("right", 100): ((61, 361), (61, 361), (61, 361)),
    ("right", 105): ((239, 332), (239, 332), (239, 332)),
    ("right", 110): ((304, 368), (308, 368), (307, 368)),
    ("right", 125): ((181, 964), (192, 938), (186, 943)),
    ("x1.1", 100): ((61, 361), (61, 361), (61, 361)),
    ("x1.1", 105): ((169, 370), (239, 332), (234, 339)),
    ("x1.1", 110): ((82, 567), (304, 368), (301, 375)),
    ("x1.1", 125): ((151, 1000), (181, 964), (182, 949)),
    ("x2", 95): ((0, 1000), (0, 1000), (0, 441)),
    ("x2", 100): ((0, 1000), (0, 1000), (26, 549)),
    ("x2", 110): ((0, 1000), (0, 1000), (77, 770)),
    ("x2", 125): ((14, 1000), (14, 1000), (75, 999)),
    ("x0.7", 100): ((61, 361), (61, 360), (61, 361)),
    ("x0.7", 105): ((210, 337), (210, 337), (239, 332)),
    ("x0.7", 110): ((245, 362), (246, 362), (308, 368)),
    ("x0.7", 125): ((178, 954), (178, 953), (195, 918)),
}
"""Uncovered permille: margin fixed at 110 %, at 100 %, learned."""
_PLAN_SIZES: dict[tuple[str, int | None], tuple[int, ...]] = {
    ("x2", None): (13_570, 957, 0, 1000, 0),
    ("x2", 100): (13_570, 957, 0, 1000, 0),
    ("x2", 75): (8_222, 1_426, 0, 1000, 0),
    ("x2", 60): (7_279, 1_501, 3, 913, 0),
    ("x2", 55): (6_846, 1_538, 39, 825, 0),
    ("x2", 50): (6_691, 1_537, 77, 772, 0),
    ("right", None): (10, 2_046, 303, 357, 0),
}
"""Vetoes, dispatched, detector, worse of the others, deadline misses of the detector."""
_CARRIED: dict[tuple[int, int], Pair] = {(1, 11): (310, 386), (2, 12): (307, 356), (3, 13): (304, 352)}

Comparison = tuple[str, object, object]
"""What is compared, what the specification says, what came out."""


def compare() -> Iterator[Comparison]:
    """Yield each row of each table."""
    for (profile, load), wanted in _EDGE.items():
        row = tables.edge_row(profile, load)
        found = (row.fifo, row.fixed_110, row.fixed_100, row.learned)
        yield f"edge {profile} {load} %", (_FIFO[load], *wanted), found
    for (profile, minimum), figures in _PLAN_SIZES.items():
        made = tables.plan_size_row(profile, minimum).figures
        told = (made.vetoes, made.dispatched, made.detector_permille, made.worst_high_permille)
        yield f"plan size {profile} {minimum}", figures, (*told, made.detector_deadline_misses)
    for seeds, pair in _CARRIED.items():
        yield f"carry-over {seeds}", pair, tables.carry_over_row(*seeds).carried


def main() -> None:
    """Print the comparison; exit with 1 where anything differs."""
    if set(_EDGE) != set(tables.EDGE_CELLS) or set(_PLAN_SIZES) != set(tables.PLAN_SIZE_CELLS):
        sys.exit("the tables have other rows than the specification")
    differs = 0
    for name, wanted, found in compare():
        differs += wanted != found
        remark = "" if wanted == found else f", but the specification says {wanted}"
        sys.stdout.write(f"{name}: {found}{remark}\n")
    sys.stdout.write(f"{differs} of {len(_EDGE) + len(_PLAN_SIZES) + len(_CARRIED)} rows differ\n")
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()

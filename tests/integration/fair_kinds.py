"""Holds two kinds without work, in the first and in a late stage of the pipeline."""

from dataclasses import replace

from tests.integration import noop_kinds

EARLY, LATE = "fair.early", "fair.late"

KINDS = tuple(
    replace(noop_kinds.KINDS[0], name=name, stage=stage)
    for name, stage in ((EARLY, "import"), (LATE, "verify"))
)

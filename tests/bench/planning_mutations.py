"""Spoils planning in one place at a time, and shows that a test turns red.

``python -m tests.bench.planning_mutations [NAME ...]``. Works on a copy. A row
says the mutation, the tests that must find it, and whether they do; exits with
1 where one stays green, or where a text to be replaced is not there any more.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_COPIED = ("governor", "tasks", "worker", "tests/__init__.py", "tests/unit", "pyproject.toml")
_PLANNING = "tests/unit/governor/planning"
_SIMULATION = "tests/unit/governor/simulation/test_tables.py"


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault."""

    name: str
    file: str
    old: str
    new: str
    tests: str


MUTATIONS = (
    Mutation(
        "cell ready with 15",
        "governor/planning/cell.py",
        "READY_AT = 16",
        "READY_AT = 15",
        f"{_PLANNING}/test_cell.py",
    ),
    Mutation(
        "cell of 63",
        "governor/planning/cell.py",
        "_ENTRIES = 64",
        "_ENTRIES = 63",
        f"{_PLANNING}/test_cell.py",
    ),
    Mutation(
        "quantile one before",
        "governor/planning/cell.py",
        "count * percent // 100, count - 1",
        "max(count * percent // 100 - 1, 0), count - 1",
        f"{_PLANNING}/test_cell.py",
    ),
    Mutation(
        "durations of the batch, not per item",
        "governor/planning/cell.py",
        "duration_ns // items //",
        "duration_ns //",
        f"{_PLANNING}/test_cell.py",
    ),
    Mutation(
        "step up without rounding up",
        "governor/planning/learner.py",
        "return -(-factor * (2 * ONE + x) // (2 * ONE - x))",
        "return factor * (2 * ONE + x) // (2 * ONE - x)",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "whole gain per level",
        "governor/planning/learner.py",
        "x = GAIN // 2 * (1000 - target_permille)",
        "x = GAIN * (1000 - target_permille)",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "debt beyond the limit",
        "governor/planning/learner.py",
        "if self.factor(kind) == limit:",
        "if limit == 0:",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "down from the 49th on",
        "governor/planning/learner.py",
        "self.device.count >= self.settings.min_observations",
        "self.device.count > self.settings.min_observations",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "kinds step down by the device's count",
        "governor/planning/learner.py",
        "residual.count >= self.settings.min_observations",
        "self.device.count >= self.settings.min_observations",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "unverified with 30 points",
        "governor/planning/learner.py",
        "UNVERIFIED_POINTS = 40",
        "UNVERIFIED_POINTS = 30",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "residual up to 5",
        "governor/planning/learner.py",
        "MAX_RESIDUAL = 4 * ONE",
        "MAX_RESIDUAL = 5 * ONE",
        f"{_PLANNING}/test_learner.py",
    ),
    Mutation(
        "factor rounded down to percent",
        "governor/planning/learner.py",
        "return -(-factor // (ONE // 100))",
        "return factor // (ONE // 100)",
        f"{_SIMULATION} tests/unit/worker/test_planning.py",
    ),
    Mutation(
        "margin falls at once",
        "governor/planning/margin.py",
        "_DOWN_TENTHS = 1",
        "_DOWN_TENTHS = 10",
        f"{_PLANNING}/test_planner.py",
    ),
    Mutation(
        "observed p95 with a learned factor",
        "governor/planning/planner.py",
        "per_item_ns = max(learned_ns, median_ns or 0)",
        "per_item_ns = max(learned_ns, cell.quantile_ns(95) or 0)",
        f"{_PLANNING}/test_planner.py {_SIMULATION}",
    ),
    Mutation(
        "a plan that is met is overrun",
        "governor/planning/planner.py",
        "return duration_ns > self.conservative_ns",
        "return duration_ns >= self.conservative_ns",
        f"{_PLANNING}/test_planner.py",
    ),
    Mutation(
        "the batch class after the next",
        "governor/planning/profile.py",
        "size *= 2",
        "size *= 4",
        f"{_PLANNING}/test_profile.py",
    ),
    Mutation(
        "an identity without conditions",
        "governor/planning/profile.py",
        '"conditions": dict(self.conditions),',
        '"conditions": {},',
        f"{_PLANNING}/test_profile.py",
    ),
    Mutation(
        "veto by the same class",
        "governor/planning/look_ahead.py",
        "arrival.service_class < candidate.service_class",
        "arrival.service_class <= candidate.service_class",
        f"{_PLANNING}/test_look_ahead.py",
    ),
    Mutation(
        "veto for what is late anyway",
        "governor/planning/look_ahead.py",
        "is_feasible_alone and not",
        "not",
        f"{_PLANNING}/test_look_ahead.py",
    ),
    Mutation(
        "window without the jitter",
        "governor/planning/look_ahead.py",
        "2 * stream.jitter_ns",
        "stream.jitter_ns",
        f"{_PLANNING}/test_look_ahead.py {_SIMULATION}",
    ),
    Mutation(
        "deadline before the plan",
        "governor/planning/look_ahead.py",
        "max(deadline_ns - delay_ns, plan_ns)",
        "deadline_ns - delay_ns",
        f"{_PLANNING}/test_look_ahead.py",
    ),
    Mutation(
        "age before deadline",
        "governor/planning/contract.py",
        "(self.service_class, self.absolute_deadline_ns(captured_ns), arrived_ns)",
        "(self.service_class, arrived_ns, self.absolute_deadline_ns(captured_ns))",
        f"{_PLANNING}/test_look_ahead.py",
    ),
    Mutation(
        "dropped at its age, not after",
        "governor/planning/contract.py",
        "> self.max_age_ns",
        ">= self.max_age_ns",
        f"{_PLANNING}/test_look_ahead.py",
    ),
    Mutation(
        "jitter adds up",
        "governor/simulation/scenario.py",
        "max(0, nominal_ns + jitter_ns)",
        "max(0, nominal_ns + jitter_ns * len(made))",
        _SIMULATION,
    ),
    Mutation(
        "the oldest frame waits",
        "governor/simulation/simulator.py",
        "lane.waiting = [frame]",
        "lane.waiting = lane.waiting or [frame]",
        _SIMULATION,
    ),
    Mutation(
        "no-ops teach",
        "worker/running_batch.py",
        "report.worked_items < items",
        "report.worked_items > items",
        "tests/unit/worker/test_running_batch.py",
    ),
    Mutation(
        "no-ops count as work",
        "worker/batch.py",
        "sum(units > 0 for units in recorded)",
        "len(recorded)",
        "tests/unit/worker/test_batch.py",
    ),
    Mutation(
        "further attempts teach",
        "worker/running_batch.py",
        " or not self._is_first_attempt",
        "",
        "tests/unit/worker/test_running_batch.py",
    ),
    Mutation(
        "a contradiction is believed",
        "worker/factor_verdicts.py",
        "verdict=Verdict.CONTRADICTED",
        "verdict=Verdict.RESTORED",
        "tests/unit/worker/test_factor_verdicts.py",
    ),
    Mutation(
        "both empty is equal",
        "worker/factor_verdicts.py",
        "if missing or not fields:",
        "if missing:",
        "tests/unit/worker/test_factor_verdicts.py",
    ),
    Mutation(
        "restored beyond today's limits",
        "governor/planning/learner.py",
        "Level(value=self._clamped_factor(value), count=count)",
        "Level(value=value, count=count)",
        "tests/unit/worker/test_factor_verdicts.py",
    ),
    Mutation(
        "two controllers of one plan",
        "worker/planning_settings.py",
        'self.prediction == "active"',
        'self.prediction == "never"',
        "tests/unit/worker/test_planning_settings.py",
    ),
)


def is_found(mutation: Mutation, copy: Path) -> bool:
    """Tell whether its tests turn red; the copy is as before then.

    Raises:
        ValueError: the text to be replaced is not there, or more than once.
    """
    file = copy / mutation.file
    text = file.read_text("utf-8")
    if text.count(mutation.old) != 1:
        raise ValueError(
            f"{mutation.name}: {mutation.file} holds {text.count(mutation.old)} times {mutation.old!r}"
        )
    file.write_text(text.replace(mutation.old, mutation.new), "utf-8")
    try:
        return _run(mutation.tests.split(), copy) == 1
    finally:
        file.write_text(text, "utf-8")


def _run(tests: list[str], copy: Path) -> int:
    """Return pytest's exit code: 1 = a test has failed, others are no answer."""
    command = [sys.executable, "-P", "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
    return done.returncode


def _copy(folder: Path) -> None:
    for name in _COPIED:
        source, target = _ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)


def main() -> None:
    """Apply all, or those that are named; print a row for each."""
    chosen = [one for one in MUTATIONS if not sys.argv[1:] or one.name in sys.argv[1:]]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        _copy(copy)
        before = _run(sorted({test for one in chosen for test in one.tests.split()}), copy)
        if before != 0:
            sys.exit(f"the tests are not green before anything is spoilt (pytest: {before})")
        for mutation in chosen:
            found = is_found(mutation, copy)
            survivors += not found
            sys.stdout.write(f"{'red' if found else 'GREEN':5}  {mutation.name}  ({mutation.tests})\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} mutations turn a test red\n")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()

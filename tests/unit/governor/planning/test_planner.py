"""Plans: what they are made of with and without learning, and what a completion teaches."""

import ast
from pathlib import Path

import governor.planning
from governor.planning.learner import Learner
from governor.planning.margin import Margins
from governor.planning.planner import Plan, Planner
from governor.planning.profile import CellKey, Durations, LinearCost, ProfileSet

KEY = CellKey(kind="a")
PROFILES = ProfileSet(
    cells={KEY: Durations(p50_ns=1_000_000, p95_ns=1_500_000, p99_ns=2_000_000)},
    linear={"b": LinearCost(setup_ns=0, per_item_ns=1_000)},
)


def planned(planner: Planner, key: CellKey = KEY) -> Plan:
    """Return a plan that must be there."""
    plan = planner.plan(key)
    assert plan is not None
    return plan


def fill(planner: Planner, duration_ns: int, count: int = 16) -> None:
    """Let so many batches end after the same time."""
    for _ in range(count):
        planner.complete(planned(planner), duration_ns)


def test_without_learning_a_plan_is_the_p99_and_a_margin() -> None:
    """Or the observed p95 where that is more."""
    planner = Planner(PROFILES, margin_percent=110)
    before = planned(planner)
    planner.cell(KEY)
    for _ in range(16):
        planner.cell(KEY).add(3_000_000)

    assert (before.conservative_ns, before.optimistic_ns) == (2_200_000, 1_000_000)
    assert planned(planner).conservative_ns == 3_300_000
    assert planned(planner).optimistic_ns == 3_000_000


def test_with_learning_a_plan_is_the_p99_and_the_factor() -> None:
    """At least the observed median; never its p95."""
    planner = Planner(PROFILES, margin_percent=110, learner=Learner())
    for duration_ns in [100_000] * 9 + [9_000_000] * 7:
        planner.cell(KEY).add(duration_ns)

    assert planned(planner).conservative_ns == 2_200_000
    assert planned(planner).optimistic_ns == 100_000


def test_a_plan_is_at_least_the_observed_median() -> None:
    """A factor at its upper limit would otherwise hide what everybody sees."""
    planner = Planner(PROFILES, margin_percent=110, learner=Learner())
    for _ in range(16):
        planner.cell(KEY).add(90_000_000)

    assert planned(planner).conservative_ns == 90_000_000


def test_an_unmeasured_profile_costs_forty_points_more() -> None:
    """Without learning; with it, its residual starts higher."""
    planner = Planner(PROFILES, margin_percent=110)

    assert planned(planner, CellKey(kind="b")).conservative_ns == 1_500


def test_only_longer_than_the_plan_is_an_overrun() -> None:
    """To the nanosecond, against the plan of the dispatch."""
    planner = Planner(PROFILES, margin_percent=110)
    plan = planned(planner)

    assert not plan.is_overrun_by(2_200_000)
    assert plan.is_overrun_by(2_200_001)


def test_a_completion_teaches_cell_and_learner() -> None:
    """Sixteen fill the cell; an overrun lifts the factor at once."""
    planner = Planner(PROFILES, margin_percent=110, learner=Learner())
    fill(planner, 500_000)
    overran = planner.complete(planned(planner), 5_000_000)

    assert overran
    assert planned(planner).optimistic_ns == 500_000
    assert planner.learner is not None
    assert planner.learner.device.value == 1_155_832
    assert planned(planner).conservative_ns == 2_000_000 * 122 // 100


def test_a_distrusted_kind_forgets_its_durations() -> None:
    """And starts with the surcharge."""
    planner = Planner(PROFILES, margin_percent=110, learner=Learner())
    fill(planner, 500_000)
    planner.distrust("a")

    assert planned(planner).optimistic_ns == 1_000_000
    assert planned(planner).conservative_ns == 3_000_000


def test_a_margin_rises_at_once_and_falls_slowly() -> None:
    """By 9.9 points and by 0.1; between its start and 300 %."""
    margins = Margins(110)
    seen = []
    for overran in (True, False, False):
        margins.observe("a", overran=overran)
        seen.append(margins.percent("a"))
    for _ in range(30):
        margins.observe("a", overran=True)

    assert seen == [120, 120, 120]
    assert margins.percent("a") == 300
    assert margins.percent("other") == 110
    margins.observe("other", overran=False)
    assert margins.percent("other") == 110


def test_planning_computes_with_integers_only() -> None:
    """No float constant, no true division, no rounding, nothing of `math`: the same bits everywhere."""
    folder = Path(str(governor.planning.__file__)).parent
    found = [
        f"{path.name}: {ast.unparse(node)}"
        for path in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if _is_inexact(node)
    ]

    assert len(list(folder.glob("*.py"))) > 5
    assert found == []


def _is_inexact(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=float()) | ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
            return True
        case ast.Name(id="float" | "round" | "math"):
            return True
    return False

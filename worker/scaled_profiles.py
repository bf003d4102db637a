"""Makes profiles wrong on purpose, by one factor; reads how a user calls that: `right`, `x2`, `x0.7`."""

import re
from dataclasses import replace

from governor.planning.profile import Durations, LinearCost, ProfileSet
from worker.settings import WrongSettingError

_RIGHT = 1000
_SMALLEST_PERMILLE, _LARGEST_PERMILLE = 50, 10_000


def permille_of(profile: str, option: str) -> int:
    """Read how a profile stands to the truth; ``option`` is where the user has said so.

    Raises:
        WrongSettingError: it is not said so that it can be read.
    """
    if profile == "right":
        return _RIGHT
    found = re.fullmatch(r"x(\d{1,2})(?:\.(\d{1,3}))?", profile)
    permille = int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")) if found else 0
    if not _SMALLEST_PERMILLE <= permille <= _LARGEST_PERMILLE:
        raise WrongSettingError(
            f"{option}: {profile!r} is no profile; say `right`, or a factor of x0.05 to x10, e.g. x2 or x0.7"
        )
    return permille


def scaled(profiles: ProfileSet, permille: int) -> ProfileSet:
    """Return profiles with every duration times ``permille`` // 1000, 1 ns at least."""
    cells = {
        key: Durations(
            p50_ns=_scaled(durations.p50_ns, permille),
            p95_ns=_scaled(durations.p95_ns, permille),
            p99_ns=_scaled(durations.p99_ns, permille),
        )
        for key, durations in profiles.cells.items()
    }
    linear = {
        kind: LinearCost(
            setup_ns=cost.setup_ns * permille // _RIGHT, per_item_ns=_scaled(cost.per_item_ns, permille)
        )
        for kind, cost in profiles.linear.items()
    }
    return replace(profiles, cells=cells, linear=linear)


def _scaled(duration_ns: int, permille: int) -> int:
    return max(duration_ns * permille // _RIGHT, 1)

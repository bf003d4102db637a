"""Decides whether another node of our name is alive, from how it renews its lease. Pure.

Two nodes of one name would be one to whoever watches, and share one entry in
the registry. A node that was killed leaves a lease behind that nobody renews:
whoever starts in its place under its name must not be refused. Does not cover
workers of one machine, which know each other better (:mod:`worker.machine`).
"""

from collections import Counter
from collections.abc import Mapping

_RENEWALS_OF_THE_LIVING = 2
"""After an outage of the server everybody gets one lease more, the dead as well; not two."""


class NameTakenError(Exception):
    """Another node of our name serves the queue; the text says what to do."""


class Namesakes:
    """What is known of the other leases of one name; each call of ``look`` sees them once."""

    def __init__(self, name: str, lease_ms: int) -> None:
        self._name = name
        self._lease_ms = lease_ms
        self._ends_ms: Mapping[str, int] = {}
        self._renewals: Counter[str] = Counter()

    def look(self, ends_ms: Mapping[str, int], now_ms: int) -> bool:
        """Note when their leases end; True once none of them can be alive.

        A living node renews when a third of its lease is over, so less than
        half of a lease is left to the dead alone.

        Raises:
            NameTakenError: one was seen to renew.
        """
        for lease, end_ms in ends_ms.items():
            self._renewals[lease] += end_ms > self._ends_ms.get(lease, end_ms)
            if self._renewals[lease] >= _RENEWALS_OF_THE_LIVING:
                raise NameTakenError(
                    f"a worker called `{self._name}` already serves this queue from another machine; "
                    "give this one another --name"
                )
        self._ends_ms = dict(ends_ms)
        return all(end_ms - now_ms < self._lease_ms / 2 for end_ms in ends_ms.values())

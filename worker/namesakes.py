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
SILENCE_OF_THE_DEAD_MS = 6000
"""A living node renews every 4 s, however long its lease is, and that may be another than ours."""


class NameTakenError(Exception):
    """Another node of our name serves the queue; the text says what to do."""


class Namesakes:
    """What is known of the other leases of one name; each call of ``look`` sees them once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ends_ms: Mapping[str, int] = {}
        self._heard_ms: dict[str, int] = {}
        self._renewals: Counter[str] = Counter()

    def look(self, ends_ms: Mapping[str, int], now_ms: int) -> bool:
        """Note when their leases end, those that have not; True once none of them can be alive.

        Raises:
            NameTakenError: one was seen to renew.
        """
        for lease, end_ms in ends_ms.items():
            is_renewed = end_ms > self._ends_ms.get(lease, end_ms)
            self._renewals[lease] += is_renewed
            if is_renewed or lease not in self._heard_ms:
                self._heard_ms[lease] = now_ms
            if self._renewals[lease] >= _RENEWALS_OF_THE_LIVING:
                raise NameTakenError(
                    f"a worker called `{self._name}` already serves this queue from another machine; "
                    "give this one another --name"
                )
        self._ends_ms = dict(ends_ms)
        return all(now_ms - self._heard_ms[lease] >= SILENCE_OF_THE_DEAD_MS for lease in ends_ms)

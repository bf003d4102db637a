"""Decides whether looking at a phase again can still lead anywhere.

A look goes over a whole phase, in however many windows. A healthy project
looks at each phase once; damage makes it look again. It gets further when a
phase lacks fewer jobs than ever, or others than ever: so whoever repairs one
thing after the other is never given up. The number of other looks is bounded,
so every project ends. Knows no store and no job kind.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from tasks.kind import Job, Payload

MAX_STALLS = 3
"""How often the same look may be repeated while nothing gets further."""
MAX_LOOKS = 256
"""How many different looks may follow each other without any phase lacking fewer jobs than ever."""
_DIGEST_HEX_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Which jobs a phase lacks: their number and a digest of their set."""

    phase: str
    jobs: int = 0
    digest: str = ""
    """Sum of the jobs' hashes, so that neither their order nor how they are cut into windows matters."""

    def with_jobs(self, jobs: Iterable[Job]) -> Self:
        """Return the look that has seen more jobs."""
        count, total = self.jobs, int(self.digest or "0", 16)
        for job in jobs:
            count += 1
            total += _hash(job)
        return type(self)(phase=self.phase, jobs=count, digest=_hex(total))

    @property
    def name(self) -> str:
        """The text that equal looks share."""
        return f"{self.phase}:{self.jobs}:{self.digest}"


class History(Payload):
    """What a project's looks have come to since it was started."""

    fewest: Mapping[str, int] = Field(default_factory=dict)
    """By phase: the fewest jobs that a look has found lacking."""
    seen: Mapping[str, int] = Field(default_factory=dict)
    """The looks since a phase last lacked fewer jobs than ever: how often each was met since
    one of them was new."""

    def after(self, look: Look) -> "History":
        """Return the history with one more finished look."""
        if self._is_better(look):
            return History(fewest={**self.fewest, look.phase: look.jobs}, seen={look.name: 1})
        if self._is_new(look):
            return History(fewest=self.fewest, seen={**dict.fromkeys(self.seen, 0), look.name: 1})
        name = self._name(look)
        return History(fewest=self.fewest, seen={**self.seen, name: self.seen.get(name, 0) + 1})

    @property
    def is_suspicious(self) -> bool:
        """Tell whether some look has been repeated so often that the next must be compared with it."""
        return max(self.seen.values(), default=0) >= MAX_STALLS

    def is_hopeless(self, look: Look) -> bool:
        """Tell whether a look has been repeated too often to be tried again."""
        return not self._is_better(look) and self.seen.get(self._name(look), 0) >= MAX_STALLS

    def _is_better(self, look: Look) -> bool:
        return look.phase not in self.fewest or look.jobs < self.fewest[look.phase]

    def _is_new(self, look: Look) -> bool:
        return look.name not in self.seen and len(self.seen) < MAX_LOOKS

    def _name(self, look: Look) -> str:
        """Return the name a look is counted under: beyond the bound all unknown ones of a phase share it."""
        return look.name if look.name in self.seen or len(self.seen) < MAX_LOOKS else look.phase


def _hash(job: Job) -> int:
    name = f"{job.kind}\n{job.item}".encode()
    return int.from_bytes(hashlib.sha256(name).digest()[: _DIGEST_HEX_DIGITS // 2], "big")


def _hex(total: int) -> str:
    return f"{total % 16**_DIGEST_HEX_DIGITS:0{_DIGEST_HEX_DIGITS}x}"

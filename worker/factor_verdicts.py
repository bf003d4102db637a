"""Decides what of the factors that a node has learned before is still believed. Pure.

The weakest of all fields wins. Does not cover where they are kept
(:mod:`worker.factor_store`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from governor.planning.learner import Learner

SCHEMA = 1
_MOST_PPM = 1_000_000_000
_MOST_COUNT = 2**63 - 1


class Verdict(StrEnum):
    """What becomes of kept factors."""

    NOTHING_KEPT = "nothing_kept"
    RESTORED = "restored"
    """Same hardware: all of it, but for kinds whose profile is another."""
    UNVERIFIED = "unverified"
    """Some field is missing on either side: the node's factor stays, each kind starts over."""
    CONTRADICTED = "contradicted"
    """Other hardware: nothing of it."""
    UNREADABLE = "unreadable"
    """Corrupt, or of a later version: nothing of it."""


class UnreadableFactorsError(ValueError):
    """Kept factors are corrupt or of a later version; the text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFactors:
    """What a node had learned when it was last written down; factors in millionths."""

    sequence: int
    device: tuple[int, int]
    """Factor and count."""
    residuals: Mapping[str, tuple[int, int]]
    targets_permille: Mapping[str, int]
    fingerprint: Mapping[str, str]
    identities: Mapping[str, str]
    """Of each kind's profile."""

    def to_fields(self) -> dict[str, str]:
        """Return the fields of the hash that they are kept in."""
        kinds = {
            kind: [ppm, count, self.targets_permille[kind]] for kind, (ppm, count) in self.residuals.items()
        }
        return {
            "schema": str(SCHEMA),
            "sequence": str(self.sequence),
            "device_ppm": str(self.device[0]),
            "device_count": str(self.device[1]),
            "kinds": json.dumps(kinds, sort_keys=True),
            "fingerprint": json.dumps(dict(self.fingerprint), sort_keys=True),
            "identities": json.dumps(dict(self.identities), sort_keys=True),
        }


def read_kept(fields: Mapping[str, str]) -> KeptFactors:
    """Return what a hash holds.

    Raises:
        UnreadableFactorsError: it is corrupt, or of a later version.
    """
    try:
        schema, kept = int(fields["schema"]), _read(fields)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableFactorsError(f"they are corrupt: {type(error).__name__}: {error}") from error
    if schema != SCHEMA:
        raise UnreadableFactorsError(f"they are of schema {schema}, this version knows {SCHEMA}")
    return kept


def _read(fields: Mapping[str, str]) -> KeptFactors:
    kinds = json.loads(fields["kinds"])
    return KeptFactors(
        sequence=_count(fields["sequence"]),
        device=(_ppm(fields["device_ppm"]), _count(fields["device_count"])),
        residuals={kind: (_ppm(ppm), _count(count)) for kind, (ppm, count, _) in kinds.items()},
        targets_permille={kind: _count(target) for kind, (_, _, target) in kinds.items()},
        fingerprint=_texts(fields["fingerprint"]),
        identities=_texts(fields["identities"]),
    )


def _whole(value: object, least: int, most: int) -> int:
    if not isinstance(value, int | str) or isinstance(value, bool) or not least <= int(value) <= most:
        raise ValueError(f"{value!r} is no whole number of {least} to {most}")
    return int(value)


def _ppm(value: object) -> int:
    return _whole(value, 1, _MOST_PPM)


def _count(value: object) -> int:
    return _whole(value, 0, _MOST_COUNT)


def _texts(text: str) -> dict[str, str]:
    read = json.loads(text)
    if not isinstance(read, dict) or not all(isinstance(value, str) for value in read.values()):
        raise TypeError("not a mapping of texts")
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict, why, and which kinds start over."""

    verdict: Verdict
    reason: str = ""
    distrusted: frozenset[str] = frozenset()


def judge(kept: KeptFactors, fingerprint: Mapping[str, str], identities: Mapping[str, str]) -> Judgement:
    """Compare what was kept with what the node is now; ``identities`` of all kinds with a profile."""
    fields = sorted(kept.fingerprint.keys() | fingerprint.keys())
    both = [name for name in fields if name in kept.fingerprint and name in fingerprint]
    others = [name for name in both if kept.fingerprint[name] != fingerprint[name]]
    everybody = frozenset(identities)
    if others:
        name = others[0]
        reason = f"{name} was {kept.fingerprint[name]} and is {fingerprint[name]}"
        return Judgement(verdict=Verdict.CONTRADICTED, reason=reason, distrusted=everybody)
    missing = [name for name in fields if name not in both]
    if missing or not fields:
        reason = f"{', '.join(missing) or 'everything'} is not known of then or of now"
        return Judgement(verdict=Verdict.UNVERIFIED, reason=reason, distrusted=everybody)
    changed = frozenset(
        kind
        for kind in everybody & (kept.identities.keys() | kept.residuals.keys())
        if kept.identities.get(kind) != identities[kind]
    )
    reason = f"another profile: {', '.join(sorted(changed))}" if changed else ""
    return Judgement(verdict=Verdict.RESTORED, reason=reason, distrusted=changed)


def restore(learner: Learner, kept: KeptFactors, judgement: Judgement) -> None:
    """Give a new learner what is believed, within today's limits; distrust is not its business."""
    if judgement.verdict not in {Verdict.RESTORED, Verdict.UNVERIFIED}:
        return
    learner.restore_device(*kept.device)
    if judgement.verdict is Verdict.RESTORED:
        learner.restore_residuals(
            {kind: level for kind, level in kept.residuals.items() if kind in kept.identities}
        )

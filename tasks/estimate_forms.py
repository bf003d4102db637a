"""Decides which explicit estimates a kind's jobs may carry, and which estimate each stands for. Pure.

Does not hold the forms of former times (:mod:`tasks.old_estimates`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from governor.model import Estimate

_FIELDS = tuple(field.name for field in fields(Estimate))
_MEMORY_FIELDS = frozenset({"memory_fixed_bytes", "memory_per_item_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateForms:
    """What is accepted besides the kind's current estimate."""

    old: tuple[Estimate, ...] = ()
    """Forms of former times, byte for byte; each stands for the current estimate."""
    floors: tuple[Estimate, ...] = ()
    """What a job may name more RAM than, where its need depends on its input; all else is as here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    estimate: Estimate
    is_floor: bool = False

    def differing(self, sent: Estimate) -> tuple[str, ...]:
        return tuple(name for name in _FIELDS if not self._holds(name, sent))

    def _holds(self, name: str, sent: Estimate) -> bool:
        value, wanted = getattr(sent, name), getattr(self.estimate, name)
        return bool(value == wanted or (value > wanted and self._may_be_more(name)))

    def _may_be_more(self, name: str) -> bool:
        return self.is_floor and name in _MEMORY_FIELDS

    def wanted(self, name: str) -> str:
        """Return what this form has in a field, in words."""
        return f"{'at least ' if self._may_be_more(name) else ''}{getattr(self.estimate, name)}"


def normalised(
    sent: Estimate, current: Estimate, forms: EstimateForms, *, is_moved: bool = False
) -> Estimate | None:
    """Return the estimate that an explicit one stands for; None where it is none of the forms.

    ``is_moved``: a node wrote it, to give an item more memory. Then every form
    is a floor, so that even a forged one can do no more than ask for more RAM.
    """
    if sent in forms.old and not is_moved:
        return current
    accepted = _forms(current, forms)
    if is_moved:
        accepted = (replace(form, is_floor=True) for form in accepted)
    return sent if any(not form.differing(sent) for form in accepted) else None


def difference(sent: Estimate, current: Estimate, forms: EstimateForms) -> str:
    """Return in which fields a refused estimate differs from the forms that are nearest to it.

    Nearest are those with the fewest fields that differ; forms that differ in
    the same fields are named together.
    """
    differing = {form: form.differing(sent) for form in _forms(current, forms)}
    fewest = min(len(names) for names in differing.values())
    nearest = dict.fromkeys(names for names in differing.values() if len(names) == fewest)
    return "; or ".join(
        _in_words(sent, names, [form for form in differing if differing[form] == names]) for names in nearest
    )


def _in_words(sent: Estimate, names: tuple[str, ...], forms: list[_Form]) -> str:
    wanted = {name: dict.fromkeys(form.wanted(name) for form in forms) for name in names}
    return ", and ".join(
        f"{name} is {getattr(sent, name)}, not {' or '.join(wanted[name])}" for name in names
    )


def _forms(current: Estimate, forms: EstimateForms) -> Iterator[_Form]:
    """Yield all forms, those of today first."""
    yield from (_Form(estimate=floor, is_floor=True) for floor in forms.floors)
    if current not in forms.floors:
        yield _Form(estimate=current)
    yield from (_Form(estimate=old) for old in forms.old)

"""Holds the job kinds in pipeline order; reads the extra ones a user registers.

A module named in ``TIEPOINT_KIND_MODULES`` joins its ``KINDS`` to ours: the
public hook for own kinds.
"""

from collections.abc import Sequence
from importlib import import_module

from tasks.kind import Kind

_MODULES = (
    "tasks.import_images",
    "tasks.features",
    "tasks.visual_index",
    "tasks.pairs",
    "tasks.matching",
    "tasks.gpu_matching",
    "tasks.verification",
    "tasks.tracks",
    "tasks.reconstruction",
    "tasks.expand",
)
STAGES = ("import", "features", "index", "pairs", "match", "verify", "tracks", "model")


def load_kinds(extra_modules: Sequence[str] = ()) -> dict[str, Kind]:
    """Return all kinds by name, in pipeline order, the user's last.

    Raises:
        ValueError: two kinds have one name.
    """
    kinds: dict[str, Kind] = {}
    for module in (*_MODULES, *extra_modules):
        for kind in import_module(module).KINDS:
            if kind.name in kinds:
                raise ValueError(f"two kinds are called {kind.name}")
            kinds[kind.name] = kind
    return kinds

"""The governed Celery worker: claims, runs and settles jobs; the command line.

Checks first that ``governor`` and ``tasks`` are Tiepoint's own: ``celery -A
worker.app`` puts the current folder first on ``sys.path``, so a user's
``tasks.py`` there would otherwise be run instead of ours.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).resolve().parent.parent


def _hidden_package() -> str | None:
    """Return what hides one of our packages, as one sentence, or None."""
    for name in ("governor", "tasks"):
        spec = find_spec(name)
        origin = spec.origin if spec else None
        if origin is None or Path(origin).resolve().parent != _HOME / name:
            return (
                f"`{name}` resolves to {origin or 'nothing'}, which hides Tiepoint's; "
                "start elsewhere or use `tiepoint worker`"
            )
    return None


if _hidden := _hidden_package():
    sys.exit(_hidden)

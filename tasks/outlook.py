"""Estimates how many jobs a project has still to plan, for the time that it is said to need.

Rough on purpose: it reads nothing but the list of sources, and looks at no
artefact. Does not cover how long a job takes (that is measured by the workers).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from tasks.kind import Job
from tasks.lacking import PHASES, Phase
from tasks.pairing import Pairing
from tasks.proposals import PAIRS_STAGE
from tasks.store import Project, ProjectImage

AHEAD = "ahead"
"""Field of a project's live state: JSON, how many jobs of each stage are not planned yet, about..."""
PARTNERS = "partners"
"""...how many pairs come of one job of the stage `pairs`..."""
IMAGES = "images"
"""...and how many photos there are, about."""

_ONCE: Mapping[Phase, str] = {"tracks": "tracks", "model": "model"}
_EACH_IMAGE: Mapping[Phase, str] = {"features": "features", "matching": PAIRS_STAGE}


def jobs_ahead(
    project: Project, phase: Phase, until: Phase, *, window: Sequence[Job], looked_at: int, rest: int
) -> dict[str, int]:
    """Return how many jobs of each stage are to be planned yet, and the pairs of an image.

    ``window`` was found by looking at ``looked_at`` sources of the phase;
    the ``rest`` of them is taken to be alike.
    """
    images = len(project.sources)
    found = Counter(job.stage for job in window)
    ahead = {stage: -(-count * rest // looked_at) for stage, count in found.items() if looked_at}
    for later in PHASES[PHASES.index(phase) + 1 : PHASES.index(until) + 1]:
        if later in _EACH_IMAGE:
            ahead[_EACH_IMAGE[later]] = images
        if later in _ONCE:
            ahead[_ONCE[later]] = 1
    return {**ahead, PARTNERS: _partners(project), IMAGES: images}


def _partners(project: Project) -> int:
    # As if each source were a photo of its own: before the import nobody knows better.
    images = tuple(ProjectImage(name=source.name, content=source.name) for source in project.sources)
    parameters = project.parameters
    return Pairing(images=images, parameters=parameters.pairs, features=parameters.features).usual_partners

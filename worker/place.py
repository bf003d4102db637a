"""Takes a worker's place on its machine before it does anything else, whichever command starts it.

Does not cover what a place is (:mod:`worker.machine`).
"""

import sys
from typing import Any

from celery import bootsteps

from worker.machine import take_place
from worker.settings import Settings, WrongSettingError

_EXIT_USAGE = 2


def take_place_or_exit(app: Any) -> Settings:
    """Take the place of an app's worker, once; return the settings it has from now on.

    They differ from those before in the name, where it was not chosen. Ends
    the process with one sentence where there is no place.
    """
    if app.conf.get("tiepoint_place") is None:
        try:
            place = take_place(app.conf.tiepoint_settings)
        except WrongSettingError as error:
            sys.stderr.write(f"error: {error}\n")
            sys.exit(_EXIT_USAGE)
        app.conf.update(tiepoint_place=place, tiepoint_settings=place.settings)
    settings: Settings = app.conf.tiepoint_settings
    return settings


class PlaceStep(bootsteps.Step):
    """Comes before pool and consumer: Celery makes all steps of a worker before it includes the first."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        take_place_or_exit(parent.app)

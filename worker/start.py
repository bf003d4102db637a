"""Starts Celery's command line with our app; looks for nothing in the current folder.

``celery -A worker.app`` puts that folder in front of ``sys.path``, whatever
Python was told, where a user's ``tasks.py`` or ``worker.py`` would hide ours.
Run as ``python -P -m worker.start worker ...`` by :mod:`worker.worker_command`
and :mod:`worker.local_run`.
"""

import sys

from celery.bin.celery import celery

from worker.app import app
from worker.place import take_place_or_exit


def main() -> None:
    """Run it with this process's arguments, and exit as it says."""
    # As `app.start` does, which loses the exit code.
    celery.params[0].default = app
    celery.main(args=_named(sys.argv[1:]))


def _named(arguments: list[str]) -> list[str]:
    """Give a worker its node's name, so that two of one machine are two to whoever watches."""
    if arguments[:1] != ["worker"]:
        return arguments
    return [*arguments, "--hostname", f"{take_place_or_exit(app).name}@%h"]


if __name__ == "__main__":
    main()

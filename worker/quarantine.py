"""Writes failed items into their projects; takes back what a result has overtaken. In any process of a node.

Of a job that a stopped node still holds, another may make the result: of the
two the result counts, in whatever order they come. Whoever records a failure
looks for the result afterwards, whoever has made one for the failure: one of
them sees the other. Does not decide that an item has failed.
"""

from tasks.errors import CorruptArtefactError, Failure, MissingArtefactError, ProjectError
from tasks.results import has_result
from tasks.store import Store
from tasks.store.publication import plain_store_errors
from worker.frames import Place


def record_failure(store: Store, place: Place | None, failure: Failure) -> None:
    """Quarantine an item in its project, unless its result is there; without a project nothing is written.

    A place comes from a message's headers, which may name any project: one
    that is not in the store is not made up. A store that is away is an error.

    Raises:
        StoreError: the store cannot be read or written.
    """
    if place is None:
        return
    project = store.project(place.project)
    with plain_store_errors(store.root):
        is_made_up = store.root.is_dir() and not project.exists()
    # Before as well: who is killed in between leaves no failure of what had long been done.
    if is_made_up or _is_done(store, place):
        return
    project.record_failure(place.stage, place.item, failure)
    if _is_done(store, place):
        project.clear_failure(place.stage, place.item)


def clear_failure(store: Store, place: Place | None) -> None:
    """Take back what was recorded of an item that is done now.

    Raises:
        StoreError: the store cannot be read or written.
    """
    if place is not None:
        store.project(place.project).clear_failure(place.stage, place.item)


def _is_done(store: Store, place: Place) -> bool:
    try:
        return has_result(store, store.project(place.project), place.stage, place.item)
    except (ProjectError, MissingArtefactError, CorruptArtefactError):
        return False  # What it was to be made from is not there either.

"""Writes failed items into their projects, in the main process and in the children.

Does not decide that an item has failed.
"""

from tasks.errors import Failure
from tasks.store import Store
from tasks.store.publication import plain_store_errors
from worker.frames import Place


def record_failure(store: Store, place: Place | None, failure: Failure) -> None:
    """Quarantine an item in its project; without a project there is nothing to write.

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
    if not is_made_up:
        project.record_failure(place.stage, place.item, failure)

"""Reads what earlier stages published; damaged artefacts are discarded, so that they are made again."""

from tasks.errors import CorruptArtefactError, MissingArtefactError
from tasks.store import Artefact, ArtefactKey, Store


def read_input(store: Store, key: ArtefactKey) -> Artefact:
    """Read an artefact that a job needs.

    Raises:
        MissingArtefactError: it is not there, or was damaged and is discarded now.
        StoreError: the store cannot be read.
    """
    try:
        return store.read(key)
    except CorruptArtefactError as error:
        store.discard(key)
        raise MissingArtefactError(f"{error}; it is discarded, to be made again") from error

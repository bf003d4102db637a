"""Reads what earlier stages published; what is damaged is discarded, so that it is made again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import CorruptArtefactError, MissingArtefactError
from tasks.feature_sets import FeatureSet, features_key, read_feature_set
from tasks.parameters import FeatureParameters
from tasks.store import Artefact, ArtefactKey, PhotoRecord, Store


def read_input(store: Store, key: ArtefactKey) -> Artefact:
    """Read an artefact that a job needs.

    Raises:
        MissingArtefactError: it is not there, or was damaged and is discarded now.
        StoreError: the store cannot be read.
    """
    with _damage_discarded(lambda: store.discard(key)):
        return store.read(key)


def read_features(store: Store, content: str, parameters: FeatureParameters) -> FeatureSet:
    """Read the feature set of the photo ``content``; errors as :func:`read_input`."""
    key = features_key(content, parameters)
    with _damage_discarded(lambda: store.discard(key)):
        return read_feature_set(store, key)


def read_photo_record(store: Store, content: str) -> PhotoRecord:
    """Read the record of the photo ``content``; errors as :func:`read_input`."""
    with _damage_discarded(lambda: store.discard_photo_record(content)):
        return store.photo_record(content)


def checked_photo(store: Store, content: str) -> Path:
    """Return a photo's file after checking its bytes: most damage to a photo decodes without complaint.

    Raises:
        MissingArtefactError: it is not there, or was damaged and is discarded now.
        ItemError: a linked file is gone or no longer the same.
        StoreError: the store cannot be read.
    """
    with _damage_discarded(lambda: store.discard_photo(content)):
        if not store.photo_is_intact(content):
            raise CorruptArtefactError(f"the store's photo {content} does not match its hash")
    return store.photo_path(content)


@contextmanager
def _damage_discarded(discard: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except CorruptArtefactError as error:
        discard()
        raise MissingArtefactError(f"{error}; it is discarded, to be made again") from error

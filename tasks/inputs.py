"""Reads what earlier stages published; damaged artefacts are discarded, so that they are made again."""

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.errors import CorruptArtefactError, MissingArtefactError
from tasks.feature_sets import FeatureSet, features_key, read_feature_set
from tasks.parameters import FeatureParameters
from tasks.store import Artefact, ArtefactKey, Store


def read_input(store: Store, key: ArtefactKey) -> Artefact:
    """Read an artefact that a job needs.

    Raises:
        MissingArtefactError: it is not there, or was damaged and is discarded now.
        StoreError: the store cannot be read.
    """
    with _damage_discarded(store, key):
        return store.read(key)


def read_features(store: Store, content: str, parameters: FeatureParameters) -> FeatureSet:
    """Read the feature set of the photo ``content``; errors as :func:`read_input`."""
    key = features_key(content, parameters)
    with _damage_discarded(store, key):
        return read_feature_set(store, key)


@contextmanager
def _damage_discarded(store: Store, key: ArtefactKey) -> Iterator[None]:
    try:
        yield
    except CorruptArtefactError as error:
        store.discard(key)
        raise MissingArtefactError(f"{error}; it is discarded, to be made again") from error

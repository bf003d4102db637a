"""Tells whether what an item of a project was to make is in the store.

Does not cover which items a project lacks, nor in what order (:mod:`tasks.lacking`).
"""

from collections.abc import Callable, Mapping

from tasks.errors import MissingArtefactError
from tasks.feature_sets import features_key
from tasks.index_memberships import is_indexed
from tasks.inputs import read_photo_record
from tasks.pair_jobs import matches_key, pair_of_item, project_verification_key
from tasks.pairs import pairs_key
from tasks.store import Project, Store


def has_result(store: Store, project: Project, stage: str, item: str) -> bool:
    """Tell whether the result of an item is there; of an unknown stage none is.

    Nor is that of a whole project (its tracks, its model) told: whoever asks is a node's main
    process, and their names take 42 us for each pair, which is most of a minute for a million.

    Raises:
        StoreError: the store cannot be read, or what the result's name depends on is lost.
        ProjectError: the project's own file is damaged.
    """
    look = _LOOKS.get(stage)
    return look is not None and look(store, project, item)


def is_imported(store: Store, project: Project, name: str) -> bool:
    """Tell whether a photo is all there; its record is read, so that one look finds all damaged ones."""
    content = project.registered_content(name)
    if content is None or not store.has_photo(content):
        return False
    try:
        read_photo_record(store, content)
    except MissingArtefactError:
        return False
    return True


def has_all_of_photo(store: Store, project: Project, content: str) -> bool:
    """Tell whether all is there that later phases need of a photo; its bytes are not among it."""
    key = features_key(content, project.parameters.features)
    return store.has(key) and store.has_photo_record(content)


def _is_indexed(store: Store, project: Project, content: str) -> bool:
    return is_indexed(store, features_key(content, project.parameters.features).digest)


def _has_pairs(store: Store, project: Project, content: str) -> bool:
    return store.has(pairs_key(project, content))


def _has_matches(store: Store, project: Project, item: str) -> bool:
    parameters = project.parameters
    return store.has(matches_key(*pair_of_item(item), parameters.features, parameters.matching))


def _is_verified(store: Store, project: Project, item: str) -> bool:
    return store.has(project_verification_key(project, *pair_of_item(item)))


_LOOKS: Mapping[str, Callable[[Store, Project, str], bool]] = {
    "import": is_imported,
    "features": has_all_of_photo,
    "index": _is_indexed,
    "pairs": _has_pairs,
    "match": _has_matches,
    "verify": _is_verified,
}

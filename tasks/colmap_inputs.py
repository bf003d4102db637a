"""Reads what a COLMAP database of a project holds: its images and pairs, one at a time.

Ids follow the sorted names, never the order of completion. How COLMAP states
them is the business of :mod:`tasks.colmap_database`.
"""

from collections.abc import Iterator

import numpy as np

from tasks.colmap_database import DatabaseImage, DatabasePair
from tasks.inputs import read_features, read_input, read_photo_record
from tasks.pair_jobs import matches_key
from tasks.pairs import images_for_pairing
from tasks.store import Project, Store
from tasks.verification import VerifiedPair, verified_pairs


def database_images(store: Store, project: Project, *, with_descriptors: bool) -> Iterator[DatabaseImage]:
    """Read the images that have features, sorted by name, with ids 1..N.

    ORB descriptors are left out always: COLMAP knows no such type.

    Raises:
        MissingArtefactError: a feature set is not (any longer) there.
    """
    parameters = project.parameters.features
    for image_id, image in enumerate(images_for_pairing(project), start=1):
        features = read_features(store, image.content, parameters)
        record = read_photo_record(store, image.content)
        is_sift = with_descriptors and parameters.extractor != "orb"
        yield DatabaseImage(
            image_id=image_id,
            name=image.name,
            camera=record.camera,
            keypoints=features.keypoints,
            sift_descriptors=features.descriptors if is_sift else None,
            gps=record.gps,
        )


def database_pairs(store: Store, project: Project, *, with_matches: bool) -> Iterator[DatabasePair]:
    """Read every verified pair, refused ones included; without matches only what the mapper reads.

    Raises:
        MissingArtefactError: a pair's geometry or matches are not (any longer) there.
    """
    ids = {image.content: number for number, image in enumerate(images_for_pairing(project), start=1)}
    for pair in verified_pairs(store, project):
        yield DatabasePair(
            left_id=ids[pair.left],
            right_id=ids[pair.right],
            matches=_matches(store, project, pair) if with_matches else np.empty((0, 2), np.uint32),
            inliers=pair.inliers,
            config=pair.config,
            fundamental=pair.fundamental,
            essential=pair.essential,
            homography=pair.homography,
        )


def _matches(store: Store, project: Project, pair: VerifiedPair) -> np.typing.NDArray[np.uint32]:
    parameters = project.parameters
    key = matches_key(pair.left, pair.right, parameters.features, parameters.matching)
    matches: np.typing.NDArray[np.uint32] = read_input(store, key).arrays["matches"]
    return matches

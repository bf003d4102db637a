"""Decides the feature kinds: one photo in, one published feature set out.

Decoding, detection, memory and the set's file have their own modules:
:mod:`tasks.decoding`, :mod:`tasks.keypoints`, :mod:`tasks.feature_memory`,
:mod:`tasks.feature_sets`.
"""

import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Self

import numpy as np
from PIL import Image
from pydantic import Field, model_validator

from governor.model import Grant
from tasks.decoding import DecodingError, DetectionImage, decode_gray, shrink
from tasks.errors import Failure, ItemError, MissingArtefactError
from tasks.estimate_forms import EstimateForms
from tasks.feature_memory import ESTIMATES, any_picture_bound_bytes, features_estimate, peak_bound_bytes
from tasks.feature_sets import FEATURE_KINDS, FEATURES_VERSION, features_key, publish_feature_set
from tasks.inputs import checked_photo, read_photo_record
from tasks.keypoint_density import sampled_keypoints_per_pixel
from tasks.keypoints import extract
from tasks.kind import Done, Failed, Kind, Needs, NotReady, Outcome, Payload
from tasks.old_estimates import OLD_ESTIMATES
from tasks.opencv_threads import opencv_threads
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import PhotoRecord, Store

STAGE = "features"


class FeaturePayload(Payload):
    """One photo to find features in; the kind says with which extractor."""

    image: str = Field(pattern="^[0-9a-f]{64}$")
    """SHA-256 of the photo."""
    project: str | None = None
    """Only to name the photo in a failure as the user does."""
    max_image_size_px: int = FeatureParameters().max_image_size_px
    max_features: int = FeatureParameters().max_features

    @model_validator(mode="after")
    def _parameters_are_in_range(self) -> Self:
        self.parameters("rootsift")
        return self

    def parameters(self, extractor: Extractor) -> FeatureParameters:
        """Return the feature parameters that this payload means for an extractor."""
        return FeatureParameters(
            extractor=extractor, max_image_size_px=self.max_image_size_px, max_features=self.max_features
        )


def run_features(
    extractor: Extractor, payloads: Sequence[FeaturePayload], grant: Grant, store: Store
) -> Iterator[Outcome]:
    """Extract and publish the features of each photo, with the granted threads."""
    for payload in payloads:
        try:
            yield _extract_one(payload, payload.parameters(extractor), grant, store)
        except MissingArtefactError as error:
            yield NotReady(cause=str(error))
        except ItemError as error:
            yield Failed(failure=error.failure)


def _extract_one(
    payload: FeaturePayload, parameters: FeatureParameters, grant: Grant, store: Store
) -> Outcome:
    key = features_key(payload.image, parameters)
    if store.has(key):
        return Done(recorded_items=0)
    record = read_photo_record(store, payload.image)
    if grant.memory_bytes < peak_bound_bytes(record, parameters):
        return Needs(estimate=features_estimate(record, parameters))
    try:
        image = _detection_image(payload.image, record, parameters, store)
    except DecodingError as error:
        return Failed(failure=_failure(payload, store, error))
    with opencv_threads(grant.cpu_threads):
        density = _density_beyond(grant, image, record, parameters)
        if density:
            return Needs(estimate=features_estimate(record, parameters, density))
        publish_feature_set(store, key, extract(image, parameters))
    return Done()


def _density_beyond(
    grant: Grant, image: DetectionImage, record: PhotoRecord, parameters: FeatureParameters
) -> float | None:
    """Return how full of keypoints a picture is, where that takes more than the grant."""
    if grant.memory_bytes >= any_picture_bound_bytes(record, parameters):
        return None
    density = sampled_keypoints_per_pixel(image.pixels, parameters.extractor)
    return density if grant.memory_bytes < peak_bound_bytes(record, parameters, density) else None


def _detection_image(
    content: str, record: PhotoRecord, parameters: FeatureParameters, store: Store
) -> DetectionImage:
    path = checked_photo(store, content)
    return shrink(decode_gray(path, record), parameters.max_image_size_px)


def _failure(payload: FeaturePayload, store: Store, error: DecodingError) -> Failure:
    name = _name_of(payload, store)
    return Failure(
        name=name,
        reason=error.reason,
        cause=f"{name} cannot be used: {error.cause}.",
        cure=f"Copy {name} from the camera again or leave it out, then start a new project.",
    )


def _name_of(payload: FeaturePayload, store: Store) -> str:
    """Return the smallest name the photo is registered under, else the start of its hash."""
    registrations = store.project(payload.project).registrations() if payload.project else {}
    names = [name for name, content in registrations.items() if content == payload.image]
    return min(names, default=f"photo {payload.image[:12]}")


def _warm_up(extractor: Extractor) -> None:
    """Decode and describe something tiny, so that a child's baseline holds the libraries."""
    noise = np.random.default_rng(0).integers(0, 256, size=(96, 96)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    with Image.open(file) as image:
        image.load()
    tiny = DetectionImage(pixels=noise, full_width_px=96, full_height_px=96)
    extract(tiny, FeatureParameters(extractor=extractor))


def _kind(extractor: Extractor) -> Kind:
    return Kind(
        name=FEATURE_KINDS[extractor],
        version=FEATURES_VERSION,
        stage=STAGE,
        estimate=ESTIMATES[extractor],
        forms=EstimateForms(
            floors=(ESTIMATES[extractor],), old=OLD_ESTIMATES.get(FEATURE_KINDS[extractor], ())
        ),
        payload=FeaturePayload,
        run=partial(run_features, extractor),
        warm_up=partial(_warm_up, extractor),
    )


KINDS: tuple[Kind, ...] = (_kind("orb"), _kind("sift"), _kind("rootsift"))

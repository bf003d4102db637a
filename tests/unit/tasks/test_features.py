"""Tests of the feature kinds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from governor.model import Grant
from tasks.errors import Reason
from tasks.feature_memory import features_estimate, peak_bound_bytes
from tasks.feature_sets import FEATURE_KINDS, FeatureSet, features_key, read_feature_set
from tasks.features import KINDS, FeaturePayload
from tasks.keypoint_density import sampled_keypoints_per_pixel
from tasks.kind import Done, Failed, Needs, NotReady, Outcome
from tasks.parameters import Extractor, FeatureParameters
from tasks.store import Store
from tests.unit.tasks.keypoint_patterns import dots
from tests.unit.tasks.photo_builders import encoded, photo_in_store, store_at, textured

EXTRACTORS = tuple(FEATURE_KINDS)
PHOTO = encoded(textured(320, 240))
AMPLE_BYTES = 1 << 33


def run(
    extractor: Extractor, photos: Sequence[str], store: Store, *, memory_bytes: int = AMPLE_BYTES
) -> list[Outcome]:
    """Run a feature kind on photos of the project "survey"."""
    (kind,) = (kind for kind in KINDS if kind.name == FEATURE_KINDS[extractor])
    payloads = [FeaturePayload(image=photo, project="survey") for photo in photos]
    return list(kind.run(payloads, Grant(batch=1, cpu_threads=1, memory_bytes=memory_bytes), store))


def features(extractor: Extractor, photo: str, store: Store) -> FeatureSet:
    """Read the features that were published for a photo."""
    return read_feature_set(store, features_key(photo, FeatureParameters(extractor=extractor)))


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_features_of_a_photo_are_published(tmp_path: Path, extractor: Extractor) -> None:
    """The set stands under the name that its parameters give."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, PHOTO)
    outcomes = run(extractor, [photo], store)
    published = features(extractor, photo, store)

    assert outcomes == [Done(recorded_items=1)]
    assert (published.extractor, published.width_px, published.height_px) == (extractor, 320, 240)
    assert len(published.keypoints) > 100


def test_a_repeated_job_does_nothing(tmp_path: Path) -> None:
    """What is published already is not made again, nor counted."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, PHOTO)

    assert run("orb", [photo, photo], store) == [Done(recorded_items=1), Done(recorded_items=0)]


def test_a_picture_without_structure_is_done(tmp_path: Path) -> None:
    """No keypoints is a result, not a failure."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, encoded(np.full((200, 200), 128, dtype=np.uint8)))

    assert run("rootsift", [photo], store) == [Done(recorded_items=1)]
    assert features("rootsift", photo, store).keypoints.shape == (0, 4)


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_a_grant_below_the_bound_is_answered_with_what_is_needed(tmp_path: Path, missing_bytes: int) -> None:
    """Exactly the bound is enough; one byte less goes back, before decoding."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, PHOTO)
    record, parameters = store.photo_record(photo), FeatureParameters(extractor="sift")
    bound_bytes = peak_bound_bytes(record, parameters)
    (outcome,) = run("sift", [photo], store, memory_bytes=bound_bytes - missing_bytes)

    assert outcome == (Needs(estimate=features_estimate(record, parameters)) if missing_bytes else Done())


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_a_picture_full_of_keypoints_is_answered_with_what_it_needs(
    tmp_path: Path, missing_bytes: int
) -> None:
    """What its header does not tell is found before the keypoints are sought."""
    store, pixels = store_at(tmp_path), dots(400, 6)
    photo = photo_in_store(store, tmp_path, encoded(pixels, "PNG"))
    record, parameters = store.photo_record(photo), FeatureParameters(extractor="sift")
    density = sampled_keypoints_per_pixel(pixels, "sift")
    needed_bytes = peak_bound_bytes(record, parameters, density)
    (outcome,) = run("sift", [photo], store, memory_bytes=needed_bytes - missing_bytes)

    assert needed_bytes > peak_bound_bytes(record, parameters)
    needs = Needs(estimate=features_estimate(record, parameters, density))
    assert outcome == (needs if missing_bytes else Done())


def test_a_photo_that_only_decoding_shows_damaged_fails_by_its_name(tmp_path: Path) -> None:
    """The failure names the user's file, not a hash."""
    store, content = store_at(tmp_path), bytearray(encoded(textured(320, 240), "PNG"))
    middle = len(content) // 2
    content[middle : middle + 40] = bytes(40)
    photo = photo_in_store(store, tmp_path, bytes(content), name="Fläche 7.png")
    (outcome,) = run("orb", [photo], store)

    assert isinstance(outcome, Failed)
    assert outcome.failure.name == "Fläche 7.png"
    assert outcome.failure.reason in {Reason.UNREADABLE, Reason.TRUNCATED}
    assert not store.has(features_key(photo, FeatureParameters(extractor="orb")))


def test_a_damaged_copy_of_a_photo_is_not_trusted(tmp_path: Path) -> None:
    """A flipped bit that still decodes is found by the photo's hash; the photo is to be imported again."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, PHOTO)
    damaged = bytearray(PHOTO)
    damaged[-100] ^= 1
    store.photo_path(photo).write_bytes(damaged)
    (outcome,) = run("orb", [photo], store)

    assert isinstance(outcome, NotReady)
    assert not store.has_photo(photo)


def test_a_damaged_record_of_a_photo_is_not_trusted(tmp_path: Path) -> None:
    """It is discarded; the photo's bytes are fine and stay."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, PHOTO)
    next(store.root.glob("photos/*/*.json")).write_text('{"width_px": 0}')
    (outcome,) = run("orb", [photo], store)

    assert isinstance(outcome, NotReady)
    assert not store.has_photo_record(photo)
    assert store.photo_is_intact(photo)


def test_a_photo_that_is_not_imported_yet_is_not_ready(tmp_path: Path) -> None:
    """A missing input is the pipeline's business, not a failure of the item."""
    (outcome,) = run("orb", ["a" * 64], store_at(tmp_path))

    assert isinstance(outcome, NotReady)


def test_one_bad_photo_does_not_stop_the_batch(tmp_path: Path) -> None:
    """Outcomes come in order, one per payload."""
    store = store_at(tmp_path)
    photo = photo_in_store(store, tmp_path, PHOTO)

    assert [type(outcome) for outcome in run("orb", ["a" * 64, photo], store)] == [NotReady, Done]


@pytest.mark.parametrize(
    "fields",
    [
        {"image": "A" * 64},
        {"image": "a" * 63},
        {"image": "a" * 64, "max_features": 0},
        {"image": "a" * 64, "max_features": 8193},
        {"image": "a" * 64, "max_image_size_px": 63},
        {"image": "a" * 64, "extractor": "sift"},
    ],
)
def test_a_payload_out_of_range_is_refused(fields: dict[str, object]) -> None:
    """Unknown keys and values outside the project parameters' ranges."""
    with pytest.raises(ValidationError):
        FeaturePayload.model_validate(fields)


def test_the_kinds_declare_the_frozen_rows() -> None:
    """Names, threads and batch are the owner's."""
    assert [kind.name for kind in KINDS] == [
        "features.extract",
        "features.extract.sift",
        "features.extract.rootsift",
    ]
    assert all((kind.estimate.cpu_threads, kind.estimate.max_batch) == (12, 1) for kind in KINDS)
    assert all(kind.estimate.is_valid() and kind.stage == "features" for kind in KINDS)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_warming_up_needs_no_store(extractor: Extractor) -> None:
    """A child is warm before it knows what it will work on."""
    (kind,) = (kind for kind in KINDS if kind.name == FEATURE_KINDS[extractor])
    kind.warm_up()

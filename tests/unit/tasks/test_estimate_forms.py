"""A job may carry its kind's own estimate, an exact old form, or a larger one where inputs differ."""

from dataclasses import fields, replace

import pytest

from governor.model import Estimate
from tasks.catalog import load_kinds
from tasks.estimate_forms import EstimateForms, difference, normalised
from tasks.feature_memory import features_estimate
from tasks.feature_sets import FEATURE_KINDS
from tasks.kind import Kind
from tasks.model_memory import MappingSize, model_estimate
from tasks.old_estimates import OLD_ESTIMATES
from tasks.pairing import Pairing
from tasks.pairs import pairs_estimate
from tasks.parameters import Extractor, FeatureParameters, PairParameters
from tasks.store import PhotoRecord, ProjectImage
from tasks.tracks import tracks_estimate

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
KINDS = load_kinds()
OLD_FORMS = {
    "import.images, 128 KiB": (
        "import.images",
        Estimate(memory_fixed_bytes=131_072, memory_per_item_bytes=319, max_batch=32, io_slots=1),
    ),
    "features.extract.sift, 1 thread": (
        "features.extract.sift",
        Estimate(memory_fixed_bytes=64 * MIB, memory_per_item_bytes=GIB, io_slots=1),
    ),
    "candidate_pair.generate, 256 KiB": (
        "candidate_pair.generate",
        Estimate(
            memory_fixed_bytes=262_144, memory_per_item_bytes=65_536, max_batch=64, cpu_threads=12, io_slots=1
        ),
    ),
    "candidate_pair.generate, 128 KiB, 1 thread": (
        "candidate_pair.generate",
        Estimate(memory_fixed_bytes=131_072, memory_per_item_bytes=65_536, max_batch=64, io_slots=1),
    ),
    "matcher.run, 12 threads": (
        "matcher.run",
        Estimate(memory_per_item_bytes=10 * MIB, max_batch=8, cpu_threads=12, io_slots=1),
    ),
    "matcher.run, 12 threads, 10 MiB fixed": (
        "matcher.run",
        Estimate(memory_fixed_bytes=10 * MIB, max_batch=8, cpu_threads=12, io_slots=1),
    ),
    "matcher.run.gpu, 12 threads": (
        "matcher.run.gpu",
        Estimate(
            memory_per_item_bytes=10 * MIB,
            gpu_memory_fixed_bytes=655_360,
            max_batch=8,
            cpu_threads=12,
            gpu_slots=1,
            io_slots=1,
        ),
    ),
    "matcher.run.gpu, 12 threads, 10 MiB fixed": (
        "matcher.run.gpu",
        Estimate(
            memory_fixed_bytes=10 * MIB,
            gpu_memory_fixed_bytes=655_360,
            max_batch=8,
            cpu_threads=12,
            gpu_slots=1,
            io_slots=1,
        ),
    ),
    "geometric_verifier.run, 4 MiB": (
        "geometric_verifier.run",
        Estimate(memory_fixed_bytes=4 * MIB, memory_per_item_bytes=MIB, max_batch=8, io_slots=1),
    ),
}
"""Written down once more, in numbers: a slip in the table is noticed."""
CURRENT_FORMS = {name: (name, kind.estimate) for name, kind in KINDS.items() if kind.forms is not None}
FIELDS = [field.name for field in fields(Estimate)]
MEMORY_FIELDS = ("memory_fixed_bytes", "memory_per_item_bytes")


def accepted(name: str, sent: Estimate) -> Estimate | None:
    """Return what a catalogue kind admits a job with."""
    return KINDS[name].estimate_for(sent)


def told(kind: Kind, sent: Estimate) -> str:
    """Return the difference that a refused job is told."""
    assert kind.forms is not None
    return difference(sent, kind.estimate, kind.forms)


@pytest.mark.parametrize(("name", "old"), OLD_FORMS.values(), ids=OLD_FORMS)
def test_an_old_form_stands_for_the_current_one(name: str, old: Estimate) -> None:
    """Jobs that were stored in former times run, under what is reserved today."""
    assert accepted(name, old) == KINDS[name].estimate != old


def test_the_table_holds_these_old_forms_and_no_other() -> None:
    """Every form is one of those that are tested here."""
    listed = [(name, old) for name, forms in OLD_ESTIMATES.items() for old in forms]

    assert sorted(map(str, listed)) == sorted(map(str, OLD_FORMS.values()))


def test_every_kind_of_the_catalogue_takes_what_the_table_has_for_it() -> None:
    """A form that no kind refers to would be dead."""
    taken = {name: kind.forms.old for name, kind in KINDS.items() if kind.forms and kind.forms.old}

    assert taken == dict(OLD_ESTIMATES)


@pytest.mark.parametrize(("name", "current"), CURRENT_FORMS.values(), ids=CURRENT_FORMS)
def test_the_current_form_is_accepted_as_it_is(name: str, current: Estimate) -> None:
    """A client may say what is true anyway."""
    assert accepted(name, current) == current


def test_every_kind_of_the_catalogue_declares_its_forms() -> None:
    """Only own kinds from outside take any valid estimate."""
    assert [name for name, kind in KINDS.items() if kind.forms is None] == []


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("name", "form"), [*OLD_FORMS.values(), *CURRENT_FORMS.values()], ids=[*OLD_FORMS, *CURRENT_FORMS]
)
def test_one_off_in_one_field_is_refused_and_the_field_named(
    name: str, form: Estimate, field: str, step: int
) -> None:
    """One byte, one thread, one slot; only a kind that may need more memory takes more than its own."""
    kind, value = KINDS[name], getattr(form, field) + step
    sent = replace(form, **{field: value})
    may_be_more = kind.forms is not None and form in kind.forms.floors and field in MEMORY_FIELDS

    if may_be_more and step > 0:
        assert accepted(name, sent) == sent
    else:
        assert accepted(name, sent) is None
        assert f"{field} is {value}, not " in told(kind, sent)
        assert str(getattr(form, field)) in told(kind, sent)


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("features.extract", replace(KINDS["features.extract"].estimate, memory_per_item_bytes=GIB)),
        (
            "features.extract.sift",
            replace(KINDS["features.extract.sift"].estimate, memory_per_item_bytes=6 * GIB),
        ),
        (
            "features.extract.rootsift",
            replace(KINDS["features.extract.rootsift"].estimate, memory_per_item_bytes=6 * GIB),
        ),
        ("track_builder.run", tracks_estimate(0)),
        ("track_builder.run", tracks_estimate(1_000_000)),
        ("model.reconstruct", model_estimate(MappingSize(images=10, features=1000, inlier_matches=500))),
        ("model.reconstruct", model_estimate(MappingSize(features=10**8, inlier_matches=10**8))),
    ],
    ids=str,
)
def test_what_an_input_needs_is_admitted_as_it_is(name: str, sent: Estimate) -> None:
    """These kinds' own plans, and their answers to a grant that is too small, vary with the input."""
    assert accepted(name, sent) == sent


@pytest.mark.parametrize("extractor", FEATURE_KINDS)
@pytest.mark.parametrize("side_px", [10, 1000, 3200, 10_000])
def test_every_photo_has_an_estimate_that_its_kind_accepts(extractor: Extractor, side_px: int) -> None:
    """Up to 100 megapixels; planned, or answered to a grant that was too small."""
    photo = PhotoRecord(width_px=side_px, height_px=side_px, focal_length_px=1.0, focal_is_prior=False)
    parameters = FeatureParameters(extractor=extractor, max_image_size_px=65_535)
    estimate = features_estimate(photo, parameters)

    assert accepted(FEATURE_KINDS[extractor], estimate) == estimate


@pytest.mark.parametrize("count", [1, 100, 101, 50_000])
def test_every_number_of_photos_has_an_estimate_that_pairing_accepts(count: int) -> None:
    """Planned, or answered to a grant that was too small; with the index or without."""
    image = ProjectImage(name="a.jpg", content="0" * 64)
    pairing = Pairing(images=(image,) * count, parameters=PairParameters(), features=FeatureParameters())
    estimate = pairs_estimate(pairing)

    assert accepted("candidate_pair.generate", estimate) == estimate


def test_many_observations_take_the_threads_of_many_with_at_least_the_floors_memory() -> None:
    """The mapper has two floors; below the second one threads are no excuse."""
    many = model_estimate(MappingSize(features=10**8, inlier_matches=10**8))
    floor_bytes = model_estimate(MappingSize()).memory_fixed_bytes
    short = replace(many, memory_fixed_bytes=floor_bytes - 1)

    assert (
        accepted("model.reconstruct", replace(short, memory_fixed_bytes=floor_bytes)),
        many.cpu_threads,
    ) == (
        replace(many, memory_fixed_bytes=floor_bytes),
        12,
    )
    assert told(KINDS["model.reconstruct"], short) == (
        f"memory_fixed_bytes is {floor_bytes - 1}, not at least {floor_bytes}"
    )


CURRENT = Estimate(memory_fixed_bytes=100, max_batch=4, cpu_threads=12)
FORMS = EstimateForms(old=(replace(CURRENT, memory_fixed_bytes=10, cpu_threads=1),))


@pytest.mark.parametrize(
    ("sent", "forms", "words"),
    [
        (replace(CURRENT, memory_fixed_bytes=101), FORMS, "memory_fixed_bytes is 101, not 100"),
        (
            replace(CURRENT, memory_fixed_bytes=11, cpu_threads=1),
            FORMS,
            "memory_fixed_bytes is 11, not 10",
        ),
        (
            replace(CURRENT, cpu_threads=1),
            FORMS,
            "cpu_threads is 1, not 12; or memory_fixed_bytes is 100, not 10",
        ),
        (
            replace(CURRENT, memory_fixed_bytes=7, cpu_threads=3),
            FORMS,
            "memory_fixed_bytes is 7, not 100 or 10, and cpu_threads is 3, not 12 or 1",
        ),
        (
            replace(CURRENT, cpu_threads=11),
            EstimateForms(old=(replace(CURRENT, cpu_threads=8),)),
            "cpu_threads is 11, not 12 or 8",
        ),
        (
            replace(CURRENT, memory_fixed_bytes=99),
            EstimateForms(floors=(CURRENT,)),
            "memory_fixed_bytes is 99, not at least 100",
        ),
    ],
    ids=["current", "old", "either", "both fields", "alike forms", "floor"],
)
def test_a_difference_is_told_from_the_nearest_forms(
    sent: Estimate, forms: EstimateForms, words: str
) -> None:
    """With the fewest fields that differ."""
    assert normalised(sent, CURRENT, forms) is None
    assert difference(sent, CURRENT, forms) == words

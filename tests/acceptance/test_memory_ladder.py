"""The reservation covers the truth: features of photos of every size, look and extractor."""

from pathlib import Path

import pytest

from tests.acceptance.child_batches import Batch, run_in_child
from tests.acceptance.ladder_photos import LADDER_MEGAPIXELS, LOOKS, photo_of, render, size_of
from tests.bench.memory_ladder import EXTRACTORS, Case, Rung, climb
from tests.conftest import PhotoSet
from tests.unit.tasks.photo_builders import store_at
from worker.memory_meter import RETAINED_LIMIT_BYTES

_GROUPS = {
    group: [name for name, look in LOOKS.items() if look.group == group]
    for group in ("gray", "colour", "16 bit")
}


def pairwise_cases() -> list[Case]:
    """Return each size with each extractor, both with each group of looks, and every look at least once."""
    groups, taken, cases = list(_GROUPS.values()), [0, 0, 0], []
    for row, megapixels in enumerate(LADDER_MEGAPIXELS):
        for column, extractor in enumerate(EXTRACTORS):
            group = (row + column) % 3
            look = groups[group][taken[group] % len(groups[group])]
            taken[group] += 1
            cases.append(
                Case(megapixels=megapixels, look=look, extractor=extractor, threads=1 + (row + column) % 2)
            )
    return cases


def name_of(case: Case) -> str:
    """Return what a test of a case is called."""
    return f"{case.megapixels}MP {case.look} {case.content} {case.extractor} {case.threads} threads"


def measured(case: Case, photos: PhotoSet) -> Rung:
    """Run a case on a real photo; skip where the machine has no room for it."""
    source = min(photos("brighton_beach").iterdir())
    (result,) = climb([case], source)
    if not isinstance(result, Rung):
        pytest.skip(result.reason)
    return result


def test_the_cases_meet_in_pairs() -> None:
    """Sizes, extractors, groups and looks: none is left out, and each pair of the first three meets."""
    cases = pairwise_cases()

    assert {case.look for case in cases} == set(LOOKS)
    assert len({(case.megapixels, case.extractor) for case in cases}) == 18
    assert len({(case.megapixels, LOOKS[case.look].group) for case in cases}) == 18
    assert len({(case.extractor, LOOKS[case.look].group) for case in cases}) == 9
    assert len({(case.extractor, case.threads) for case in cases}) == 6


@pytest.mark.parametrize("case", pairwise_cases(), ids=name_of)
def test_features_stay_within_their_reservation(case: Case, photos: PhotoSet) -> None:
    """The peak that the product measures is at most what the photo's header led to."""
    rung = measured(case, photos)

    assert 1 << 20 < rung.peak_bytes <= rung.reserved_bytes
    assert rung.peak_bytes <= rung.bound_bytes
    assert not rung.asked_again


def test_a_picture_of_nothing_but_keypoints_asks_for_what_it_needs(photos: PhotoSet) -> None:
    """It takes more than any photo of its size, and has reserved it."""
    rung = measured(Case(megapixels=4, look="gray PNG", content="fullest_sift", extractor="sift"), photos)

    assert rung.asked_again
    assert rung.bound_bytes < rung.peak_bytes <= rung.reserved_bytes


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pattern_of_equal_corners_stays_within_the_frozen_figure(threads: int, photos: PhotoSet) -> None:
    """ORB keeps all corners of equal response, whatever the limit."""
    case = Case(megapixels=1, look="gray PNG", content="fullest_orb", extractor="orb", threads=threads)
    rung = measured(case, photos)

    assert 20 << 20 < rung.peak_bytes <= rung.reserved_bytes


def test_a_child_keeps_little_from_batch_to_batch(tmp_path: Path) -> None:
    """What it keeps beyond 32 MiB has it replaced; what it keeps less stands in no reservation."""
    store = store_at(tmp_path)
    gray = render("squares", size_of(1), tmp_path)
    photo = photo_of(LOOKS["16-bit gray PNG"], gray, store, tmp_path)
    batches = [
        Batch(kind=kind, payloads=({"image": photo, "max_features": most},), threads=2, memory_bytes=2 << 30)
        for most in (8192, 8191)
        for kind in ("features.extract.sift", "features.extract", "features.extract.rootsift")
    ]
    measured = run_in_child(store, batches)

    assert [batch.actions for batch in measured] == [["done"]] * 6
    assert min(batch.peak_bytes for batch in measured) > 5 << 20
    assert all(batch.retire or batch.retained_bytes <= RETAINED_LIMIT_BYTES for batch in measured)
    assert not any(batch.retire for batch in measured)

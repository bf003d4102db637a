"""What a project is paired by follows from its images and parameters alone."""

import pytest

from tasks.pairing import Pairing
from tasks.parameters import FeatureParameters, PairParameters
from tasks.store import ProjectImage

FEATURES = FeatureParameters()


def pairing(images: int, strategy: str = "auto", unindexed: frozenset[str] = frozenset()) -> Pairing:
    """Return a pairing of images whose ids rise with their names."""
    return Pairing(
        images=tuple(
            ProjectImage(name=f"{number:05}.jpg", content=f"{number:064x}") for number in range(images)
        ),
        parameters=PairParameters(strategy=strategy),
        features=FEATURES,
        unindexed=unindexed,
    )


@pytest.mark.parametrize(("images", "strategies"), [(100, {"exhaustive"}), (101, {"retrieval", "spatial"})])
def test_auto_is_exhaustive_up_to_100_images(images: int, strategies: set[str]) -> None:
    """Then it asks what looks alike and what lies near."""
    assert pairing(images).strategies == strategies


def test_what_is_matched_with_all_needs_no_index() -> None:
    """Exhaustive pairs hold those of every other strategy."""
    everything = pairing(5, "exhaustive,retrieval,spatial")

    assert everything.strategies == {"exhaustive"}
    assert everything.is_mutual
    assert not everything.uses_index


@pytest.mark.parametrize(
    ("strategy", "uses_index", "uses_positions"),
    [
        ("retrieval", True, False),
        ("spatial", False, True),
        ("sequential", False, False),
        ("retrieval,sequential,spatial", True, True),
    ],
)
def test_only_what_is_asked_for_is_read(strategy: str, uses_index: bool, uses_positions: bool) -> None:  # noqa: FBT001 - a table
    """Neither index nor positions where no strategy wants them."""
    made = pairing(5, strategy)

    assert (made.uses_index, made.uses_positions) == (uses_index, uses_positions)
    assert made.is_mutual is not (uses_index or uses_positions)


@pytest.mark.parametrize(
    ("images", "strategy", "most"),
    [
        (2000, "retrieval", 64),
        (2000, "spatial", 50),
        (2000, "retrieval,spatial", 114),
        (2000, "retrieval,sequential", 64 + 17),
        (10, "retrieval,spatial", 9),
    ],
)
def test_how_many_partners_an_image_has_is_bounded(images: int, strategy: str, most: int) -> None:
    """What the planner counts a source's follow-ups as; nobody has more partners than there are others."""
    made = pairing(images, strategy)

    assert made.most_partners(made.images[0].content) == most


def test_images_that_failed_to_be_indexed_are_not_asked_about() -> None:
    """They still take part: other strategies may find them."""
    lost = f"{1:064x}"
    made = pairing(3, "retrieval", frozenset((lost,)))

    assert lost not in made.indexed
    assert lost in made
    assert made.key(lost) != pairing(3, "retrieval").key(lost)


def test_other_features_are_other_retrieved_pairs() -> None:
    """And the same exhaustive ones: those do not depend on what is in the pictures."""
    content = f"{0:064x}"
    orb = FeatureParameters(extractor="orb")
    names = {
        (strategy, features.extractor): Pairing(
            images=pairing(3).images, parameters=PairParameters(strategy=strategy), features=features
        ).key(content)
        for strategy in ("retrieval", "exhaustive")
        for features in (FEATURES, orb)
    }

    assert names["retrieval", "orb"] != names["retrieval", "rootsift"]
    assert names["exhaustive", "orb"] == names["exhaustive", "rootsift"]


@pytest.mark.parametrize(
    ("strategy", "images", "partners"),
    [
        ("exhaustive", 1, 0),
        ("exhaustive", 4, 2),  # 6 pairs of 4 images are 1.5 each.
        ("exhaustive", 101, 50),
        ("sequential", 5, 2),  # No more than all pairs.
        ("sequential", 1000, 16),  # Ten near ones and six doubled distances, each seen from both sides.
        ("retrieval", 1000, 48),
        ("retrieval", 11, 5),
    ],
)
def test_an_image_adds_about_so_many_pairs(strategy: str, images: int, partners: int) -> None:
    """Exact where pairs are mutual; three quarters of what is asked for where one side may propose alone."""
    assert pairing(images, strategy).usual_partners == partners

"""The names of a pair's work say everything that can change it, and nothing else."""

import pytest
from pydantic import ValidationError

from tasks.pair_jobs import MatchPayload, matches_key, verification_key
from tasks.parameters import FeatureParameters, MatchParameters, VerificationParameters

LEFT, RIGHT = "a" * 64, "b" * 64
FEATURES, MATCHING, VERIFICATION = FeatureParameters(), MatchParameters(), VerificationParameters()


@pytest.mark.parametrize(("left", "right"), [(RIGHT, LEFT), (LEFT, LEFT), ("x", RIGHT)])
def test_pairs_are_two_ids_in_order(left: str, right: str) -> None:
    """A pair has one spelling; anything else is refused before any work."""
    with pytest.raises(ValidationError):
        MatchPayload(left=left, right=right)


def test_key_of_matches_follows_features_and_matching() -> None:
    """Each parameter of either group changes the name."""
    keys = {
        matches_key(LEFT, RIGHT, FEATURES, MATCHING),
        matches_key(LEFT, "c" * 64, FEATURES, MATCHING),
        matches_key(LEFT, RIGHT, FeatureParameters(max_features=100), MATCHING),
        matches_key(LEFT, RIGHT, FEATURES, MatchParameters(ratio=0.8)),
        matches_key(LEFT, RIGHT, FEATURES, MatchParameters(cross_check=False)),
    }

    assert len(keys) == 5


def test_key_of_geometry_follows_its_matches_too() -> None:
    """New matches mean a new verification, as does each threshold."""
    keys = {
        verification_key(LEFT, RIGHT, FEATURES, MATCHING, VERIFICATION),
        verification_key(LEFT, RIGHT, FEATURES, MatchParameters(ratio=0.8), VERIFICATION),
        verification_key(LEFT, RIGHT, FEATURES, MATCHING, VerificationParameters(max_error_px=2.0)),
    }

    assert len(keys) == 3

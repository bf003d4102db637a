"""On real descriptors, too, the matches are those of cv2.BFMatcher."""

import shutil
from pathlib import Path

import pytest

from tasks.feature_sets import features_key, read_feature_set
from tasks.matching_kernel import default_ratio, match_descriptors
from tasks.pairs import images_for_pairing
from tasks.parameters import Extractor, FeatureParameters, ProjectParameters
from tests.conftest import PhotoSet
from tests.plain_runner import run_plain
from tests.unit.tasks.brute_force import reference_matches


@pytest.mark.parametrize("extractor", ["rootsift", "sift", "orb"])
def test_kermit_matches_as_with_the_reference(photos: PhotoSet, tmp_path: Path, extractor: Extractor) -> None:
    """Three photos, every direction, with and without cross check."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in sorted(photos("kermit").iterdir())[:3]:
        shutil.copy(path, folder)
    parameters = ProjectParameters(features=FeatureParameters(extractor=extractor))
    run = run_plain(folder, tmp_path / "store", parameters)
    sets = [
        read_feature_set(run.store, features_key(image.content, parameters.features)).descriptors
        for image in images_for_pairing(run.project)
    ]

    for left, right in ((0, 1), (1, 2), (2, 0)):
        for cross_check in (True, False):
            matches = match_descriptors(sets[left], sets[right], extractor=extractor, cross_check=cross_check)
            expected = reference_matches(
                sets[left], sets[right], extractor, default_ratio(extractor), cross_check=cross_check
            )

            assert len(matches) > 30
            assert matches.tolist() == expected

"""A project whose store was spoilt: `status` tells what is left, `resume` makes the rest again."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.conftest import Finished, tiepoint
from tests.conftest import PhotoSet

DEDICATED = ("--profile", "dedicated")
LOST = "kermit003.jpg"


@pytest.fixture(scope="module")
def finished(photos: PhotoSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Finished]:
    """Run a copy of kermit's photos to the end; return the folder that holds both, and the summary."""
    folder = tmp_path_factory.mktemp("finished")
    shutil.copytree(photos("kermit"), folder / "photos")
    done = tiepoint("run", folder / "photos", "--project", folder / "project", "--json", *DEDICATED)
    assert done.returncode == 0
    return folder, done


@pytest.fixture
def survey(finished: tuple[Path, Finished], tmp_path: Path) -> Path:
    """Return a fresh copy of the finished project, which may be spoilt; its originals are the first one's."""
    shutil.copytree(finished[0] / "project", tmp_path / "project")
    return tmp_path / "project"


def each(project: Path, pattern: str) -> list[Path]:
    """Return files of a project."""
    paths = sorted(path for path in project.glob(pattern) if path.is_file())
    assert paths, pattern
    return paths


def flip_a_bit(path: Path) -> None:
    """Damage a file so that only its checksum shows it."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def copies(project: Path) -> list[Path]:
    """Return the store's copies of the photos."""
    return [path for path in each(project, "photos/*/*") if not path.suffix]


def damage_features(project: Path) -> None:
    """Damage a feature set, and let go of what was made of it, so that it is needed again."""
    flip_a_bit(each(project, "artefacts/features*/*/*.safetensors")[0])
    forget_pairs(project)


def forget_pairs(project: Path) -> None:
    """Remove all that was made of the features."""
    for kind in ("matcher.run", "geometric_verifier.run", "track_builder.run", "model.reconstruct"):
        shutil.rmtree(project / "artefacts" / kind)


def forget_features(project: Path) -> None:
    """Remove all that was made of the photos."""
    shutil.rmtree(project / "artefacts" / "features.extract.rootsift")
    forget_pairs(project)


def damage_a_needed_record(project: Path) -> None:
    """Damage a record that features, geometry and model are made with."""
    forget_features(project)
    each(project, "photos/*/*.json")[0].write_text("{")


def damage_a_needed_copy(project: Path) -> None:
    """Damage a photo whose features are to be made again."""
    forget_features(project)
    flip_a_bit(copies(project)[0])


SPOILT: dict[str, Callable[[Path], object]] = {
    "a record is damaged": lambda project: each(project, "photos/*/*.json")[0].write_text("{"),
    "a needed record is damaged": damage_a_needed_record,
    "a record is gone": lambda project: each(project, "photos/*/*.json")[0].unlink(),
    "a copy is damaged": lambda project: flip_a_bit(copies(project)[0]),
    "a needed copy is damaged": damage_a_needed_copy,
    "a copy is gone": lambda project: copies(project)[0].unlink(),
    "all photos are gone": lambda project: shutil.rmtree(project / "photos"),
    "a registration is damaged": lambda project: each(project, "projects/*/registrations/*")[0].write_text(
        ""
    ),
    "a feature set is damaged": damage_features,
    "the pairs of an image are damaged": lambda project: flip_a_bit(
        each(project, "artefacts/candidate*/*/*.safetensors")[0]
    ),
    "the tracks are damaged": lambda project: flip_a_bit(
        each(project, "artefacts/track*/*/*.safetensors")[0]
    ),
    "the tracks are cut off": lambda project: each(project, "artefacts/track*/*/*.safetensors")[
        0
    ].write_bytes(b""),
    "the model is damaged": lambda project: flip_a_bit(each(project, "artefacts/model*/*/*/0/*.bin")[0]),
    "the model's report is damaged": lambda project: each(project, "artefacts/model*/*/*/summary.json")[
        0
    ].write_text("{"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_spoilt_is_made_again(finished: tuple[Path, Finished], survey: Path, what: str) -> None:
    """`status` never fails; `resume` ends with the same tracks and a model of all photos."""
    SPOILT[what](survey)
    told = tiepoint("status", survey, "--json")
    resumed = tiepoint("resume", survey, "--json", *DEDICATED)

    assert told.returncode == 0, told.stderr
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.summary["tracks_sha256"] == finished[1].summary["tracks_sha256"]
    assert [model["registered_images"] for model in resumed.summary["models"]] == [11]
    assert resumed.summary["images"] == {"imported": 11, "failed": 0}


@pytest.fixture
def own_survey(photos: PhotoSet, tmp_path: Path) -> Path:
    """Return a folder with photos of its own and their project, imported."""
    shutil.copytree(photos("kermit"), tmp_path / "photos")
    folder = tmp_path / "project"
    tiepoint("run", tmp_path / "photos", "--project", folder, "--until", "import", *DEDICATED)
    return tmp_path


@pytest.mark.parametrize("original", ["gone", "changed"])
def test_a_photo_that_is_lost_for_good_is_left_out(own_survey: Path, original: str) -> None:
    """Its copy is damaged and the original no help: it is named, the rest is reconstructed."""
    photo, project = own_survey / "photos" / LOST, own_survey / "project"
    (copy,) = [path for path in copies(project) if path.read_bytes() == photo.read_bytes()]
    flip_a_bit(copy)
    photo.unlink() if original == "gone" else shutil.copy(photo.with_name("kermit004.jpg"), photo)
    resumed = tiepoint("resume", project, "--json", *DEDICATED)
    (failure,) = resumed.summary["failures"]

    assert resumed.returncode == 3
    assert (failure["name"], failure["reason"]) == (LOST, "lost")
    assert str(photo) in failure["cure"]
    assert resumed.summary["images"]["failed"] == 1
    assert resumed.summary["models"][0]["registered_images"] == 10
    assert tiepoint("status", project, "--json").returncode == 0


def test_what_killed_processes_left_is_swept_by_the_next_run(survey: Path) -> None:
    """Temporaries of long ago go; a young one may be somebody's who is at work."""
    old, young = (survey / "photos" / f".tmp-{name}" for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"half a photo")
    long_ago = time.time() - 2 * 3600
    os.utime(old, (long_ago, long_ago))
    tiepoint("resume", survey, *DEDICATED)

    assert not old.exists()
    assert young.exists()


def test_a_project_none_of_whose_photos_can_be_used_ends_with_a_reason(tmp_path: Path) -> None:
    """Done with failures, no model, and a sentence that says why."""
    (tmp_path / "photos").mkdir()
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / "photos" / name).write_text("This is not a picture.")
    done = tiepoint("run", tmp_path / "photos", "--project", tmp_path / "p", "--json", *DEDICATED)

    assert done.returncode == 1
    assert len(done.summary["failures"]) == 2
    assert done.summary["models"] == []
    assert done.summary["model_reason"] == "None of the 2 photos could be used."

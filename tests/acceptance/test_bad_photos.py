"""A folder as people have them: good photos, broken ones, odd formats, odd names, duplicates."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.acceptance.conftest import Finished, tiepoint
from tests.conftest import PhotoSet


@pytest.fixture(scope="module")
def mixed(photos: PhotoSet, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Run kermit's photos with everything odd beside them."""
    folder = tmp_path_factory.mktemp("photos")
    kermit = sorted(photos("kermit").iterdir())
    for path in kermit:
        shutil.copy(path, folder)
    (folder / "empty.jpg").write_bytes(b"")
    (folder / "cut off.jpg").write_bytes(kermit[0].read_bytes()[:3000])
    (folder / "text.png").write_text("This is not a picture.")
    (folder / "notes.txt").write_text("Neither a photo nor a failure.")
    shutil.copy(kermit[1], folder / "again.jpg")
    picture = Image.open(kermit[2])
    picture.convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    gray = np.asarray(Image.open(kermit[3]).convert("L"))
    Image.fromarray(gray.astype(np.uint16) * 16).save(folder / "sixteen.png")
    rgba = Image.open(kermit[4]).convert("RGBA")
    rgba.putalpha(128)
    rgba.save(folder / "alpha.png")
    (folder / "Süd Ansicht").mkdir()
    Image.open(kermit[5]).save(folder / "Süd Ansicht" / "Größe überall.jpg", quality=96)
    project = tmp_path_factory.mktemp("project")
    return tiepoint("run", folder, "--project", project, "--profile", "dedicated", "--json")


def test_the_unusable_files_are_named_with_cause_and_cure(mixed: Finished) -> None:
    """Three files fail, each with its own reason; the exit code says so."""
    reasons = {failure["name"]: failure["reason"] for failure in mixed.summary["failures"]}

    assert mixed.returncode == 3
    assert reasons == {"empty.jpg": "empty_file", "cut off.jpg": "truncated", "text.png": "not_an_image"}
    assert all(failure["cause"] and failure["cure"] for failure in mixed.summary["failures"])


def test_everything_else_is_reconstructed(mixed: Finished) -> None:
    """CMYK, 16 bit, alpha and odd names are photos like the others."""
    registered = set(mixed.summary["models"][0]["images"])

    assert mixed.summary["images"] == {"imported": 15, "failed": 3}
    assert {"cmyk.jpg", "sixteen.png", "alpha.png", "Süd Ansicht/Größe überall.jpg"} <= registered
    assert mixed.summary["jobs"]["failed"] == 3


def test_one_content_under_two_names_is_registered_once(mixed: Finished) -> None:
    """The smaller name stands for both."""
    registered = mixed.summary["models"][0]["images"]

    assert "again.jpg" in registered
    assert "kermit001.jpg" not in registered


def test_running_again_tries_what_had_failed(photos: PhotoSet, tmp_path: Path) -> None:
    """A good file in the place of a broken one is taken by `run` as it is by `resume`."""
    folder = tmp_path / "photos"
    folder.mkdir()
    first, second = sorted(photos("kermit").iterdir())[:2]
    shutil.copy(first, folder)
    (folder / "broken.jpg").write_bytes(b"")
    command = ("run", folder, "--project", tmp_path / "p", "--until", "import", "--profile", "dedicated")
    broken = tiepoint(*command, "--json")
    shutil.copy(second, folder / "broken.jpg")
    mended = tiepoint(*command, "--json")

    assert (broken.returncode, broken.summary["images"]) == (3, {"imported": 1, "failed": 1})
    assert (mended.returncode, mended.summary["images"]) == (0, {"imported": 2, "failed": 0})

"""The reservation covers the truth: the mapper's measured peak stays below its charge."""

from pathlib import Path

import pytest
from PIL import Image

from tasks.model_memory import model_estimate
from tasks.reconstruction import ModelPayload, mapping_size
from tests.acceptance.measured_peak import peak_bytes
from tests.conftest import PhotoSet
from tests.plain_runner import run_plain
from tests.unit.tasks.mapped_scene import build_verified_scene
from tests.unit.tasks.scene_store import SceneStore


def assert_covered(scene: SceneStore) -> None:
    """Map the scene in a fresh process and compare its peak with its charge."""
    estimate = model_estimate(mapping_size(scene.store, scene.project))
    payload = ModelPayload(project=scene.project.id)

    peak = peak_bytes("tasks.reconstruction", estimate, [payload], estimate.cpu_threads, scene.store.root)

    assert 1 << 20 < peak <= estimate.memory_bytes(batch=1)


@pytest.mark.parametrize(("images", "points"), [(3, 150), (8, 1000), (8, 8192), (24, 2000)])
def test_mapping_stays_within_its_reservation(tmp_path: Path, images: int, points: int) -> None:
    """Every feature of every image becomes an observation: the most there can be."""
    assert_covered(build_verified_scene(tmp_path, images=images, points=points))


def test_colouring_a_large_photo_stays_within_the_reservation(tmp_path: Path) -> None:
    """A progressive JPEG of 48 megapixels is decoded for the points it shows."""
    scene = build_verified_scene(tmp_path, images=3, points=150)
    photo = tmp_path / "large.jpg"
    Image.effect_noise((8000, 6000), 40).convert("RGB").save(photo, progressive=True, subsampling=0)
    content, record = scene.contents[0], scene.store.photo_record(scene.contents[0])
    scene.store.discard_photo(content)
    scene.store.link_photo(content, photo)
    scene.store.record_photo(content, record.model_copy(update={"width_px": 8000, "height_px": 6000}))

    assert_covered(scene)


def test_a_real_project_stays_within_its_reservation(photos: PhotoSet, tmp_path: Path) -> None:
    """The small set kermit, with all that real matches bring."""
    result = run_plain(photos("kermit"), tmp_path)

    assert_covered(SceneStore(store=result.store, project=result.project, contents=()))

"""Tests of the PLY export."""

from pathlib import Path

import pytest

from tasks.errors import ProjectError
from tasks.exports.ply import export_ply
from tests.unit.tasks.mapped_scene import POINTS, build_verified_scene, reconstruct
from tests.unit.tasks.scene_store import SceneStore

BYTES_PER_POINT = 3 * 4 + 3


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> SceneStore:
    """Build a finished project with one model."""
    scene = build_verified_scene(tmp_path_factory.mktemp("store"), images=4)
    reconstruct(scene)
    return scene


def test_every_point_is_in_the_file(scene: SceneStore, tmp_path: Path) -> None:
    """A binary little-endian header with the count, then 15 bytes per point."""
    target = tmp_path / "new" / "points.ply"

    assert export_ply(scene.store, scene.project.id, target) == [target]

    header, _, body = target.read_bytes().partition(b"end_header\n")
    assert b"format binary_little_endian 1.0" in header
    assert f"element vertex {POINTS}".encode() in header
    assert len(body) == POINTS * BYTES_PER_POINT
    assert list(target.parent.iterdir()) == [target]


def test_an_existing_file_is_refused(scene: SceneStore, tmp_path: Path) -> None:
    """The user's file stays as it is."""
    target = tmp_path / "points.ply"
    target.write_text("mine")

    with pytest.raises(ProjectError, match="exists"):
        export_ply(scene.store, scene.project.id, target)
    assert target.read_text() == "mine"


def test_a_project_without_a_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    """The message says why there is no model."""
    scene = build_verified_scene(tmp_path / "store", images=2)
    reconstruct(scene)

    with pytest.raises(ProjectError, match="A model needs at least 3 photos"):
        export_ply(scene.store, scene.project.id, tmp_path / "points.ply")

"""Tests of the COLMAP export: what pycolmap opens, and reconstructs from."""

from pathlib import Path

import pycolmap
import pytest

from tasks.errors import ProjectError
from tasks.exports.colmap import ColmapExport, export_colmap
from tasks.model_report import ModelSummary
from tasks.parameters import FeatureParameters, ProjectParameters
from tasks.reconstruction import model_summaries
from tests.unit.tasks.mapped_scene import IMAGES, POINTS, build_verified_scene, reconstruct
from tests.unit.tasks.scene_store import SceneStore


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> SceneStore:
    """Build a finished project whose first two photos have bytes, one in a linked file."""
    scene = build_verified_scene(tmp_path_factory.mktemp("store"))
    for content in scene.contents[:2]:
        photo = tmp_path_factory.mktemp("photos") / "photo.jpg"
        photo.write_bytes(content.encode())
        scene.store.link_photo(content, photo)
    reconstruct(scene)
    return scene


@pytest.fixture(scope="module")
def exported(scene: SceneStore, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ColmapExport]:
    """Export it once."""
    target = tmp_path_factory.mktemp("export") / "colmap"
    return target, export_colmap(scene.store, scene.project.id, target)


@pytest.fixture
def summary(scene: SceneStore) -> ModelSummary:
    """Return the figures of its one model."""
    return model_summaries(scene.store, scene.project)[0]


def assert_same_model(model: pycolmap.Reconstruction, summary: ModelSummary) -> None:
    """Compare counts and errors."""
    assert model.num_reg_images() == summary.registered_images
    assert model.num_points3D() == summary.points
    assert model.compute_num_observations() == summary.observations
    assert model.compute_mean_reprojection_error() == pytest.approx(
        summary.mean_reprojection_error_px, abs=1e-4
    )


def test_the_layout_is_colmaps(exported: tuple[Path, ColmapExport]) -> None:
    """Images, database and one model in both forms, and nothing else."""
    folder, result = exported

    assert sorted(path.name for path in folder.iterdir()) == ["database.db", "images", "sparse"]
    names = ("cameras", "frames", "images", "points3D", "rigs")
    expected = sorted(f"{name}.{form}" for name in names for form in ("bin", "txt"))
    assert sorted(path.name for path in (folder / "sparse" / "0").iterdir()) == expected
    assert (result.images, result.models) == (IMAGES, 1)


@pytest.mark.parametrize("form", ["binary", "text"])
def test_pycolmap_reads_the_summarised_model(
    exported: tuple[Path, ColmapExport], summary: ModelSummary, form: str
) -> None:
    """Both forms hold the counts and the reprojection error of the project's summary."""
    model = pycolmap.Reconstruction()
    read = model.read_binary if form == "binary" else model.read_text
    read(exported[0] / "sparse" / "0")

    assert_same_model(model, summary)


def test_the_database_holds_all_features_and_pairs(exported: tuple[Path, ColmapExport]) -> None:
    """Keypoints, descriptors, matches and geometries of every image and pair."""
    with pycolmap.Database.open(exported[0] / "database.db") as database:
        assert database.num_images() == IMAGES
        assert database.num_keypoints() == database.num_descriptors() == IMAGES * POINTS
        assert database.num_matched_image_pairs() == IMAGES * (IMAGES - 1) // 2
        assert database.num_verified_image_pairs() == IMAGES * (IMAGES - 1) // 2
        assert database.num_inlier_matches() <= database.num_matches()


def test_colmap_reconstructs_from_the_database(
    exported: tuple[Path, ColmapExport], summary: ModelSummary, tmp_path: Path
) -> None:
    """COLMAP's own mapper with its defaults comes to the same scene."""
    options = pycolmap.IncrementalPipelineOptions()
    options.min_model_size = 3
    models = pycolmap.incremental_mapping(
        exported[0] / "database.db", exported[0] / "images", tmp_path, options
    )

    assert_same_model(models[0], summary)


def test_image_ids_agree_between_database_and_model(exported: tuple[Path, ColmapExport]) -> None:
    """Both number the images by their sorted names."""
    model = pycolmap.Reconstruction(exported[0] / "sparse" / "0")
    with pycolmap.Database.open(exported[0] / "database.db") as database:
        in_database = {image.image_id: image.name for image in database.read_all_images()}

    assert in_database == {image_id: image.name for image_id, image in model.images.items()}
    assert list(in_database.values()) == sorted(in_database.values())


def test_photos_are_copied_under_their_names(exported: tuple[Path, ColmapExport], scene: SceneStore) -> None:
    """What is there is copied, what is gone is named; the rest of the export is whole."""
    folder, result = exported

    photo = folder / "images" / "000.jpg"
    assert photo.read_bytes() == scene.contents[0].encode()
    assert not photo.is_symlink()
    assert result.missing_photos == tuple(f"{number:03}.jpg" for number in range(2, IMAGES))


def test_photos_can_be_linked_instead(scene: SceneStore, tmp_path: Path) -> None:
    """A link leads to the photo itself."""
    export_colmap(scene.store, scene.project.id, tmp_path / "export", link_photos=True)

    photo = tmp_path / "export" / "images" / "001.jpg"
    assert photo.is_symlink()
    assert photo.resolve() == scene.store.photo_path(scene.contents[1]).resolve()


def test_orb_descriptors_are_left_out(tmp_path: Path) -> None:
    """COLMAP knows no binary descriptor; keypoints, matches and the model are there all the same."""
    parameters = ProjectParameters(features=FeatureParameters(extractor="orb"))
    scene = build_verified_scene(tmp_path / "store", images=3, parameters=parameters)
    reconstruct(scene)

    export_colmap(scene.store, scene.project.id, tmp_path / "export")

    with pycolmap.Database.open(tmp_path / "export" / "database.db") as database:
        assert database.num_descriptors() == 0
        assert database.num_keypoints() == 3 * POINTS


def test_a_project_without_a_model_exports_its_matches(tmp_path: Path) -> None:
    """No sparse folder, but a database that others may map with their own settings."""
    scene = build_verified_scene(tmp_path / "store", images=2)
    reconstruct(scene)

    result = export_colmap(scene.store, scene.project.id, tmp_path / "export")

    assert result.models == 0
    assert not (tmp_path / "export" / "sparse").exists()
    assert (tmp_path / "export" / "database.db").is_file()


def test_an_unfinished_project_is_refused(tmp_path: Path) -> None:
    """Nothing is written before the model stage has run."""
    scene = build_verified_scene(tmp_path / "store", images=2)

    with pytest.raises(ProjectError, match="has no model yet"):
        export_colmap(scene.store, scene.project.id, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_an_unknown_project_is_refused(tmp_path: Path) -> None:
    """The message names the project."""
    scene = build_verified_scene(tmp_path / "store", images=2)

    with pytest.raises(ProjectError, match="no project other"):
        export_colmap(scene.store, "other", tmp_path / "export")


def test_a_folder_with_content_is_refused(scene: SceneStore, tmp_path: Path) -> None:
    """An export overwrites nothing."""
    (tmp_path / "mine").write_text("mine")

    with pytest.raises(ProjectError, match="is not empty"):
        export_colmap(scene.store, scene.project.id, tmp_path)

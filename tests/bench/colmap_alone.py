"""Runs COLMAP's own pipeline over a folder of photos, with its defaults on the CPU; prints its models.

``python -m tests.bench.colmap_alone PHOTOS NEW_FOLDER``
"""

import json
import sys
from pathlib import Path
from typing import Any

import pycolmap


def reconstruct(photos: Path, folder: Path) -> list[dict[str, Any]]:
    """Return the models of all photos, matched exhaustively, the largest first."""
    folder.mkdir()
    database = folder / "database.db"
    pycolmap.extract_features(database, photos, device=pycolmap.Device.cpu)
    pycolmap.match_exhaustive(database, device=pycolmap.Device.cpu)
    models = pycolmap.incremental_mapping(database, photos, folder / "sparse")
    shown = [
        {
            "registered_images": model.num_reg_images(),
            "points": model.num_points3D(),
            "mean_reprojection_error_px": model.compute_mean_reprojection_error(),
            "mean_track_length": model.compute_mean_track_length(),
        }
        for model in models.values()
    ]
    return sorted(shown, key=lambda model: -model["registered_images"])


if __name__ == "__main__":
    print(json.dumps({"models": reconstruct(Path(sys.argv[1]), Path(sys.argv[2]))}))  # noqa: T201 - the result

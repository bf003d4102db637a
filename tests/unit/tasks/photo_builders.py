"""Builds small photos and imports them, for the tests of the stages."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from governor.model import Grant
from tasks.import_images import ImportPayload, run
from tasks.kind import Outcome
from tasks.store import Store

AMPLE = Grant(batch=32, cpu_threads=1, memory_bytes=1 << 33)


def textured(width_px: int, height_px: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return a gray picture with blobs of several sizes, which every extractor finds features in."""
    random = np.random.default_rng(seed)
    total = np.zeros((height_px, width_px), dtype=np.float64)
    for cell_px in (4, 9, 20):
        shape = (height_px // cell_px + 1, width_px // cell_px + 1)
        cells = random.uniform(0.0, 85.0, size=shape)
        total += np.kron(cells, np.ones((cell_px, cell_px)))[:height_px, :width_px]
    return total.astype(np.uint8)


def encoded(
    pixels: NDArray[Any], image_format: str = "JPEG", mode: str | None = None, **options: Any
) -> bytes:
    """Return a picture as the bytes of an image file."""
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, image_format, **options)
    return file.getvalue()


def store_at(folder: Path) -> Store:
    """Return a fresh store that may import from ``folder``."""
    store = Store(folder / "store", [folder])
    store.create()
    return store


def import_photo(store: Store, source: Path, *, name: str | None = None, link: bool = False) -> Outcome:
    """Import one file into the project "survey"."""
    payload = ImportPayload(project="survey", name=name or source.name, source=str(source), link=link)
    (outcome,) = run([payload], AMPLE, store)
    return outcome


def photo_in_store(store: Store, folder: Path, content: bytes, name: str = "photo.jpg") -> str:
    """Write an image file, import it and return its content hash."""
    source = folder / name
    source.write_bytes(content)
    import_photo(store, source)
    return store.project("survey").registrations()[name]

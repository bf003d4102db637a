"""Decides when an export may be written to a folder, and makes it appear there whole."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.errors import ProjectError


@contextmanager
def fresh_folder(target: Path) -> Iterator[Path]:
    """Yield a folder beside ``target`` to fill; it becomes ``target`` when the block ends well.

    Raises:
        ProjectError: ``target`` holds something, is a file, or cannot be written.
    """
    if target.exists() and not target.is_dir():
        raise ProjectError(f"{target} is a file; an export needs a folder of its own.")
    if target.is_dir() and any(target.iterdir()):
        raise ProjectError(f"{target} is not empty; choose a new folder, nothing is ever overwritten.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ProjectError(f"{target.parent} cannot be written: {error.strerror}") from error
    try:
        # The temporary's folder is private; an export is like any folder the user makes.
        staging.chmod(0o755)
        yield staging
        staging.rename(target)
    except OSError as error:
        raise ProjectError(f"the export to {target} failed: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)

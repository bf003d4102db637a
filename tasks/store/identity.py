"""Holds what a store calls itself, so that two machines can tell whether they see the same one.

A path cannot tell: one share may be mounted in different places, two disks in
the same place of two machines, and where a share was mounted an empty folder
is left when it goes.
"""

import json
import os
import uuid
from pathlib import Path

from tasks.errors import CorruptArtefactError, StoreError
from tasks.store.publication import (
    cause_of,
    plain_store_errors,
    publish_file,
    sync_folder,
    write_bytes,
)

FILE_NAME = "store.json"


def identity_of(root: Path) -> str:
    """Return the identity of the store in a folder that exists; given at the first call, for good.

    Raises:
        StoreError: the folder is not there, cannot be written, or the identity is damaged.
    """
    path = root / FILE_NAME
    with plain_store_errors(root):
        if not os.path.lexists(path):
            text = json.dumps({"store": str(uuid.uuid4())})
            publish_file(path, lambda file: write_bytes(file, text.encode()))
            sync_folder(root)
    return _read(path)


class SameStore:
    """Tells, as often as one likes, whether a folder still is the same store; for one thread.

    What has been read once is believed as long as the file that says it has not changed: one stat.
    """

    def __init__(self, root: Path, store_id: str = "") -> None:
        self.expected_id = store_id
        """What the store must call itself; "" = not known, then nothing is checked."""
        self._root = root
        self._path = str(root / FILE_NAME)  # Looked at for every outcome: a Path takes five times as long.
        self._seen: tuple[int, ...] = ()
        self._seen_id = ""

    def check(self) -> None:
        """Check that the folder is the store of the expected identity.

        Raises:
            StoreError: it is gone, was replaced by an empty folder (a share that is not mounted any
                more), or is another store.
        """
        if not self.expected_id:
            return
        mark = self._mark()
        if mark != self._seen:
            self._seen_id, self._seen = _read(self._root / FILE_NAME), mark
        if self._seen_id != self.expected_id:
            raise StoreError(f"{self._root} is now another project store than when this worker started")

    def _mark(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - see _path
        except OSError as error:
            raise self._gone(error) from error
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _gone(self, error: OSError) -> StoreError:
        if not isinstance(error, FileNotFoundError):
            return StoreError(f"{self._root} cannot be used: {cause_of(error)}")
        if not self._root.is_dir():
            return StoreError(f"the project store {self._root} is gone")
        return StoreError(f"{self._root} is no project store any more: it has lost its {FILE_NAME}")


def _read(path: Path) -> str:
    try:
        with plain_store_errors(path):
            return str(json.loads(path.read_text(encoding="utf-8"))["store"])
    except (CorruptArtefactError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path} is damaged; delete it while nothing runs") from error

"""Holds what a store calls itself, so that two machines can tell whether they see the same one.

A path cannot tell: one share may be mounted in different places, and two
disks in the same place of two machines.
"""

import json
import uuid
from pathlib import Path

from tasks.errors import StoreError
from tasks.store.publication import plain_store_errors, publish_file, sync_folder, write_bytes

FILE_NAME = "store.json"


def identity_of(root: Path) -> str:
    """Return the identity of the store in a folder that exists; given at the first call, for good.

    Raises:
        StoreError: the folder is not there, cannot be written, or the identity is damaged.
    """
    path = root / FILE_NAME
    with plain_store_errors(root):
        if not path.is_file():
            text = json.dumps({"store": str(uuid.uuid4())})
            publish_file(path, lambda file: write_bytes(file, text.encode()))
            sync_folder(root)
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["store"])
        except (ValueError, TypeError, KeyError) as error:
            raise StoreError(f"{path} is damaged; delete it while nothing runs") from error

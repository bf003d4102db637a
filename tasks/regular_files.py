"""Decides that only regular files are read as photos: a pipe or a device would block or never end."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


class NotRegularError(OSError):
    """The path leads to something that is not a regular file: a folder, pipe, socket or device."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not a regular file")
        self.strerror = "it is not a regular file"


def is_regular(path: Path) -> bool:
    """Tell whether a path, symbolic links followed, is a regular file that can be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        NotRegularError: it is something else.
        OSError: it cannot be opened.
    """
    # Asked before, because opening alone can move a device; and after, because it may have been replaced.
    if not stat.S_ISREG(path.stat().st_mode):
        raise NotRegularError(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(path)
    return os.fdopen(descriptor, "rb")

"""Holds the one way to wake the node's event loop from anywhere.

``hub.call_soon`` from a timer or another thread runs only after the *next*
poll returns, which may be seconds away; a readable pipe makes that poll return
at once.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Doorbell:
    """A pipe that rings in the event loop; :meth:`ring` may be called from any thread."""

    def __init__(self, on_ring: Callable[[], None]) -> None:
        self._on_ring = on_ring
        self._is_rung = False
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)

    def register(self, hub: Any) -> None:
        """Listen in this event loop."""
        hub.add_reader(self._read_fd, self._answer)

    def ring(self) -> None:
        """Wake the loop; ringing twice before it answers is once."""
        if self._is_rung:
            return
        self._is_rung = True
        with suppress(BlockingIOError, OSError):  # A full pipe rings already; a closed one has no listener.
            os.write(self._write_fd, b"!")

    def _answer(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_fd, 4096)
        # After the pipe is empty, so that a bell that is rung is always readable; before the answer,
        # so that what comes up meanwhile rings again.
        self._is_rung = False
        self._on_ring()

    def close(self) -> None:
        """Close the pipe."""
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)

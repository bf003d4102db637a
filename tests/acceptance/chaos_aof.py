"""Reads the transactions of a server's append-only file, while the server goes on writing it.

A transaction is what the server did in one step: a script, a MULTI, or one
command. What a killed server has left of one at the end of the file is none.
"""

from collections.abc import Iterator
from pathlib import Path

Command = tuple[bytes, ...]
"""A name in capitals, and its arguments."""
Transaction = list[Command]


class AppendOnlyFile:
    """One file, read on from where the last call came to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def skip(self) -> None:
        """Leave out what has been written so far."""
        for _ in self.transactions():
            pass

    def transactions(self) -> Iterator[Transaction]:
        """Yield every transaction that has been completed since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        place = 0
        while found := _transaction(text, place):
            place, transaction = found
            yield transaction
        self._read_bytes += place


def _transaction(text: bytes, place: int) -> tuple[int, Transaction] | None:
    """Return the place behind a transaction, and what it did; None where it is not complete."""
    done: Transaction = []
    while found := _command(text, place):
        place, command = found
        if command[0] == b"EXEC":
            return place, done[1:]
        done.append(command)
        if done[0][0] != b"MULTI":
            return place, done
    return None


def _command(text: bytes, place: int) -> tuple[int, Command] | None:
    found = _number(text, place)
    if found is None:
        return None
    place, count = found
    words: list[bytes] = []
    for _ in range(count):
        found = _number(text, place)
        if found is None or found[0] + found[1] + 2 > len(text):
            return None
        place, length = found
        words.append(text[place : place + length])
        place += length + 2
    return place, (words[0].upper(), *words[1:])


def _number(text: bytes, place: int) -> tuple[int, int] | None:
    r"""Read ``*3\r\n`` or ``$12\r\n``."""
    end = text.find(b"\r\n", place)
    return None if end < 0 else (end + 2, int(text[place + 1 : end]))

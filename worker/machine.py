"""Holds which workers run on this machine: a folder with one locked file for each.

The kernel drops a file's lock with the process, however that ends, so a file
that can be locked belongs to nobody. Works for any number of queues and users.
Whoever cannot read or write the folder starts no worker: memory fails closed.
Does not decide what fits (:mod:`worker.partitions`), and does not see into
containers that have a lock folder of their own.
"""

import fcntl
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from pydantic import TypeAdapter, ValidationError

from worker import keys
from worker.bounds import Bounds, find_bounds
from worker.partitions import Partition, free_name, refusal
from worker.settings import Settings, WrongSettingError

_SHARED = 0o1777
"""Everybody may add a file, nobody may remove another's."""
_PLACES = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - the same for every user, unlike TMPDIR
_FOLDER_NAME = "tiepoint-workers"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""The same in all containers of a machine."""
SUFFIX = ".worker"
DEAD_SUFFIX = ".dead"
"""Of the file of a dead worker, kept for whoever gives back what it held (:mod:`worker.predecessors`)."""
PROMISE_OFFSET = 4096
"""Where a worker's file says what is promised of the free memory; before that stands its partition."""
PROMISE_BYTES = 20
"""As many digits as 2^64 - 1 has."""
NO_PROMISE = b" " * PROMISE_BYTES
"""Not told; there from the start, so that a disk that is full later is no matter."""
_PARTITION = TypeAdapter(Partition)
_WHOLE_MACHINE = Partition(name="unknown", queue="", cgroups=None)
"""Stands for a worker whose file cannot be read: it may have promised everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A worker's place on its machine, held until its process ends."""

    settings: Settings
    """Those it was asked for with, and the name it has."""
    path: Path
    """The locked file."""
    descriptor: int
    """Of that file. Nobody closes it: the kernel does. Closed in the processes we start."""
    partition: Partition
    """What the file says."""
    memory_cgroups: frozenset[str]
    """Keys of the cgroups that limit its memory."""


def take_place(settings: Settings) -> Place:
    """Take a place on this machine for the life of this process.

    A name that was not chosen gets a number where another worker of the
    same queue has it.

    Raises:
        WrongSettingError: the worker does not fit beside those that run, its
            name is taken, or the lock folder cannot be used.
    """
    bounds = find_bounds()
    with _opened_folder(settings) as folder:
        running = _running(folder)
        settings = _named(settings, running)
        _check(settings, bounds, running)
        path, partition = folder / f"{uuid4().hex}{SUFFIX}", _partition(settings, bounds)
        return Place(
            settings=settings,
            path=path,
            descriptor=_locked_file(path, partition),
            partition=partition,
            memory_cgroups=bounds.memory_cgroups(),
        )


def check_room(settings: Settings) -> None:
    """Check that a worker could be started, before anything else is.

    Raises:
        WrongSettingError: as :func:`take_place`.
    """
    bounds = find_bounds()
    with _opened_folder(settings) as folder:
        running = _running(folder)
        _check(_named(settings, running), bounds, running)


def workers_here(settings: Settings) -> list[Partition]:
    """Return the workers that run on this machine, whichever queues they serve.

    Raises:
        WrongSettingError: the lock folder cannot be used.
    """
    with _opened_folder(settings) as folder:
        return _running(folder)


def default_lock_folder() -> Path:
    """Return the folder that all users of this machine share, whoever asks."""
    for place in _PLACES[:-1]:
        with suppress(OSError):
            if stat.S_IMODE(place.stat().st_mode) & _SHARED == _SHARED:
                return place / _FOLDER_NAME
    return _PLACES[-1] / _FOLDER_NAME


def _named(settings: Settings, running: list[Partition]) -> Settings:
    if settings.is_named:
        return settings
    name = free_name(settings.name, running, _queue(settings))
    return settings if name == settings.name else settings.model_copy(update={"name": name})


def _check(settings: Settings, bounds: Bounds, running: list[Partition]) -> None:
    wanted = _partition(settings, bounds)
    for machine in bounds.machines():
        if reason := refusal(machine, running, wanted):
            raise WrongSettingError(reason)
    if any((other.name, other.queue) == (wanted.name, wanted.queue) for other in running):
        raise WrongSettingError(
            f"a worker called `{wanted.name}` already serves this queue on this machine; "
            "give this one another --name, or none"
        )


def _partition(settings: Settings, bounds: Bounds) -> Partition:
    return Partition(
        name=settings.name,
        queue=_queue(settings),
        memory_bytes=bounds.memory_bytes(settings.memory_bytes),
        cpus=bounds.cpus(settings.cpus),
        cgroups=bounds.cgroups(),
        incarnation=keys.new_incarnation(settings.name),
    )


def _queue(settings: Settings) -> str:
    # A digest: the URL may hold a password, and others may read the file.
    return hashlib.sha256(settings.broker_url.encode()).hexdigest()[:16]


@contextmanager
def held_folder(folder: Path, tries: int | None = None) -> Iterator[None]:
    """Hold a lock folder itself for the block: of two that look and then write, one does after the other.

    Waits for as long as another holds it, or for so many milliseconds.

    Raises:
        OSError: it cannot be opened, or another held it all the time.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, tries)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, tries: int | None) -> None:
    if tries is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    for left in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left == 0:
                raise
            time.sleep(0.001)
        else:
            return


@contextmanager
def _opened_folder(settings: Settings) -> Iterator[Path]:
    """Make the folder where it is missing, and hold it for the block."""
    folder = settings.lock_folder or default_lock_folder()
    try:
        _make(folder)
        with held_folder(folder):
            yield folder
    except OSError as error:
        raise WrongSettingError(
            f"cannot tell which workers run on this machine: {folder}: {error.strerror or error}; "
            "let all who run workers here write to it, or name another folder with TIEPOINT_LOCK_FOLDER"
        ) from error


def _make(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(_SHARED)  # Whatever the umask of the first user is.


def _running(folder: Path) -> list[Partition]:
    """Return the workers that run; what dead ones have left is put aside, where it is ours."""
    found = (read_partition(path) for path in sorted(folder.glob(f"*{SUFFIX}")))
    return [worker[0] for worker in found if worker is not None]


def read_partition(path: Path, promise_bytes: int = 0) -> tuple[Partition, bytes] | None:
    """Return a worker's partition, and that much of what it says of its promises; None: it is dead.

    A dead worker's file is put aside. Whoever holds the folder meets no file that is not locked yet.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        partition = parsed_partition(descriptor) or _WHOLE_MACHINE
        return partition, os.pread(descriptor, promise_bytes, PROMISE_OFFSET)
    else:
        with suppress(OSError):  # Another user's; it harms nobody.
            path.rename(path.with_suffix(DEAD_SUFFIX))
        return None
    finally:
        os.close(descriptor)


def parsed_partition(descriptor: int) -> Partition | None:
    """Return what a worker's file says of it; None where that is nothing yet, or makes no sense.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return _PARTITION.validate_json(os.pread(descriptor, PROMISE_OFFSET, 0).rstrip(b"\0"))
    except ValidationError:
        return None


def file_identity(descriptor: int) -> str:
    """Return what no copy of a file has, nor the same file where another machine sees it (or a later boot).

    The number of its device is left out: it changes when a container is started again.

    Raises:
        OSError: the kernel does not say.
    """
    return f"{_BOOT_ID.read_text().strip()}:{os.fstat(descriptor).st_ino}"


def _locked_file(path: Path, partition: Partition) -> int:
    """Write and lock our file; the folder is held, so nobody sees it before it is locked."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # First of all: others must be able to see whether it is locked, also if we get no further.
        os.fchmod(descriptor, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, _PARTITION.dump_json(replace(partition, file=file_identity(descriptor))))
        os.pwrite(descriptor, NO_PROMISE, PROMISE_OFFSET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

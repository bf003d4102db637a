"""Checks this machine, as a worker or a client on it would meet it.

Each check is a function from the settings to one finding. Does not cover the
queue (:mod:`worker.queue_checks`).
"""

from collections.abc import Callable
from pathlib import Path

from governor.planning.cell import READY_AT
from governor.wording import in_binary_units
from tasks.errors import StoreError
from tasks.store import Store
from tasks.store.identity import FILE_NAME
from tasks.store.probe import find_fault, free_bytes
from worker.findings import Finding, fine, problem, warning
from worker.fingerprint import digest, fingerprint_of
from worker.machine import workers_here
from worker.node import Node
from worker.planning_settings import MarginLearning
from worker.profile_file import ProfileFileError, read_profiles
from worker.settings import Settings, WrongSettingError
from worker.this_machine import read_this_machine

LITTLE_SPACE_BYTES = 1 << 30
_OWN_NAMES = ("governor", "tasks", "worker")
_HOME = Path(__file__).resolve().parent.parent

Check = Callable[[Settings], Finding]


def check_store(settings: Settings) -> Finding:
    """Check that the store is there, can be written, and has space left."""
    if "store" not in settings.model_fields_set:
        return fine("store", "none is named (--store, TIEPOINT_STORE): not looked at")
    root = settings.store
    if not root.is_dir():
        return problem(
            "store", f"{root} is not a folder on this machine", "mount it, or name another with --store"
        )
    try:
        fault = find_fault(root, identity_if_any(root) or "")
    except StoreError as error:
        return problem("store", str(error).rstrip("."), "see to that file while nothing runs")
    if fault is not None:
        return problem("store", fault.cause, fault.cure)
    return of_space(root, free_bytes(root))


def of_space(root: Path, left_bytes: int | None) -> Finding:
    """Return what is to be said of a store that has so much space left."""
    if left_bytes is None:
        return fine("store", f"{root} can be written; how much is free it does not say")
    told = f"{root} can be written, {in_binary_units(left_bytes)} are free"
    if left_bytes < LITTLE_SPACE_BYTES:
        return warning("store", told, "make space: jobs wait while a disk is full")
    return fine("store", told)


def check_planning(settings: Settings) -> Finding:
    """Check that durations are planned by profiles of this hardware, where they are planned at all."""
    planning = settings.planning
    if planning is None:
        return fine("planning", "off")
    try:
        profiles = read_profiles(planning.profiles)
    except ProfileFileError as error:
        return problem("planning", str(error), "measure them: tiepoint calibrate")
    here = fingerprint_of(Node(settings.model_copy(update={"planning": None})))
    there = profiles.hardware
    told = f"plans start at {planning.margin_percent} %"
    if planning.margin_learning is not None:
        told += f"; {_of_learning(planning.margin_learning)}; this hardware is {digest(here)}"
    differs = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if differs:
        others = ", ".join(
            f"{name.replace('_', ' ')} {there.get(name, 'unknown')}, here {here.get(name, 'unknown')}"
            for name in differs
        )
        told += f"; its profiles were measured elsewhere ({others})"
        return warning("planning", told, "measure them here: tiepoint calibrate")
    unverified = sorted(profiles.kinds - profiles.measured_kinds)
    if unverified:
        told += f"; too little was measured of {', '.join(unverified)}"
        return warning("planning", told, "measure for longer: tiepoint calibrate --minutes 60")
    return fine("planning", told)


def _of_learning(learning: MarginLearning) -> str:
    least, most = learning.min_factor_percent, learning.max_factor_percent
    return (
        f"factors are learned between {least} and {most} % and fall only after {learning.min_observations} "
        f"batches; durations are believed from {READY_AT} of a cell on"
    )


def check_lock_folder(settings: Settings) -> Finding:
    """Check that the workers of this machine can find each other, and tell which there are."""
    try:
        found = workers_here(settings)
    except WrongSettingError as error:
        told, _, cure = str(error).partition("; ")
        return problem("lock folder", told, cure)
    names = ", ".join(sorted(worker.name for worker in found))
    return fine("lock folder", f"workers on this machine: {names or 'none'}")


def check_import_names(_settings: Settings) -> Finding:
    """Check that nothing in the current folder hides our packages from ``celery -A worker.app``."""
    here = Path.cwd()
    if here == _HOME:
        return fine("import names", "nothing here hides Tiepoint's own modules")
    hiding = [
        path.name for name in _OWN_NAMES for path in (here / f"{name}.py", here / name) if path.exists()
    ]
    if not hiding:
        return fine("import names", "nothing here hides Tiepoint's own modules")
    return warning(
        "import names",
        f"`celery -A worker.app` would import {', '.join(hiding)} of this folder instead of Tiepoint's",
        "use `tiepoint worker`, or start it elsewhere",
    )


def check_machine(settings: Settings) -> Finding:
    """Check that a worker could start here, and tell what it would have."""
    try:
        machine = read_this_machine(settings)
    except WrongSettingError as error:
        return problem("machine", str(error), "`tiepoint node` shows what is read on this machine")
    offer = machine.offers[settings.profile]
    if offer.problems:
        return problem(
            "machine", "; ".join(offer.problems), "raise the limit of this container, or use a larger machine"
        )
    limit = machine.limits.get("memory_limited_by")
    limited = f", limited by {limit}" if limit else ""
    memory = in_binary_units(offer.offers.memory_bytes)
    threads = offer.offers.cpu_threads
    return fine("machine", f"offers {memory} and {threads} threads to jobs ({settings.profile}){limited}")


def check_gpu(settings: Settings) -> Finding:
    """Tell which graphics card a worker would see."""
    try:
        gpu = read_this_machine(settings).profile.gpu
    except WrongSettingError:
        return fine("gpu", "not looked at: the machine cannot be read")
    return fine("gpu", gpu.name if gpu else "none: jobs that want one run elsewhere")


def identity_if_any(root: Path) -> str | None:
    """Return what a store calls itself; None where nobody has used it yet: asking must not change that.

    Raises:
        StoreError: it cannot be read, or is damaged.
    """
    return Store(root).identity() if (root / FILE_NAME).is_file() else None


CHECKS: tuple[Check, ...] = (
    check_store,
    check_lock_folder,
    check_import_names,
    check_machine,
    check_gpu,
    check_planning,
)

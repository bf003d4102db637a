"""Holds what the registry says of the nodes that are alive, and which of them see a project's photos.

Does not cover what else a node says of itself (:mod:`worker.node_entry`) nor
how its entry expires (:mod:`worker.lease`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from tasks.errors import StoreError
from tasks.store import Store
from worker.logs import get_logger
from worker.settings import Settings
from worker.store_wait import is_for_store

log = get_logger(__name__)

_TEXTS = ("profile", "pressure", "gpu", "waits_for", "store", "store_id")
_NUMBERS = (
    "budget_memory_bytes",
    "reserved_memory_bytes",
    "budget_cpu_threads",
    "reserved_cpu_threads",
    "reserved_gpu_memory_bytes",
    "budget_gpu_slots",
    "reserved_gpu_slots",
    "budget_io_slots",
    "reserved_io_slots",
    "active_reservations",
    "idle_seconds",
    "waits_seconds",
)
_AMOUNTS_OR_UNKNOWN = (
    "offers_memory_bytes",
    "offers_cpu_threads",
    "budget_gpu_memory_bytes",
    "offers_gpu_memory_bytes",
    "offers_gpu_slots",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """One node's entry in the registry; what it does not tell is empty, 0, or unknown (None).

    ``budget_*`` is what the machine leaves now, ``reserved_*`` what running
    jobs have of it, ``offers_*`` what the node could ever give to one batch.
    """

    name: str
    profile: str = ""
    pressure: str = ""
    budget_memory_bytes: int = 0
    reserved_memory_bytes: int = 0
    offers_memory_bytes: int | None = None
    budget_cpu_threads: int = 0
    reserved_cpu_threads: int = 0
    offers_cpu_threads: int | None = None
    gpu: str = ""
    """Its card's name; empty where it has none."""
    gpu_is_uma: bool = False
    """The card lives in the RAM: its bytes are charged to that, and the GPU memory is 0."""
    gpu_matching: bool = False
    """It takes jobs of `matcher.run.gpu`."""
    budget_gpu_memory_bytes: int | None = None
    reserved_gpu_memory_bytes: int = 0
    offers_gpu_memory_bytes: int | None = None
    budget_gpu_slots: int = 0
    reserved_gpu_slots: int = 0
    offers_gpu_slots: int | None = None
    budget_io_slots: int = 0
    reserved_io_slots: int = 0
    active_reservations: int = 0
    """Batches that run."""
    idle_seconds: int = 0
    """How long nothing has been reserved on it; 0 while something is."""
    waits_for: str = ""
    """Why it starts nothing more, in its own words; empty while it works."""
    waits_seconds: int = 0
    """How long it has waited for the same reason."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """What its totals come from, see :func:`worker.node_entry.limits_of`."""
    planning: Mapping[str, Any] = field(default_factory=dict)
    """What it plans and learns of durations; empty where it does not."""
    store: str = ""
    """The folder it has its store in..."""
    store_id: str = ""
    """...and what that store calls itself."""
    import_roots: tuple[str, ...] = ()
    """The folders that it may import photos from, besides its store."""

    def may_import(self, source: str) -> bool:
        """Tell whether a source, an absolute path or one relative to the store, may be read there."""
        path = PurePosixPath(source)
        roots = (*self.import_roots, *filter(None, [self.store]))
        return not path.is_absolute() or any(path.is_relative_to(root) for root in roots)

    @property
    def waiting(self) -> str:
        """Return e.g. "waits for the store: ...", "waits: WAIT CPU_PSI: ..."; only where it waits."""
        return f"waits{' for' if is_for_store(self.waits_for) else ':'} {self.waits_for}"

    @property
    def free_gpu_memory_bytes(self) -> int | None:
        """Return what is left of the card's own memory; None where that is unknown."""
        if self.budget_gpu_memory_bytes is None:
            return None
        return max(0, self.budget_gpu_memory_bytes - self.reserved_gpu_memory_bytes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of it: the entry, and what is free of each resource."""
        return {
            **asdict(self),
            "free_memory_bytes": max(0, self.budget_memory_bytes - self.reserved_memory_bytes),
            "free_cpu_threads": max(0, self.budget_cpu_threads - self.reserved_cpu_threads),
            "free_gpu_memory_bytes": self.free_gpu_memory_bytes,
            "free_gpu_slots": max(0, self.budget_gpu_slots - self.reserved_gpu_slots),
            "free_io_slots": max(0, self.budget_io_slots - self.reserved_io_slots),
        }


def describe_folders(settings: Settings) -> dict[str, str]:
    """Return the fields of a node's entry that tell which folders it sees.

    Asked once, at the start: the heartbeat must not wait for a store.
    """
    try:
        store_id = Store(settings.store).identity()
    except StoreError as error:
        # Told as no store at all: clients then refuse to count on this node.
        log.warning("store_not_identified", error=str(error), cure="make it writable, start the worker again")
        store_id = ""
    return {
        "store": str(settings.store.resolve()),
        "store_id": store_id,
        "import_roots": json.dumps([str(root.resolve()) for root in settings.import_roots]),
    }


def read_node(name: str, fields: Mapping[str, str]) -> LiveNode:
    """Return a node's entry; numbers that are none count as 0, or as unknown where an amount may be."""
    values: dict[str, Any] = {told: fields.get(told, "") for told in _TEXTS}
    values |= {told: _number(fields.get(told)) or 0 for told in _NUMBERS}
    values |= {told: _number(fields.get(told)) for told in _AMOUNTS_OR_UNKNOWN}
    return LiveNode(
        name=name,
        gpu_is_uma=fields.get("gpu_is_uma") == "1",
        gpu_matching=fields.get("gpu_matching") == "1",
        limits=_facts(fields.get("limits", "{}")),
        planning=_facts(fields.get("planning", "{}")),
        import_roots=_texts(fields.get("import_roots", "[]")),
        **values,
    )


def on_other_stores(nodes: Iterable[LiveNode], store_id: str) -> list[LiveNode]:
    """Return the nodes that work on another store than the one with this identity."""
    return [node for node in nodes if node.store_id != store_id]


def unseen_by_all(nodes: Sequence[LiveNode], sources: Iterable[str]) -> list[str]:
    """Return the sources that none of the nodes may import."""
    return [source for source in sources if not any(node.may_import(source) for node in nodes)]


def unseen_by_some(nodes: Sequence[LiveNode], sources: Sequence[str]) -> list[LiveNode]:
    """Return the nodes that may not import all of the sources."""
    return [node for node in nodes if not all(node.may_import(source) for source in sources)]


def names_of(nodes: Iterable[LiveNode]) -> str:
    """Return the nodes' names as they stand in a sentence."""
    return ", ".join(sorted(node.name for node in nodes))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _texts(text: str) -> tuple[str, ...]:
    try:
        values: Any = json.loads(text)
    except ValueError:
        return ()
    return tuple(str(value) for value in values) if isinstance(values, list) else ()


def _facts(text: str) -> dict[str, Any]:
    try:
        facts: Any = json.loads(text)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}

"""Holds what the registry says of the nodes that are alive, and which of them see a project's photos.

Does not cover how a node describes itself (:mod:`worker.puller`) nor how its
entry expires (:mod:`worker.lease`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tasks.errors import StoreError
from tasks.store import Store
from worker.logs import get_logger
from worker.settings import Settings

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNode:
    """One node's entry in the registry; what an entry does not tell is empty or 0."""

    name: str
    pressure: str = ""
    budget_memory_bytes: int = 0
    reserved_memory_bytes: int = 0
    budget_cpu_threads: int = 0
    reserved_cpu_threads: int = 0
    waits_for: str = ""
    """Why it starts nothing more, in its own words; empty while it works."""
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
    """Return a node's entry; numbers that are none count as 0."""
    return LiveNode(
        name=name,
        pressure=fields.get("pressure", ""),
        budget_memory_bytes=_number(fields.get("budget_memory_bytes")),
        reserved_memory_bytes=_number(fields.get("reserved_memory_bytes")),
        budget_cpu_threads=_number(fields.get("budget_cpu_threads")),
        reserved_cpu_threads=_number(fields.get("reserved_cpu_threads")),
        waits_for=fields.get("waits_for", ""),
        store=fields.get("store", ""),
        store_id=fields.get("store_id", ""),
        import_roots=_texts(fields.get("import_roots", "[]")),
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


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0


def _texts(text: str) -> tuple[str, ...]:
    try:
        values: Any = json.loads(text)
    except ValueError:
        return ()
    return tuple(str(value) for value in values) if isinstance(values, list) else ()

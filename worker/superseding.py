"""Finds out which claimed jobs have been superseded: a newer one with their key was sent to the same list.

Jobs of a project are not: each of them is wanted.

Looks at what was claimed together, and at the next few messages behind that.
One that another node takes at the same moment is not seen: then both run.
"""

import json
from collections.abc import Callable, Iterable, Sequence

from worker.claimed_item import ClaimedItem
from worker.settle import list_of

MOST_MESSAGES = 64
"""So many are looked at behind a claimed job."""

NextMessages = Callable[[str], Sequence[bytes]]
"""Returns the next messages of a list, the next in line first."""


def superseded(items: Sequence[ClaimedItem], ask: NextMessages) -> set[str]:
    """Return the tags of those items that have been superseded; asks nothing where no item has a key."""
    tags: set[str] = set()
    newer = {name: keys_of(ask(name)) for name in {list_of(item.tag) for item in items if _key(item)}}
    for item in reversed(items):
        if not _key(item):
            continue
        seen = newer[list_of(item.tag)]
        if _key(item) in seen:
            tags.add(item.tag)
        seen.add(_key(item))
    return tags


def keys_of(messages: Iterable[bytes]) -> set[str]:
    """Return the keys that messages supersede others by; what cannot be read has none."""
    found = set()
    for message in messages:
        if b"supersede_key" not in message:
            continue
        try:
            key = json.loads(message)["headers"]["supersede_key"]
        except (ValueError, KeyError, TypeError):
            continue
        if isinstance(key, str):
            found.add(key)
    return found


def _key(item: ClaimedItem) -> str:
    return "" if item.place is not None else item.contract.contract.supersede_key

"""Decides the one text form that a JSON value has in the store and in names."""

import json
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"


def canonical_json(value: Json) -> str:
    """Return the canonical JSON text: sorted keys, no spaces, UTF-8 kept.

    Raises:
        ValueError: the value holds NaN or an infinity, which JSON does not know.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

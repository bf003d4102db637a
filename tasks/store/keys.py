"""Holds how an artefact is named: by kind, version, parameters and inputs.

The name is known before the work is done, which is what makes resuming
possible: what is there need not be made.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from tasks.store.canonical import Json, canonical_json

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def is_name(text: str) -> bool:
    """Tell whether a text may name a kind or a project (it becomes a folder)."""
    return _NAME.fullmatch(text) is not None


def is_sha256(text: str) -> bool:
    """Tell whether a text is a SHA-256 in lower-case hexadecimal digits."""
    return _SHA256.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ArtefactKey:
    """The name of one artefact."""

    kind: str
    digest: str
    """SHA-256 (64 hexadecimal digits) of everything that can change the bytes."""

    def __post_init__(self) -> None:
        """Refuse what is not safe as a file name; keys may come from a message."""
        if not is_name(self.kind) or not is_sha256(self.digest):
            raise ValueError(f"not an artefact key: {self.kind!r}, {self.digest!r}")


def artefact_key(
    kind: str, version: int, parameters: BaseModel | Mapping[str, Json], inputs: Sequence[str]
) -> ArtefactKey:
    """Return the key of what ``kind`` makes of these inputs (their order counts).

    ``inputs`` are content hashes: of photos, or the digests of other keys.
    """
    values = parameters.model_dump(mode="json") if isinstance(parameters, BaseModel) else dict(parameters)
    identity: Json = {"kind": kind, "version": version, "parameters": values, "inputs": list(inputs)}
    return ArtefactKey(kind=kind, digest=hashlib.sha256(canonical_json(identity).encode()).hexdigest())

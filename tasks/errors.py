"""Holds the errors of ``tasks`` and the closed list of reasons an item can fail for.

A failure costs one item, never the project: stages yield it as a value
(:class:`tasks.kind.Failed`), they do not raise it.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why an item failed; the same codes in logs, JSON, reports and the store."""

    EMPTY_FILE = "empty_file"
    NOT_AN_IMAGE = "not_an_image"
    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    CHANGED_WHILE_COPYING = "changed_while_copying"
    LOST = "lost"
    OUTSIDE_IMPORT_ROOTS = "outside_import_roots"
    INVALID_ARGUMENTS = "invalid_arguments"
    INVALID_ESTIMATE = "invalid_estimate"
    UNKNOWN_TASK = "unknown_task"
    UNDECODABLE_MESSAGE = "undecodable_message"
    NEEDS_BIGGER_NODE = "needs_bigger_node"
    WORKER_LOST = "worker_lost"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    STALE = "stale"
    STORE_UNAVAILABLE = "store_unavailable"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed item, in words a user can act on.

    ``name`` is what the user calls the item (a file name, a pair of names),
    ``cause`` one plain sentence, ``cure`` what to do about it.
    """

    name: str
    reason: Reason
    cause: str
    cure: str

    def to_dict(self) -> dict[str, str]:
        """Return the JSON form used in the store and by ``--json``."""
        return {key: str(value) for key, value in asdict(self).items()}


class TasksError(Exception):
    """Root of the errors that ``tasks`` raises."""


class ItemError(TasksError):
    """One item cannot be processed; carries the failure to report."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.name}: {failure.cause}")
        self.failure = failure


class StoreError(TasksError):
    """The project store cannot be read or written (full, read-only, gone)."""


class CorruptArtefactError(StoreError):
    """An artefact is there, but is torn or fails its checksum; make it again."""


class MissingArtefactError(StoreError):
    """An artefact that this job needs is not in the store (yet)."""


class ProjectError(TasksError):
    """A project cannot be created or opened as asked; the text says why."""

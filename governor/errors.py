"""Holds the errors of ``governor``.

Waiting and refusing are decisions, not errors; these are for readings that
failed and for callers that broke the contract.
"""


class GovernorError(Exception):
    """Root of the errors that ``governor`` raises."""


class SnapshotError(GovernorError):
    """The machine's memory cannot be read: nothing may be reserved."""


class ProfileError(GovernorError):
    """What the node owns cannot be read, or the partition asked for makes no sense."""


class InvalidPolicyError(GovernorError):
    """The policy does not fit the node; the text names every violated rule."""


class InvariantError(GovernorError):
    """The governor's books are wrong: a defect in Tiepoint, never the caller's."""

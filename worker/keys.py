"""Names every key that Tiepoint keeps in Redis, once.

The queues themselves are kombu's: a list per kind and priority. Everything
else carries the prefix ``tiepoint:``. Does not cover kombu's own keys
(``_kombu.binding.*``, the control mailboxes).
"""

import uuid

PREFIX = "tiepoint:"

LEASES = PREFIX + "leases"
"""zset: incarnation -> lease expiry in server milliseconds."""
TICK = PREFIX + "tick"
"""string: server milliseconds of the last renewal by anybody."""
DELAYED = PREFIX + "delayed"
"""zset: ``<list> NUL <payload>`` -> due time in server milliseconds (ETA, back-off)."""
DEAD = PREFIX + "dead"
"""list, newest first, bounded: JSON reports of failed jobs."""
DEAD_MESSAGES = PREFIX + "dead-messages"
"""hash: serial of a report -> ``<list> NUL <payload>`` of a job that ``tiepoint retry`` can put back."""
TOTALS = PREFIX + "totals"
"""hash: how many jobs have left the queues, and how, since the server was empty."""
INFLIGHT_PREFIX = PREFIX + "inflight:"
"""hash per incarnation: tag -> payload of a claimed message."""
LARGE_PREFIX = PREFIX + "large:"
"""zset per kind: ``<list> NUL <payload>`` -> bytes charged, set aside for a node that has them."""
LARGE_SINCE_PREFIX = PREFIX + "large-since:"
"""zset per kind: the entries of its large set -> since when they wait, in server milliseconds."""
DRAIN = PREFIX + "drain"
"""hash: which large entry one node (``holder``, an incarnation) makes room for; ends with its lease."""
FACTORS_PREFIX = PREFIX + "factors:"
"""hash per node, hardware and profiles: what was learned of durations; set per node: its hashes' keys."""
NODE_PREFIX = PREFIX + "node:"
"""hash per node: budgets, pressure, what it waits for; expires with the lease."""
PROJECT_PREFIX = PREFIX + "project:"
"""hash per project: state, counters, the waiting ``pipeline.expand`` message."""

PRIORITY_STEPS = (0, 3, 6, 9)
"""kombu's priority steps; on Redis 0 is served first."""
_SEPARATOR = "\x06\x16"

MAX_DEAD_JOBS = 10_000
MAX_DEAD_BYTES = 32 * 1024 * 1024
"""Of the messages that are kept with their reports."""
MAX_PAYLOAD_BYTES = 64 * 1024
MAX_CLAIM_BYTES = 1024 * 1024
"""A claim stops here: a larger reply would hold up Redis for milliseconds."""


def queue_list(kind: str, priority: int = 0) -> str:
    """Return kombu's list of one kind and priority."""
    return f"{kind}{_SEPARATOR}{priority}" if priority else kind


def queue_lists(kind: str) -> list[str]:
    """Return a kind's lists, the one served first in front."""
    return [queue_list(kind, priority) for priority in PRIORITY_STEPS]


def kind_of_list(name: str) -> str:
    """Return the kind that a list belongs to."""
    return name.partition(_SEPARATOR)[0]


def priority_of_list(name: str) -> int:
    """Return the kombu priority of a list."""
    return int(name.partition(_SEPARATOR)[2] or 0)


def new_incarnation(node_name: str) -> str:
    """Return what one start of a worker is called: nobody else ever was, or will be."""
    return f"{node_name}|{uuid.uuid4().hex[:12]}"


def inflight(incarnation: str) -> str:
    """Return the hash of what one incarnation holds."""
    return INFLIGHT_PREFIX + incarnation


def large(kind: str) -> str:
    """Return the zset of a kind's set-aside messages."""
    return LARGE_PREFIX + kind


def large_since(kind: str) -> str:
    """Return the zset of since when a kind's set-aside messages wait."""
    return LARGE_SINCE_PREFIX + kind


def factors(node_name: str, fingerprint: str, profile_set: str) -> str:
    """Return the hash of what a node has learned on some hardware with some profiles."""
    return f"{FACTORS_PREFIX}{node_name}:{fingerprint}:{profile_set}"


def factor_index(node_name: str) -> str:
    """Return the set of the keys of what a node has learned, on whatever hardware."""
    return FACTORS_PREFIX + node_name


def node(name: str) -> str:
    """Return the registry hash of a node."""
    return NODE_PREFIX + name


def project(project_id: str) -> str:
    """Return the hash of a project's live state."""
    return PROJECT_PREFIX + project_id


def stage_todo(project_id: str, stage: str) -> str:
    """Return the set of a stage's outstanding items (its window)."""
    return f"{PROJECT_PREFIX}{project_id}:{stage}:todo"

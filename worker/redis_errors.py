"""Words what Redis, or the way to it, does not do: the cause, and the cure.

Does not cover who meets it: the client (:mod:`worker.project_queue`), a worker
(:mod:`worker.puller`, :mod:`worker.queue_at_start`), ``tiepoint doctor``.
"""

import redis

_BY_CLASS: tuple[tuple[type[Exception], str], ...] = (
    (redis.AuthenticationError, "its URL must hold the right password: redis://:PASSWORD@HOST:6379/0"),
    (
        redis.exceptions.NoPermissionError,
        "give the user of its URL the rights that docs/operations.md lists",
    ),
    (
        redis.exceptions.OutOfMemoryError,
        "its memory is full: raise its maxmemory, or wait until running jobs have made room; nothing is lost",
    ),
    (redis.BusyLoadingError, "it has been restarted and still reads its file: wait, then do this again"),
    (redis.ReadOnlyError, "it is a replica: name its master in the URL"),
    (redis.ResponseError, "look at the server's log and its settings"),
)
_BY_WORDS: tuple[tuple[str, str], ...] = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "name the certificate of its authority: rediss://HOST:6379/0?ssl_ca_certs=/PATH/ca.crt",
    ),
    ("SSL", "check that its port speaks TLS; where it does not, the URL begins with redis://"),
)
_NOT_REACHED = (
    "check that it runs, and its URL (rediss:// where it speaks TLS), "
    "then do this again: nothing is lost by that"
)


def cure_of(error: BaseException) -> str:
    """Return what to do about an error of redis-py, or of Celery on its way to Redis."""
    for kind, cure in _BY_CLASS:
        if isinstance(error, kind):
            return cure
    return next((cure for words, cure in _BY_WORDS if words in str(error)), _NOT_REACHED)


def cause_of(error: BaseException) -> str:
    """Return what has happened, in the words of whoever noticed it, without a full stop."""
    told, _, _ = str(error).partition(" script: ")  # Where in a script of ours is nobody's business.
    return told.rstrip(".") or type(error).__name__


def is_refusal(error: BaseException) -> bool:
    """Tell whether the server has answered, and does not do it: connecting anew alone changes nothing."""
    return isinstance(error, redis.ResponseError)


def is_lasting(error: BaseException) -> bool:
    """Tell whether trying again changes nothing: a password, a right, a certificate is wrong.

    redis-py counts a wrong password, and all that TLS finds, among the broken connections.
    """
    return isinstance(
        error, redis.AuthenticationError | redis.exceptions.NoPermissionError
    ) or "CERTIFICATE_VERIFY_FAILED" in str(error)

"""What Redis does not do is told with a cure that fits."""

import pytest
import redis
from redis.exceptions import NoPermissionError, OutOfMemoryError

from worker.redis_errors import cause_of, cure_of, is_lasting, is_refusal

STRANGE = redis.ConnectionError(
    "Error 1 connecting to nas:6379. [SSL: CERTIFICATE_VERIFY_FAILED] self-signed"
)


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        (redis.AuthenticationError("invalid password"), "right password"),
        (NoPermissionError("no permissions to run 'get'"), "rights that docs/operations.md lists"),
        (OutOfMemoryError("OOM"), "raise its maxmemory"),
        (redis.BusyLoadingError("loading"), "wait"),
        (redis.ReadOnlyError("read only"), "name its master"),
        (redis.ResponseError("MISCONF"), "the server's log"),
        (STRANGE, "ssl_ca_certs="),
        (redis.ConnectionError("[SSL: WRONG_VERSION_NUMBER]"), "check that its port speaks TLS"),
        (redis.ConnectionError("Connection refused."), "check that it runs, and its URL"),
    ],
)
def test_each_error_has_its_cure(error: Exception, cure: str) -> None:
    """The more special one where several would do."""
    assert cure in cure_of(error)


@pytest.mark.parametrize(
    ("error", "lasting", "refusal"),
    [
        (redis.AuthenticationError("invalid password"), True, False),
        (NoPermissionError("no permissions"), True, True),
        (STRANGE, True, False),
        (OutOfMemoryError("OOM"), False, True),
        (redis.ConnectionError("refused"), False, False),
        (redis.TimeoutError("timeout"), False, False),
    ],
)
def test_what_trying_again_can_change_is_told_from_what_it_cannot(
    error: Exception,
    lasting: bool,  # noqa: FBT001 - a row of a table
    refusal: bool,  # noqa: FBT001 - a row of a table
) -> None:
    """A wrong password stays wrong; a memory may be less full soon."""
    assert (is_lasting(error), is_refusal(error)) == (lasting, refusal)


def test_an_error_without_words_is_named() -> None:
    """A sentence needs something to say."""
    assert cause_of(redis.TimeoutError()) == "TimeoutError"
    assert cause_of(redis.ConnectionError("gone.")) == "gone"

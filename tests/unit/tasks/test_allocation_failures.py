"""Too little memory is told from a bug, whichever library says it."""

import errno

import cv2
import numpy as np
import pytest

from tasks.allocation_failures import is_allocation_failure


def _opencv_error_of_too_little_memory() -> Exception:
    """Let OpenCV ask for more than any machine has."""
    row = np.zeros((1, 30_000), np.uint8)
    with pytest.raises(cv2.error) as caught:
        cv2.resize(row, (2**31 - 1, 2**31 - 1))
    return caught.value


def test_opencvs_own_error_of_too_little_memory_is_one() -> None:
    """The real error of the real library: 4 EiB are nowhere. Its code stays behind for the next error."""
    error = _opencv_error_of_too_little_memory()

    assert is_allocation_failure(error), str(error)
    assert not is_allocation_failure(cv2.error("Unknown C++ exception"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (np.exceptions.DTypePromotionError(), False),
        (cv2.error("std::bad_alloc"), True),
        (cv2.error("(-215:Assertion failed) !empty()"), False),
        (RuntimeError("std::bad_alloc"), False),
    ],
)
def test_only_errors_that_say_so_are_failed_allocations(error: Exception, *, expected: bool) -> None:
    """What another library says in these words is unknown, and a bug until it is known."""
    assert is_allocation_failure(error) is expected

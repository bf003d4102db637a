"""Tells an allocation that failed from every other error. Pure.

Does not cover what becomes of the item: it says nothing about the item, only
that there was too little memory for it.
"""

import errno

_OPENCV_MARKS = ("error: (-4:", "std::bad_alloc")
"""In the text of a `cv2.error`: OpenCV's Error::StsNoMem, and what C++ says where another allocator than
OpenCV's own failed. Not the attribute `code`: OpenCV sets that of the class, where it outlives the error."""


def is_allocation_failure(error: BaseException) -> bool:
    """Tell whether an error says that memory could not be had.

    By Python, numpy, pycolmap or OpenCV; or by the system itself, as for a mapped file.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    is_of_opencv = type(error).__module__.partition(".")[0] == "cv2"
    return is_of_opencv and any(mark in str(error) for mark in _OPENCV_MARKS)

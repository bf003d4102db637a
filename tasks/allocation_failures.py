"""Tells an allocation that failed from every other error. Pure.

Does not cover what becomes of the item: it says nothing about the item, only
that there was too little memory for it.
"""

_OPENCV_NO_MEMORY = -4
"""OpenCV's Error::StsNoMem; OpenCV itself is not imported here."""
_OUTSIDE_ITS_OWN_ALLOCATOR = "std::bad_alloc"
"""What a `cv2.error` says where the C++ library, not OpenCV, could not allocate."""


def is_allocation_failure(error: BaseException) -> bool:
    """Tell whether an error says that memory could not be had: Python's, numpy's, pycolmap's or OpenCV's."""
    if isinstance(error, MemoryError):
        return True
    if type(error).__module__.partition(".")[0] != "cv2":
        return False
    return getattr(error, "code", None) == _OPENCV_NO_MEMORY or _OUTSIDE_ITS_OWN_ALLOCATOR in str(error)

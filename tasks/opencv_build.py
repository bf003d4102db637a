"""Says which build of OpenCV computes here: builds of one version differ in speed."""

import hashlib

import cv2


def opencv_build() -> str:
    """Return OpenCV's version and a digest of all that it says of its build."""
    digest = hashlib.sha256(cv2.getBuildInformation().encode()).hexdigest()
    return f"{cv2.__version__} {digest[:12]}"

"""Drives a headless Chromium; Debian and Ubuntu call the packages chromium and chromium-driver."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_WIDTH_PX, _HEIGHT_PX = 1280, 800
_OPTIONS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    f"--window-size={_WIDTH_PX},{_HEIGHT_PX}",
)


def missing_programs() -> str | None:
    """Return what is missing for a browser, in words; None where all is there."""
    if _browser_program() is None:
        return f"none of {', '.join(_PROGRAMS)} is installed (Debian: apt-get install chromium)"
    if shutil.which("chromedriver") is None:
        return "chromedriver is not installed (Debian: apt-get install chromium-driver)"
    return None


def _browser_program() -> str | None:
    return next((path for name in _PROGRAMS if (path := shutil.which(name))), None)


@contextmanager
def headless_browser(profile_folder: Path) -> Iterator[WebDriver]:
    """Run a browser for the time of the block, with a fresh profile in a new folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = _browser_program() or ""
    for option in (*_OPTIONS, f"--user-data-dir={profile_folder}"):
        options.add_argument(option)
    if os.geteuid() == 0:  # Chromium refuses to run as root in its sandbox.
        options.add_argument("--no-sandbox")
    # Named, so that selenium does not look for one on the network.
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))
    try:
        yield driver
    finally:
        driver.quit()

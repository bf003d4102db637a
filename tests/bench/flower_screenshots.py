"""Makes the pictures of Flower in docs/images: two nodes in the middle of a project.

``python -m tests.bench.flower_screenshots`` takes a minute or two, a browser
(:mod:`tests.browser`) and a set of real photos (``--set``, default seneca30).
"""

import argparse
import tempfile
import time
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tests.browser import headless_browser, missing_programs
from tests.conftest import photos_root
from tests.flower_scene import NODES, Scene, two_nodes, wait_until

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_KIND = "matcher.run"
_ENOUGH_DONE = 24
"""Jobs of the kind that are through when the pictures are taken."""
_WIDTH_PX, _LEAST_HEIGHT_PX, _MOST_HEIGHT_PX = 1280, 480, 980
_SETTLE_SECONDS = 1.5
"""Pages fetch their numbers after loading, and fade tabs in."""


def main() -> None:
    """Run the scene and take the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--set", default="seneca30", help="name of the photo set")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder for the pictures")
    arguments = parser.parse_args()
    if missing := missing_programs():
        parser.error(missing)
    arguments.out.mkdir(parents=True, exist_ok=True)
    photos = photos_root() / arguments.set / "images"
    with (
        tempfile.TemporaryDirectory() as folder,
        two_nodes(Path(folder), photos, kind_modules="[]") as scene,
        headless_browser(Path(folder) / "profile") as browser,
    ):
        browser.get(scene.flower.door)
        scene.start_project()
        wait_until(lambda: scene.flower.count(_KIND, "SUCCESS") >= _ENOUGH_DONE, "the project runs")
        take_all(browser, scene, arguments.out)


def take_all(browser: WebDriver, scene: Scene, out: Path) -> None:
    """Take each picture; what changes fastest comes first."""
    node = next(iter(NODES))
    job = next(name for name, job in scene.flower.tasks().items() if job["name"] == _KIND)
    take(browser, f"{scene.flower.url}/broker", out / "flower-broker.png")
    take(browser, f"{scene.flower.url}/workers", out / "flower-workers.png")
    take(browser, f"{scene.flower.url}/worker/{node}", out / "flower-governor.png", tab="other")
    take(browser, f"{scene.flower.url}/tasks", out / "flower-tasks.png")
    take(browser, f"{scene.flower.url}/task/{job}", out / "flower-task.png")


def take(browser: WebDriver, url: str, path: Path, *, tab: str | None = None) -> None:
    """Take one picture of a page, or of a tab of it, as high as what it shows."""
    browser.set_window_size(_WIDTH_PX, _LEAST_HEIGHT_PX)
    browser.get(url)
    if tab is not None:
        browser.find_element(By.ID, f"worker-tab-{tab}").click()
    time.sleep(_SETTLE_SECONDS)
    wanted_px, frame_px = browser.execute_script(
        "return [document.querySelector('.page-section').getBoundingClientRect().bottom + 24,"
        " window.outerHeight - window.innerHeight]"
    )
    height_px = min(max(int(wanted_px), _LEAST_HEIGHT_PX), _MOST_HEIGHT_PX)
    browser.set_window_size(_WIDTH_PX, height_px + int(frame_px))
    browser.save_screenshot(str(path))
    print(f"{path.name}: {path.stat().st_size} bytes")  # noqa: T201 - a script


if __name__ == "__main__":
    main()

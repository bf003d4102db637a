"""Flower's pages show two nodes and their project, in a real browser."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

from tests.browser import headless_browser, missing_programs
from tests.conftest import PhotoSet
from tests.flower_scene import NODES, PROJECT, Scene, two_nodes, wait_until

QUEUE = "matcher.run"
PAIRS = 55
"""Of eleven photos, each with each."""
pytestmark = pytest.mark.skipif(missing_programs() is not None, reason=f"no browser: {missing_programs()}")


@pytest.fixture(scope="module")
def scene(photos: PhotoSet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Return a scene in the middle of a project: all pairs wait, both nodes are busy."""
    with two_nodes(tmp_path_factory.mktemp("scene"), photos("kermit")) as scene:
        scene.hold_project(QUEUE, before="candidate_pair.generate", count=11)
        yield scene


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """Return a browser."""
    with headless_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def text_of(browser: WebDriver) -> str:
    """Return what can be seen of the page."""
    return str(browser.find_element(By.TAG_NAME, "body").text)


def open_page(browser: WebDriver, scene: Scene, path: str, *expected: str) -> None:
    """Open a page and wait until it shows all of this."""
    # Let in at the root and by no address that holds a password, it sends the password by itself,
    # to the addresses of the buttons, too.
    browser.get(scene.flower.door)
    browser.get(scene.flower.url + path)
    wait_until(lambda: all(word in text_of(browser) for word in expected), f"{path} shows {expected}")


def open_tab(browser: WebDriver, name: str, *expected: str) -> None:
    """Turn to a tab of a worker's page and wait until it shows all of this."""
    browser.find_element(By.ID, f"worker-tab-{name}").click()
    wait_until(lambda: all(word in text_of(browser) for word in expected), f"{name} shows {expected}")


def press(browser: WebDriver, button: str) -> None:
    """Press a button by the keyboard: a message that is just fading out may cover it."""
    browser.find_element(By.ID, button).send_keys(Keys.ENTER)


def has_ended(scene: Scene, job: str) -> bool:
    """Tell whether a job is shown as ended by its button."""
    return scene.flower.states(job) == ["REVOKED"]


def table(browser: WebDriver, selector: str) -> dict[str, list[str]]:
    """Return the cells of a table's rows by their first."""
    rows = browser.find_elements(By.CSS_SELECTOR, f"{selector} tbody tr")
    cells = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]
    return {first: rest for first, *rest in cells}


def test_flowers_api_shows_where_the_project_is(scene: Scene) -> None:
    """Both nodes, what each has reserved, what is done and what waits."""
    workers = scene.flower.workers()
    governors = [workers[node]["stats"]["governor"] for node in NODES]

    assert [governor["active_reservations"] for governor in governors] == ["1", "1"]
    assert sum(governor["counters"]["settled"] for governor in governors) >= 33
    assert scene.flower.count("features.extract.rootsift", "SUCCESS") == 11
    assert scene.flower.queue_lengths()[QUEUE] == PAIRS


def test_the_page_of_workers_shows_both_nodes(scene: Scene, browser: WebDriver) -> None:
    """Online and busy, with what they have done."""
    open_page(browser, scene, "/workers", *NODES, "Online")
    cells = table(browser, "#workers-table")

    assert [cells[node][:2] for node in NODES] == [["Online", "1"]] * 2
    assert sum(int(cells[node][2]) for node in NODES) >= 35


@pytest.mark.parametrize("node", NODES)
def test_the_page_of_a_worker_shows_what_its_governor_holds(
    scene: Scene, browser: WebDriver, node: str
) -> None:
    """In words that can be read."""
    open_page(browser, scene, f"/worker/{node}", node, "GovernedPool")
    open_tab(browser, "other", "pressure", "waits for")
    told = table(browser, "#tab-other")

    assert told["memory"][0].startswith("5.00 MiB of ")
    assert told["threads"] == ["1 of 1 reserved"]
    assert told["batches"] == ["1 running"]
    assert told["last decision"][0].startswith(("START", "REDUCE"))


def test_the_page_of_jobs_shows_what_was_done_last(scene: Scene, browser: WebDriver) -> None:
    """The last first."""
    open_page(browser, scene, "/tasks", "noop", "STARTED", "candidate_pair.generate", "SUCCESS")

    assert "FAILURE" not in text_of(browser)


def test_the_page_of_a_job_shows_its_arguments_and_its_node(scene: Scene, browser: WebDriver) -> None:
    """The beginning of the arguments is enough to tell jobs apart."""
    jobs = scene.flower.tasks()
    job = next(name for name, job in jobs.items() if job["name"] == "pipeline.expand")
    open_page(browser, scene, f"/task/{job}", "pipeline.expand", "SUCCESS", f"'project': '{PROJECT}'")

    assert any(node in text_of(browser) for node in NODES)


def test_the_page_of_the_broker_shows_what_waits(scene: Scene, browser: WebDriver) -> None:
    """All priorities of a kind in one line."""
    open_page(browser, scene, "/broker", QUEUE)

    waiting = {queue: int(cells[0]) for queue, cells in table(browser, "#queue-table").items()}
    assert (waiting[QUEUE], waiting["features.extract.rootsift"]) == (PAIRS, 0)


def test_the_buttons_of_a_queue_work(scene: Scene, browser: WebDriver) -> None:
    """Left and entered again, on one node."""
    node, queue = next(iter(NODES)), "features.extract.sift"
    open_page(browser, scene, f"/worker/{node}", node)
    open_tab(browser, "queues", queue)
    press(browser, f"worker-cancel-consumer-{queue}")
    wait_until(lambda: queue not in scene.queues_of(node), "it is left")
    browser.find_element(By.ID, "add-consumer-name").send_keys(queue)
    press(browser, "worker-add-consumer")

    wait_until(lambda: queue in scene.queues_of(node), "it is entered again")


def test_a_project_goes_on_once_a_job_in_its_way_is_terminated(
    photos: PhotoSet, tmp_path: Path, browser: WebDriver
) -> None:
    """By the button of a job; by that of a worker the node ends afterwards."""
    with two_nodes(tmp_path, photos("kermit")) as scene:
        node = next(iter(NODES))
        for job in scene.hold_project(QUEUE, before="candidate_pair.generate", count=11):
            open_page(browser, scene, f"/task/{job}", "STARTED")
            press(browser, "task-terminate")
            wait_until(partial(has_ended, scene, job), "it is ended")
        wait_until(lambda: scene.flower.count("model.reconstruct", "SUCCESS") == 1, "the model is made")
        open_page(browser, scene, f"/worker/{node}", node)
        press(browser, "worker-group")
        press(browser, "worker-shutdown")

        wait_until(lambda: not scene.flower.rows()[node.partition("@")[0]]["status"], "it is offline")

"""An item whose photo is not seen here goes to the nodes that may see it, or fails with their names."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tasks.errors import Failure, Reason
from tests.unit.worker.builders import KIND, an_item
from tests.unit.worker.test_running_batch import Scene, a_scene
from worker.claimed_item import ClaimedItem
from worker.live_nodes import LiveNode
from worker.project_queue import QueueError
from worker.running_batch import RunningBatch
from worker.sight import Sight

ME = LiveNode(name="me", store="/store", store_id="s")
OTHER = LiveNode(name="other", store="/store", store_id="s", import_roots=("/photos",))
FAILURE = Failure(name="a", reason=Reason.UNREADABLE, cause="/photos/a.jpg cannot be read.", cure="Mount it.")


def unseen(*, counts_attempt: bool) -> dict[str, Any]:
    """Return what a child reports of a photo that it does not see."""
    seen = {"source": "/photos/a.jpg", "counts_attempt": counts_attempt}
    return {"action": "elsewhere", "failure": FAILURE.to_dict(), **seen}


def nobody_answers() -> list[LiveNode]:
    """Stand in for a registry that cannot be read."""
    raise QueueError("away")


def scene_of(item: ClaimedItem, nodes: Callable[[], list[LiveNode]] | None) -> Scene:
    """Return a batch of one item on a node that knows this registry; None: no other node will come."""
    scene = a_scene([item])
    sight = None if nodes is None else Sight("me", nodes, lambda: 0)
    services = replace(scene.batch._services, sight=sight)
    scene.batch = RunningBatch(scene.items, scene.batch._kind, scene.reservation, services)
    return scene


@pytest.mark.parametrize(("counts_attempt", "attempts"), [(False, 0), (True, 1)])
def test_an_item_is_parked_for_a_node_that_may_see_it(*, counts_attempt: bool, attempts: int) -> None:
    """It counts an attempt only where this node should have seen the photo."""
    scene = scene_of(an_item("a"), lambda: [ME, OTHER])
    scene.batch.on_outcome(0, unseen(counts_attempt=counts_attempt))

    (entry,) = scene.settler.entries
    assert (entry["action"], entry["attempts"], entry["delay_ms"]) == ("park", attempts, 1000)
    assert scene.recorded == []
    assert scene.batch._services.sight is not None
    assert scene.batch._services.sight.is_blind_to(KIND, scene.items[0].place.project)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("attempts", "action"), [(0, "park"), (1, "park"), (2, "failed")], ids=["first", "second", "third"]
)
def test_the_third_look_in_vain_is_the_last(attempts: int, action: str) -> None:
    """Its failure names this node and the others, and is written into the project."""
    scene = scene_of(an_item("a", attempts=attempts), lambda: [ME, OTHER])
    scene.batch.on_outcome(0, unseen(counts_attempt=True))

    assert scene.settled == [("a", action)]
    causes = [failure.cause for _, failure in scene.recorded]
    assert all("(node me; other nodes that may read it: other)" in cause for cause in causes)
    assert len(causes) == (action == "failed")


def test_a_node_that_was_never_meant_to_see_it_may_meet_it_often() -> None:
    """As long as another may."""
    scene = scene_of(an_item("a", attempts=2), lambda: [ME, OTHER])
    scene.batch.on_outcome(0, unseen(counts_attempt=False))

    assert scene.settled == [("a", "park")]


@pytest.mark.parametrize("counts_attempt", [True, False])
def test_without_another_node_an_item_fails_at_once(*, counts_attempt: bool) -> None:
    """Nobody is left to ask."""
    scene = scene_of(an_item("a"), lambda: [ME])
    scene.batch.on_outcome(0, unseen(counts_attempt=counts_attempt))

    assert scene.settled == [("a", "failed")]
    assert scene.recorded[0][1].cause.endswith("(node me; no other live node may read it).")


def test_on_one_machine_a_failure_stays_as_the_kind_words_it() -> None:
    """There, a node has no name that the user would know."""
    scene = scene_of(an_item("a"), None)
    scene.batch.on_outcome(0, unseen(counts_attempt=True))

    assert scene.recorded == [("a", FAILURE)]


def test_an_item_is_kept_while_the_registry_cannot_be_read() -> None:
    """An outage of Redis fails nothing."""
    scene = scene_of(an_item("a"), nobody_answers)
    scene.batch.on_outcome(0, unseen(counts_attempt=False))

    assert scene.settled == [("a", "park")]
    assert scene.recorded == []

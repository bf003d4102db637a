"""A node that does not see a photo leaves it to those that may; the last failure names the nodes."""

from dataclasses import replace

import pytest

from tasks.errors import Failure, Reason
from worker.live_nodes import LiveNode
from worker.project_queue import QueueError
from worker.sight import Sight

SECOND_NS = 1_000_000_000
ME = LiveNode(name="me", store="/store", store_id="s")
OTHER = LiveNode(name="other", store="/mnt/store", store_id="s", import_roots=("/photos",))
FAILURE = Failure(name="a.jpg", reason=Reason.UNREADABLE, cause="/photos/a.jpg is not there.", cure="Look.")


class Clock:
    """A clock that is set by hand."""

    now_ns = 0

    def __call__(self) -> int:
        """Return its time."""
        return self.now_ns


def sight_of(*others: LiveNode, clock: Clock | None = None) -> Sight:
    """Return what the node `me` knows, these others being alive."""
    return Sight("me", lambda: [ME, *others], clock or Clock())


@pytest.mark.parametrize(
    ("other", "source", "may"),
    [
        (OTHER, "/photos/a.jpg", True),
        (OTHER, "/photos/deep/a.jpg", True),
        (OTHER, "/photosets/a.jpg", False),
        (OTHER, "/mnt/store/photos/a.jpg", True),
        (OTHER, "photos/a.jpg", True),
        (replace(OTHER, store_id="t"), "/photos/a.jpg", False),
        (replace(OTHER, name="me"), "/photos/a.jpg", False),
    ],
)
def test_another_node_may_read_what_its_roots_or_its_store_hold(
    other: LiveNode,
    source: str,
    may: bool,  # noqa: FBT001 - a table
) -> None:
    """A folder whose name only begins alike is another one; a node of another store does not count."""
    assert sight_of(other).others(source) == ([other] if may else [])


def test_the_registry_is_read_again_after_two_seconds() -> None:
    """Just at two seconds it still counts as fresh."""
    clock, alive = Clock(), [ME]
    sight = Sight("me", lambda: list(alive), clock)
    first = sight.others("/photos/a.jpg")
    alive.append(OTHER)
    clock.now_ns = 2 * SECOND_NS
    same = sight.others("/photos/a.jpg")
    clock.now_ns += 1

    assert (first, same, sight.others("/photos/a.jpg")) == ([], [], [OTHER])


def test_without_a_registry_nobody_can_tell() -> None:
    """That is not the same as no other node."""

    def fail() -> list[LiveNode]:
        raise QueueError("away")

    assert Sight("me", fail, Clock()).others("/photos/a.jpg") is None


def test_a_node_leaves_a_projects_imports_to_others_for_thirty_seconds() -> None:
    """And does not leave other projects, nor other kinds."""
    clock = Clock()
    sight = sight_of(clock=clock)
    sight.note_blind("import.images", "p")
    places = [("import.images", "p"), ("import.images", "q"), ("features.extract", "p")]
    seen = [sight.is_blind_to(*place) for place in places]
    clock.now_ns = 30 * SECOND_NS - 1
    just_before = sight.is_blind_to("import.images", "p")
    clock.now_ns += 1

    assert seen == [True, False, False]
    assert (just_before, sight.is_blind_to("import.images", "p")) == (True, False)


def test_a_failure_names_this_node_and_the_others() -> None:
    """So that somebody knows where to look."""
    alone = sight_of().failure(FAILURE, [])
    with_others = sight_of().failure(FAILURE, [OTHER])

    assert alone.cause == "/photos/a.jpg is not there (node me; no other live node may read it)."
    assert with_others.cause.endswith("(node me; other nodes that may read it: other).")

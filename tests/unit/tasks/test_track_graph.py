"""Tracks are the connected components of the matches, cut until every image occurs once."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks import track_graph
from tasks.track_graph import Edges, TrackSet, build_tracks, common_neighbours, component_labels

Node = tuple[int, int]
Match = tuple[Node, Node, int]


def number(node: Node) -> int:
    """Return the node number of (image, feature)."""
    return node[0] << track_graph.FEATURE_BITS | node[1]


def edges_of(matches: list[Match]) -> Edges:
    """Build edges from ((image, feature), (image, feature), strength)."""
    left, right, strength = zip(*matches, strict=True) if matches else ((), (), ())
    return Edges(
        left=np.array([number(node) for node in left], np.int64),
        right=np.array([number(node) for node in right], np.int64),
        strength=np.array(strength, np.int64),
    )


def tracks_of(tracks: TrackSet) -> list[list[Node]]:
    """Return the tracks as lists of (image, feature)."""
    nodes = [
        (int(node) >> track_graph.FEATURE_BITS, int(node) & (2**track_graph.FEATURE_BITS - 1))
        for node in tracks.nodes
    ]
    bounds = tracks.offsets.tolist()
    return [nodes[begin:end] for begin, end in pairwise(bounds)]


def split(matches: list[Match], min_length: int = 2) -> list[list[Node]]:
    """Build tracks with the default conflict rule."""
    return tracks_of(build_tracks(edges_of(matches), conflicts="split", min_length=min_length))


def test_no_matches_give_no_tracks() -> None:
    """The empty set has one offset and no nodes."""
    tracks = build_tracks(edges_of([]), conflicts="split", min_length=2)

    assert tracks.offsets.tolist() == [0]
    assert tracks.nodes.tolist() == []


def test_chains_become_sorted_tracks() -> None:
    """Observations rise by (image, feature), tracks by their first observation."""
    matches: list[Match] = [
        ((2, 0), (3, 1), 9),
        ((1, 7), (0, 9), 9),
        ((1, 3), (2, 0), 9),
        ((0, 2), (3, 0), 9),
    ]

    tracks = split(matches)

    assert tracks == [[(0, 2), (3, 0)], [(0, 9), (1, 7)], [(1, 3), (2, 0), (3, 1)]]


@pytest.mark.parametrize(("min_length", "count"), [(3, 1), (4, 0)])
def test_short_tracks_are_left_out(min_length: int, count: int) -> None:
    """A track of three counts at a minimum of three, not of four."""
    matches: list[Match] = [((0, 0), (1, 0), 9), ((1, 0), (2, 0), 9), ((0, 1), (1, 1), 9)]

    assert len(split(matches, min_length)) == count


def conflict_of_two_triangles() -> list[Match]:
    """Return two clean triangles over images 0, 1, 2, joined by one strong wrong match to image 1."""
    triangles = [((a, track), (b, track), 20) for track in (0, 1) for a, b in combinations(range(3), 2)]
    return [*triangles, ((0, 0), (1, 1), 900)]


def test_split_removes_the_match_without_triangles() -> None:
    """Agreement with third images weighs more than the inliers of the pair."""
    tracks = build_tracks(edges_of(conflict_of_two_triangles()), conflicts="split", min_length=2)

    assert tracks_of(tracks) == [[(0, 0), (1, 0), (2, 0)], [(0, 1), (1, 1), (2, 1)]]
    assert tracks.removed_edges == 1


def test_reject_drops_the_whole_component() -> None:
    """A conflicting component disappears, a clean one stays."""
    matches: list[Match] = [*conflict_of_two_triangles(), ((0, 5), (2, 5), 20)]

    tracks = build_tracks(edges_of(matches), conflicts="reject", min_length=2)

    assert tracks_of(tracks) == [[(0, 5), (2, 5)]]
    assert tracks.rejected_components == 1


@pytest.mark.parametrize(
    ("strengths", "expected"),
    [((30, 20), [[(0, 0), (1, 0)]]), ((20, 30), [[(0, 1), (1, 0)]]), ((20, 20), [[(0, 0), (1, 0)]])],
)
def test_the_weaker_pair_gives_way(strengths: tuple[int, int], expected: list[list[Node]]) -> None:
    """Without triangles the pair with more inliers wins; at equal strength the smaller node."""
    matches: list[Match] = [((0, 0), (1, 0), strengths[0]), ((0, 1), (1, 0), strengths[1])]

    assert split(matches) == expected


random_matches = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 5), st.integers(0, 4)),
        st.tuples(st.integers(0, 5), st.integers(0, 4)),
        st.integers(15, 18),
    ).filter(lambda match: match[0][0] < match[1][0]),
    max_size=60,
    unique_by=lambda match: match[:2],
)


@settings(max_examples=200, deadline=None)
@given(matches=random_matches, seed=st.integers(0, 99))
def test_tracks_do_not_depend_on_the_order_of_matches(matches: list[Match], seed: int) -> None:
    """Any order and direction of the same matches gives the same tracks, each image once in each."""
    order = np.random.default_rng(seed).permutation(len(matches))
    shuffled: list[Match] = [(matches[i][1], matches[i][0], matches[i][2]) for i in order]

    tracks = split(matches)

    assert split(shuffled) == tracks
    assert all(len({image for image, _ in track}) == len(track) for track in tracks)
    assert len({node for track in tracks for node in track}) == sum(map(len, tracks))


@settings(max_examples=100, deadline=None)
@given(matches=random_matches)
def test_every_removed_match_would_conflict(matches: list[Match]) -> None:
    """Splitting removes no more than it must: no two tracks with a match between them could be joined."""
    tracks = split(matches)
    track_of = {node: index for index, track in enumerate(tracks) for node in track}
    for left, right, _ in matches:
        a, b = (tracks[track_of[node]] if node in track_of else [node] for node in (left, right))

        assert a is b or not {image for image, _ in a}.isdisjoint(image for image, _ in b)


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(1, 30),
    pairs=st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40),
)
def test_labels_equal_a_plain_union_find(count: int, pairs: list[tuple[int, int]]) -> None:
    """The array form labels components as the textbook form does: by their smallest node."""
    pairs = [(a % count, b % count) for a, b in pairs]
    expected = list(range(count))
    for _ in range(count):
        for a, b in pairs:
            expected[a] = expected[b] = min(expected[a], expected[b])
    ends = np.array(pairs, np.int64).reshape(-1, 2)

    labels = component_labels(count, ends[:, 0], ends[:, 1])

    assert labels.tolist() == expected


@pytest.mark.parametrize("wedges_per_step", [1, 7, 1 << 16])
def test_common_neighbours_equal_a_count_by_sets(
    wedges_per_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Support is the number of nodes adjacent to both ends, however the work is cut."""
    monkeypatch.setattr(track_graph, "WEDGES_PER_STEP", wedges_per_step)
    rng = np.random.default_rng(1)
    every = np.array(list(combinations(range(25), 2)))
    ends = every[rng.random(len(every)) < 0.4]
    neighbours = [{int(b) if a == node else int(a) for a, b in ends if node in (a, b)} for node in range(25)]

    support = common_neighbours(25, ends[:, 0], ends[:, 1])

    assert support.tolist() == [len(neighbours[a] & neighbours[b]) for a, b in ends]

"""Decides which verified matches form tracks: components of a graph, conflicts, canonical order.

A node is a feature of an image, an edge a verified match. Knows neither store
nor jobs; every order is total, so the result depends on the set of edges alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Nodes = NDArray[np.int64]
"""Node numbers: image << 32 | feature; their order is (image, feature)."""
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

FEATURE_BITS = 32
# Bounds the wedges that are looked at in one step (about 50 bytes each).
WEDGES_PER_STEP = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Verified matches: ``left`` and ``right`` nodes (E,), ``strength`` (E,) the inliers of their pairs."""

    left: Nodes
    right: Nodes
    strength: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackSet:
    """Tracks in canonical order: each one's nodes rising, the tracks by their first node.

    Track t holds ``nodes[offsets[t]:offsets[t + 1]]``.
    """

    offsets: NDArray[np.uint64]
    nodes: Nodes
    removed_edges: int
    """Edges that were left out to make conflicting components consistent."""
    rejected_components: int
    """Components dropped whole, as ``conflicts = reject`` asks."""


def node_numbers(image: int, features: NDArray[np.uint32]) -> Nodes:
    """Return the node numbers of an image's features."""
    return features.astype(np.int64) | (image << FEATURE_BITS)


def build_tracks(edges: Edges, *, conflicts: Literal["split", "reject"], min_length: int) -> TrackSet:
    """Join the edges to tracks in which every image occurs once.

    A component that holds two features of one image is a conflict. ``reject``
    drops it; ``split`` takes its edges from the strongest to the weakest and
    leaves out each one that would put two features of one image together. An
    edge is stronger the more features are matched with both its ends (a wrong
    match closes hardly any triangle), then the more inliers its pair has,
    then the smaller its nodes are.
    """
    nodes, ends = np.unique(np.concatenate((edges.left, edges.right)), return_inverse=True)
    first, second = np.split(ends.reshape(-1).astype(np.int64), 2)
    labels = component_labels(len(nodes), first, second)
    conflicting = _conflicting_nodes(labels, nodes >> FEATURE_BITS)
    removed = rejected = 0
    kept = np.ones(len(nodes), np.bool_)
    if conflicting.any() and conflicts == "reject":
        rejected = len(np.unique(labels[conflicting]))
        kept = ~conflicting
    elif conflicting.any():
        inside = np.flatnonzero(conflicting[first])
        removed = _split(labels, nodes, first[inside], second[inside], edges.strength[inside])
    offsets, members = _grouped(labels, kept, min_length)
    return TrackSet(
        offsets=offsets, nodes=nodes[members], removed_edges=removed, rejected_components=rejected
    )


def component_labels(node_count: int, first: Indices, second: Indices) -> Indices:
    """Return for each node the smallest node of its connected component.

    Union-find on whole arrays: every root that has a smaller neighbouring root
    is hooked to the smallest one, then all paths are compressed.
    """
    labels = np.arange(node_count, dtype=np.int64)
    while len(first):
        low, high = np.minimum(labels[first], labels[second]), np.maximum(labels[first], labels[second])
        apart = low != high
        first, second = first[apart], second[apart]
        np.minimum.at(labels, high[apart], low[apart])
        while not np.array_equal(labels, compressed := labels[labels]):
            labels = compressed
    return labels


def _conflicting_nodes(labels: Indices, images: Indices) -> Flags:
    """Tell which nodes lie in a component that holds an image twice."""
    order = np.lexsort((images, labels))
    twice = (np.diff(labels[order]) == 0) & (np.diff(images[order]) == 0)
    of_label = np.zeros(len(labels), np.bool_)
    of_label[labels[order][1:][twice]] = True
    return of_label[labels]


def _split(labels: Indices, nodes: Nodes, first: Indices, second: Indices, strength: Indices) -> int:
    """Relabel conflicting components to consistent groups; return how many edges were left out."""
    members, ends = np.unique(np.concatenate((first, second)), return_inverse=True)
    first, second = np.split(ends.reshape(-1).astype(np.int64), 2)
    low, high = np.minimum(first, second), np.maximum(first, second)
    support = common_neighbours(len(members), low, high)
    order = np.lexsort((high, low, -strength, -support))
    groups = _ConsistentGroups((nodes[members] >> FEATURE_BITS).tolist())
    removed = sum(not groups.join(int(low[edge]), int(high[edge])) for edge in order)
    labels[members] = members[groups.smallest_members()]
    return removed


class _ConsistentGroups:
    """Union-find whose groups never hold two nodes of one image; the root is a group's smallest node."""

    def __init__(self, images: list[int]) -> None:
        self._images = images
        self._parents = list(range(len(images)))
        # Only groups of two and more: single nodes are the many.
        self._images_of_root: dict[int, set[int]] = {}

    def join(self, first: int, second: int) -> bool:
        """Join two nodes' groups; False where they share an image (and are not one group)."""
        low, high = sorted((self._root(first), self._root(second)))
        if low == high:
            return True
        low_images = self._images_of_root.get(low) or {self._images[low]}
        high_images = self._images_of_root.get(high) or {self._images[high]}
        if not low_images.isdisjoint(high_images):
            return False
        larger, smaller = sorted((low_images, high_images), key=len, reverse=True)
        larger |= smaller
        self._images_of_root.pop(high, None)
        self._images_of_root[low] = larger
        self._parents[high] = low
        return True

    def smallest_members(self) -> Indices:
        """Return each node's root."""
        return np.array([self._root(node) for node in range(len(self._parents))], np.int64)

    def _root(self, node: int) -> int:
        parents = self._parents
        while parents[node] != node:
            parents[node] = parents[parents[node]]
            node = parents[node]
        return node


def common_neighbours(node_count: int, first: Indices, second: Indices) -> Indices:
    """Return for each edge how many nodes are neighbours of both its ends."""
    directed = np.unique(np.concatenate((first * node_count + second, second * node_count + first)))
    begins = np.searchsorted(directed, np.arange(node_count + 1) * node_count)
    degrees = np.diff(begins)
    swap = degrees[first] > degrees[second]
    few, many = np.where(swap, second, first), np.where(swap, first, second)
    support = np.zeros(len(first), np.int64)
    for step in _steps_of_bounded_sum(degrees[few], WEDGES_PER_STEP):
        counts = degrees[few[step]]
        edge = np.repeat(np.arange(len(counts)), counts)
        within = np.arange(len(edge)) - np.repeat(np.cumsum(counts) - counts, counts)
        neighbour = directed[begins[few[step]][edge] + within] % node_count
        wanted = many[step][edge] * node_count + neighbour
        found = directed[np.minimum(np.searchsorted(directed, wanted), len(directed) - 1)] == wanted
        support[step] = np.bincount(edge[found], minlength=len(counts))
    return support


def _steps_of_bounded_sum(counts: Indices, bound: int) -> Iterator[slice]:
    """Cut a run of counts into pieces whose sums do not exceed ``bound`` (or that hold one count)."""
    sums = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        before = sums[begin] - counts[begin]
        end = max(begin + 1, int(np.searchsorted(sums, before + bound, side="right")))
        yield slice(begin, end)
        begin = end


def _grouped(labels: Indices, kept: Flags, min_length: int) -> tuple[NDArray[np.uint64], Indices]:
    """Return offsets and member nodes of all groups of at least ``min_length``.

    Labels are smallest members, so their order is the order of first nodes.
    """
    lengths = np.bincount(labels[kept], minlength=len(labels))
    members = np.flatnonzero(kept & (lengths[labels] >= min_length))
    members = members[np.argsort(labels[members], kind="stable")]
    lengths = lengths[lengths >= max(min_length, 1)]
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.uint64)
    return offsets, members

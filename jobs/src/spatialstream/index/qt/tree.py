"""The QT-tree: a quadtree whose nodes are split by space or by text (SSTD, section 4.1.2), and its routing (4.2).

A spatial node sends an object to the child whose quarter contains it; a quarter includes its west and south borders.
The children of a textual node all have the node's box; an object goes to the child whose workload it increases least,
under the keyword lists at the time the tree was built. The lists are frozen, so that a replay routes identically. Ties
are broken by a stable hash of the object's id. :mod:`spatialstream.index.qt.construction` builds trees.

The textual choice needs the sum of p_w over those terms of an object that a child does not have yet. The tree has one
dictionary of its most used query keywords, sorted by use. Each textual node has a row of 4-bit masks over the
dictionary, which say which children list a term; nodes of the same cell share a row of (p_w in M_srq, p_w in M_skq), in
fixed point, so that sums do not depend on the order of the terms. Terms outside the dictionary have p_w = 0. In memory
these are dense tables for random access; files and ZooKeeper hold only the nonzero entries.

Cost: O(depth) per object, with O(terms) at textual nodes; O(depth x leaves that it concerns) per query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from spatialstream.index.base import Changes, GlobalIndex, Leaves
from spatialstream.index.boxes import BoxTuple
from spatialstream.index.cost import keyword_coverage
from spatialstream.index.polygons import without_outside
from spatialstream.index.qt.coverage import TreeLists, path_coverage
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Array, Bytes, Codes, Floats, Ints, Words, string_view
from spatialstream.model.covers import region_parts
from spatialstream.model.geometry import CIRCLE, EVERYWHERE, distance_to_box
from spatialstream.model.hashing import Table, find_all, hash_bytes, hash_strings, make_table, mix
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.tables import counted

__all__ = [
    "LEAF",
    "SPATIAL",
    "TEXTUAL",
    "UNIT",
    "Nodes",
    "QTTree",
    "TextualNodes",
    "depth_first",
]

LEAF, SPATIAL, TEXTUAL = 0, 1, 2
"""Kinds of node: not split, split into quarters, split by text."""

UNIT = 1 << 31
"""A probability of 1 in fixed point."""


def depth_first(kind: Sequence[int], child: Sequence[int]) -> list[int]:
    """The nodes reachable from the root, depth first, children in order."""
    stack, order = [0], []
    while stack:
        node = stack.pop()
        order.append(node)
        if kind[node] != LEAF:
            stack.extend(range(child[node] + 3, child[node] - 1, -1))
    return order


class Nodes(NamedTuple):
    """All nodes; 0 is the root. Children are consecutive: south-west, south-east, north-west, north-east.

    Nodes keep their numbers when the tree is adjusted, because tie-breaking depends on them. So a merge leaves a gap of
    four nodes until a split reuses it: unreachable nodes of kind LEAF without a leaf number.

    Attributes:
        kind: int8[n], LEAF, SPATIAL or TEXTUAL.
        child: int32[n], the first child; -1 for a leaf.
        leaf: int32[n], number of the leaf, in depth-first order; -1 for inner nodes and in gaps.
        row: int32[n], position among the textual nodes; -1 for other nodes.
        box: float64[n, 4], (west, south, east, north).
    """

    kind: npt.NDArray[np.int8]
    child: Codes
    leaf: Codes
    row: Codes
    box: Floats

    @classmethod
    def of(cls, kind: list[int], child: list[int], box: list[BoxTuple], leaves: list[int], textual: list[int]) -> Nodes:
        """Build from a list per column; ``leaves`` and ``textual`` are the reachable nodes of these kinds, in order."""
        leaf, row = np.full(len(kind), -1, np.int32), np.full(len(kind), -1, np.int32)
        leaf[leaves], row[textual] = np.arange(len(leaves)), np.arange(len(textual))
        return cls(np.array(kind, np.int8), np.array(child, np.int32), leaf, row, np.array(box))


class TextualNodes(NamedTuple):
    """The r textual nodes, frozen.

    Attributes:
        mask: uint8[r, g]; bit i of term w is set if w is in the keyword list of child i.
        cell: int32[r], row of ``chance`` with the node's M_srq and M_skq.
        chance: uint32[c, g, 2], p_w in M_srq and in M_skq, as multiples of 1 / UNIT; see also
            :mod:`spatialstream.index.qt.wordlists`.
        objects: float64[r, 4], abs(O) of each child.
        mass: int64[r, 4, 2], H_srq and H_skq of each child, as multiples of 1 / UNIT.
        weight: float64[r, 2], Pr(srq) p_srq and Pr(skq) p_skq.
        lengths: float64[r, 2, l], Pr(abs(q.φ) = l) of SRQ and SKQ.
    """

    mask: Bytes
    cell: Codes
    chance: npt.NDArray[np.uint32]
    objects: Floats
    mass: Ints
    weight: Floats
    lengths: Floats


# ------------------------------------------------------------------------------------------------------------ kernels


@lean_kernel
def growth(objects: float, mass: int, new: int, lengths: Floats) -> float:
    """The increase of Pr(q.φ ⊆ P.φ) abs(O), for SRQ or SKQ, if one object is added to P.

    Args:
        objects: abs(O) before.
        mass: H before, in fixed point.
        new: the increase of H by the object's new keywords, in fixed point.
        lengths: Pr(abs(q.φ) = l).
    """
    after = keyword_coverage(lengths, (mass + new) / UNIT)
    if new == 0:  # so that equal costs come out equal
        return after
    return after + objects * (after - keyword_coverage(lengths, mass / UNIT))


@lean_kernel
def add_missing(mask: int, srq: np.int64, skq: np.int64, new: Ints) -> None:
    """Add a term's p_w to ``new`` int64[4, 2] of each child whose bit in ``mask`` is not set."""
    for child in range(4):
        missing = 1 - ((mask >> child) & 1)
        new[child, 0] += missing * srq
        new[child, 1] += missing * skq


@kernel
def ties(cost: Floats) -> int:
    """How many of 4 costs equal the smallest one."""
    best = min(min(cost[0], cost[1]), min(cost[2], cost[3]))
    return int(cost[0] == best) + int(cost[1] == best) + int(cost[2] == best) + int(cost[3] == best)


@lean_kernel
def choose(cost: Floats, seed: Any) -> int:
    """The child with the smallest of 4 costs; the bits of ``seed`` (uint64) break ties."""
    equal = ties(cost)
    skip = 0 if equal == 1 else int(seed % np.uint64(equal))
    best = min(min(cost[0], cost[1]), min(cost[2], cost[3]))
    for i in range(4):
        if cost[i] == best:
            if skip == 0:
                return i
            skip -= 1
    return 0


@kernel
def tie_seed(hashed: Any, node: int) -> Any:
    """The bits (uint64) that break a tie at a node; different for each node, or nested ties would be correlated."""
    return mix(hashed + np.uint64(node + 1) * np.uint64(0x9E3779B97F4A7C15))


@lean_kernel
def _textual_child(
    nodes: Nodes,
    texts: TextualNodes,
    node: int,
    known: Codes,
    codes: Codes,
    start: int,
    end: int,
    new: Ints,
    cost: Floats,
) -> bool:
    """Fill ``cost`` with the increases of the four children; return whether the smallest one is unique."""
    row = nodes.row[node]
    cell = texts.cell[row]
    new[:] = 0
    for i in range(start, end):
        term = known[codes[i]]
        if term >= 0:
            srq, skq = np.int64(texts.chance[cell, term, 0]), np.int64(texts.chance[cell, term, 1])
            add_missing(texts.mask[row, term], srq, skq, new)
    cost[:] = 0.0
    for kind in range(2):
        weight = texts.weight[row, kind]
        if weight > 0.0:
            lengths = texts.lengths[row, kind]
            for child in range(4):
                grown = growth(texts.objects[row, child], texts.mass[row, child, kind], new[child, kind], lengths)
                cost[child] += weight * grown
    return ties(cost) == 1


@lean_kernel
def _quarter(box: Floats, x: float, y: float) -> int:
    """The child of a spatial node that contains a point."""
    return (1 if x >= 0.5 * (box[0] + box[2]) else 0) + (2 if y >= 0.5 * (box[1] + box[3]) else 0)


@kernel
def _route_objects(
    nodes: Nodes,
    texts: TextualNodes,
    x: Floats,
    y: Floats,
    known: Codes,
    offsets: Codes,
    codes: Codes,
    id_offsets: Codes,
    id_bytes: Bytes,
    out: Codes,
) -> None:
    new = np.empty((4, 2), np.int64)
    cost = np.empty(4)
    for i in range(len(out)):
        node = 0
        hashed = np.uint64(0)
        is_hashed = False
        while nodes.kind[node] != LEAF:
            if nodes.kind[node] == SPATIAL:
                child = _quarter(nodes.box[node], x[i], y[i])
            elif _textual_child(nodes, texts, node, known, codes, offsets[i], offsets[i + 1], new, cost):
                child = choose(cost, hashed)
            else:
                if not is_hashed:
                    hashed = hash_bytes(id_bytes, id_offsets[i], id_offsets[i + 1])
                    is_hashed = True
                child = choose(cost, tie_seed(hashed, node))
            node = nodes.child[node] + child
        out[i] = nodes.leaf[node]


@kernel
def _route_regions(
    geographic: bool, nodes: Nodes, leaves: int, kind: Bytes, shape: Floats, parts: Floats, offsets: Ints, out: Codes
) -> None:
    """Find the leaves that each region intersects: count them in ``offsets[1:]`` if ``out`` is empty, else fill it."""
    counting = len(out) == 0
    stack = np.empty((len(nodes.kind), 2), np.int64)  # node, and bits of the boxes (of two) that intersect it
    for q in range(len(kind)):
        found = 0
        if kind[q] == EVERYWHERE:
            if counting:
                offsets[q + 1] = leaves
            else:
                for leaf in range(leaves):
                    out[offsets[q] + leaf] = leaf
            continue
        stack[0, 0] = 0
        stack[0, 1] = 1 if parts[q, 1, 0] > parts[q, 1, 2] else 3
        depth = 1
        while depth > 0:
            depth -= 1
            node, alive = stack[depth, 0], stack[depth, 1]
            box = nodes.box[node]
            if nodes.kind[node] == LEAF:
                if kind[q] == CIRCLE:
                    gap = distance_to_box(geographic, shape[q, 0], shape[q, 1], box[0], box[1], box[2], box[3])
                    if gap > shape[q, 2]:
                        continue
                if not counting:
                    out[offsets[q] + found] = nodes.leaf[node]
                found += 1
            elif nodes.kind[node] == TEXTUAL:
                for child in range(3, -1, -1):
                    stack[depth, 0], stack[depth, 1] = nodes.child[node] + child, alive
                    depth += 1
            else:
                x = 0.5 * (box[0] + box[2])
                y = 0.5 * (box[1] + box[3])
                for child in range(3, -1, -1):
                    meets = 0
                    for part in range(2):
                        if alive & (1 << part):
                            in_x = parts[q, part, 2] >= x if child & 1 else parts[q, part, 0] < x
                            in_y = parts[q, part, 3] >= y if child & 2 else parts[q, part, 1] < y
                            if in_x and in_y:
                                meets |= 1 << part
                    if meets:
                        stack[depth, 0], stack[depth, 1] = nodes.child[node] + child, meets
                        depth += 1
        if counting:
            offsets[q + 1] = found


@kernel
def _nearest_leaves(nodes: Nodes, texts: TextualNodes, at: Floats, out: Codes) -> None:
    for i in range(len(out)):
        node = 0
        while nodes.kind[node] != LEAF:
            if nodes.kind[node] == SPATIAL:
                child = _quarter(nodes.box[node], at[i, 0], at[i, 1])
            else:
                child = int(np.argmax(texts.objects[nodes.row[node]]))
            node = nodes.child[node] + child
        out[i] = nodes.leaf[node]


# ---------------------------------------------------------------------------------------------------------- the index


class QTTree(GlobalIndex):
    """A QT-tree.

    Args:
        space: the space that the root covers.
        nodes: the nodes.
        texts: the textual nodes.
        table: the dictionary.
        leaves: the leaves, in the order of their numbers.
    """

    kind: ClassVar[str] = "qt-tree"

    def __init__(self, space: Space, nodes: Nodes, texts: TextualNodes, table: Table, leaves: Leaves) -> None:
        self.space = space
        self.nodes = nodes
        self.texts = texts
        self.table = table
        self.leaves = leaves

    def route_objects(self, objects: ObjectBatch) -> Codes:
        """See :class:`GlobalIndex`."""
        terms = objects.terms
        if len(self.texts.cell):
            known = find_all(self.table, hash_strings(terms.vocabulary))
        else:
            known = np.empty(0, np.int32)  # never read
        out = np.empty(len(objects), np.int32)
        ids = string_view(objects.ids)
        _route_objects(self.nodes, self.texts, objects.x, objects.y, known, terms.offsets, terms.codes, *ids, out)
        return out

    def route_regions(self, regions: Regions) -> tuple[Codes, Codes]:
        """The leaves that each region intersects: (row int32[m], leaf int32[m]), ascending by (row, leaf)."""
        parts = region_parts(self.space, regions)
        offsets = np.zeros(len(regions) + 1, np.int64)
        arguments = (self.space.geographic, self.nodes, len(self.leaves), regions.kind, regions.shape, parts, offsets)
        _route_regions(*arguments, np.empty(0, np.int32))
        lengths = offsets[1:].copy()
        np.cumsum(offsets, out=offsets)
        leaf = np.empty(offsets[-1], np.int32)
        if len(leaf):
            _route_regions(*arguments, leaf)
        row = np.repeat(np.arange(len(regions), dtype=np.int32), lengths)
        return without_outside(self.space.geographic, regions, row, leaf, self.leaves.box)

    def nearest_leaves(self, at: Floats) -> Codes:
        """See :class:`GlobalIndex`. Of textual shares of one cell, the one with the most objects."""
        out = np.empty(len(at), np.int32)
        _nearest_leaves(self.nodes, self.texts, at, out)
        return out

    @property
    def dictionary(self) -> Words:
        """The hashes of the dictionary's terms, in order, uint64[g]."""
        result = np.empty(self.texts.mask.shape[1], np.uint64)
        used = self.table.values >= 0
        result[self.table.values[used]] = self.table.keys[used]
        return result

    def textual_paths(self) -> list[tuple[tuple[int, int], ...]]:
        """The textual nodes above each leaf, from the root down: (row in ``texts``, child on the path to the leaf).

        Cost: O(nodes x depth).
        """
        paths: list[tuple[tuple[int, int], ...]] = []
        stack: list[tuple[int, tuple[tuple[int, int], ...]]] = [(0, ())]
        kind, first, row = self.nodes.kind.tolist(), self.nodes.child.tolist(), self.nodes.row.tolist()
        while stack:
            node, path = stack.pop()
            if kind[node] == LEAF:
                paths.append(path)
            for child in range(3, -1, -1) if kind[node] != LEAF else ():
                stack.append((first[node] + child, (*path, (row[node], child)) if kind[node] == TEXTUAL else path))
        return paths

    def coverage(self, statistics: Statistics, cells: Ints) -> Floats:
        """See :class:`GlobalIndex`: that of the keyword lists above each leaf (:mod:`.coverage`)."""
        lists = TreeLists(self.texts.mask, self.table, statistics)
        paths = [lists.along(path) for path in self.textual_paths()]
        found = [path_coverage(statistics, int(cell), path) for cell, path in zip(cells, paths, strict=True)]
        return np.array(found).reshape(-1, 2)

    def composition(self) -> Changes:
        """See :class:`GlobalIndex`: nodes that are split by space, and by text."""
        kinds = np.bincount(self.nodes.kind, minlength=3)
        spatial, textual = int(kinds[SPATIAL]), int(kinds[TEXTUAL])
        text = f"{counted(spatial, 'node', 'nodes')} split by space and {counted(textual, 'node', 'nodes')} by text"
        return Changes({"spatial_splits": spatial, "textual_splits": textual}, text)

    def weighed(self, objects: Floats, load: Floats) -> QTTree:
        """See :class:`GlobalIndex`."""
        leaves = Leaves(self.leaves.box, self.leaves.textual, objects, load)
        return QTTree(self.space, self.nodes, self.texts, self.table, leaves)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """See :class:`GlobalIndex`. Masks and chances are stored as sparse rows if most entries are 0."""
        arrays: dict[str, Array] = {"dictionary": self.dictionary}
        arrays |= {f"nodes.{name}": array for name, array in self.nodes._asdict().items()}
        for name, array in self.texts._asdict().items():
            arrays |= _sparse(f"texts.{name}", array) if name in _SPARSE else {f"texts.{name}": array}
        for name in Leaves.__slots__:
            arrays[f"leaves.{name}"] = getattr(self.leaves, name)
        return arrays, {"space": str(self.space)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """See :class:`GlobalIndex`. Sparse masks and chances are expanded."""
        dictionary = arrays["dictionary"]
        shape = {"mask": (len(dictionary),), "chance": (len(dictionary), 2)}
        texts = {
            name: _dense(f"texts.{name}", arrays, shape[name]) if name in _SPARSE else arrays[f"texts.{name}"]
            for name in TextualNodes._fields
        }
        return cls(
            Space.parse(meta["space"]),
            Nodes(*(arrays[f"nodes.{name}"] for name in Nodes._fields)),
            TextualNodes(**texts),
            make_table(dictionary),
            Leaves(*(arrays[f"leaves.{name}"] for name in Leaves.__slots__)),
        )


_SPARSE = ("mask", "chance")


def _sparse(name: str, array: Array) -> dict[str, Array]:
    """The nonzero entries of an array [rows, g] or [rows, g, 2]: their columns by row, and their values.

    If most entries are nonzero, the array itself.
    """
    filled = array.any(axis=2) if array.ndim == 3 else array != 0
    if 2 * np.count_nonzero(filled) > filled.size:
        return {name: array}
    row, column = np.nonzero(filled)
    offsets = np.searchsorted(row, np.arange(len(array) + 1)).astype(np.int32)
    width = np.uint16 if array.shape[1] <= 1 << 16 else np.uint32
    return {f"{name}.offsets": offsets, f"{name}.term": column.astype(width), f"{name}.value": array[row, column]}


def _dense(name: str, arrays: Mapping[str, Array], shape: tuple[int, ...]) -> Array:
    """The array from the result of :func:`_sparse`."""
    if name in arrays:
        return arrays[name]
    offsets, value = arrays[f"{name}.offsets"], arrays[f"{name}.value"]
    result = np.zeros((len(offsets) - 1, *shape), value.dtype)
    result[np.repeat(np.arange(len(result)), np.diff(offsets)), arrays[f"{name}.term"]] = value
    return result

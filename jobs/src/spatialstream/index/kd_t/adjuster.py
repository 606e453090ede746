"""Adjustment of a kd^t-tree to the load: CM, *cell migration* (PS2Stream, section V-A).

Load goes from the most loaded slot, w_o, to the least loaded one, w_l, in two phases:

- Phase I makes the work less. Of the :data:`HEAVIEST` heaviest leaves of w_o, one that is a whole cell is divided by
  text into two shares, if these have less work together than the cell has, and the share with fewer queries goes to
  w_l. One that is a share goes to w_l, if another share of its cell is there and both have less work together than
  apart.
- Phase II follows if loads are not balanced yet: cells of w_o with τ = (L_o - L_l) / 2 of the load, and with as few
  queries as possible, go to w_l (:mod:`~spatialstream.index.kd_t.migration`).

That is repeated until the load balance constraint holds, at most once for each slot, or until nothing changes.

**Cells.** The paper's grid^t has many cells to a leaf of the kd^t-tree. Here a leaf that is a whole cell is cut for
phase II, as in a kd-tree, until a part has no more than one in :data:`FINE` of τ; where both sides move or stay no cut
is left. So there are not many more leaves than before, and at most the stream's limit. A share of a cell moves as a
whole.

**Figures.** Work in phase I is Definition 1 of the sample. The load by which balance is judged is that of SSTD (Eqn 2),
counted by leaf; a part of a leaf has as much of it as it has of the leaf's work. For S, the paper's bytes of queries,
stand the continuous queries, which move; for those of a part, the sampled ones.

What differs, beside: nothing moves that would make the load of w_l as high as that of w_o was; the paper has no such
bound. In phase I a cell with fewer than :data:`~spatialstream.index.kd_t.construction.LEAST` sampled objects is not
divided, because their words say nothing. Two shares of a cell in one slot stay two leaves: the slot has each object and
each query once, so merging them would change no work.

Cost: O(sampled records x (heaviest leaves + leaves of w_o that are cut)) per repetition.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.a_grid.continuous import ContinuousQueries
from spatialstream.index.a_grid.costs import Costs, Rectangle
from spatialstream.index.adjustment import Adjustment, LeafLoads, Limits
from spatialstream.index.base import Changes
from spatialstream.index.kd_t.construction import LEAST
from spatialstream.index.kd_t.dealing import Part, deal, divided
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.kd_t.migration import greedy
from spatialstream.index.kd_t.workload import Workload
from spatialstream.index.origins import Origins
from spatialstream.index.partition import imbalance
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Floats, Ints, Words
from spatialstream.model.tables import counted

__all__ = ["FINE", "HEAVIEST", "PARTS", "migrate_cells"]

HEAVIEST = 8
"""p of phase I."""

FINE = 8
"""A part of a leaf that may move has at most one in so many of τ, if it can be cut."""

PARTS = 64
"""Maximum number of parts into which the leaves of a slot are cut at a time, beside the leaves themselves."""

_ROUNDING = 1e-9
"""Work that is less by such a fraction is not less: sums of the same numbers differ so."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf of the index that is being adjusted.

    Attributes:
        slot: where it is.
        source: the old leaf that it originates from.
        load: by Eqn 2.
        objects: its share of the source's objects.
        queries: its share of the source's continuous queries.
    """

    slot: int
    source: int
    load: float
    objects: float = 1.0
    queries: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """A cell, with a leaf for each of its shares, and the words that were dealt to these."""

    rectangle: Rectangle
    leaves: tuple[_Leaf, ...]
    words: Words = field(default_factory=lambda: np.empty(0, np.uint64))
    shares: Codes = field(default_factory=lambda: np.empty(0, np.int32))


@dataclass(slots=True, eq=False)
class _Piece:
    """A part of a cell that is not divided by text: a node of the tree of its cuts.

    Attributes:
        rectangle: where it is.
        work: Definition 1.
        halves: its parts; none if it is not cut.
        moves: whether it moves; only that of a part that is not cut counts.
    """

    rectangle: Rectangle
    work: float
    halves: tuple[_Piece, ...] = ()
    moves: bool = False

    def uncut(self) -> list[_Piece]:
        """Its parts that are not cut."""
        return [part for half in self.halves for part in half.uncut()] if self.halves else [self]

    def together(self) -> list[_Piece]:
        """The largest parts that move, or stay, as a whole; where there is no work, it does not matter."""
        if not self.halves:
            return [self]
        decided = {part.moves for part in self.uncut() if part.work > 0.0}
        if len(decided) < 2:
            self.moves = any(decided)
            return [self]
        return [part for half in self.halves for part in half.together()]


@dataclass(slots=True)
class _Done:
    """What was done, and what loads became of it."""

    divided: int = 0
    reunited: int = 0
    moved: int = 0
    cut: int = 0

    def changes(self) -> Changes:
        """In figures and in words."""
        text = (
            f"{counted(self.divided, 'cell', 'cells')} divided by text, "
            f"{counted(self.reunited, 'share', 'shares')} reunited with another of their cell, "
            f"{counted(self.cut, 'leaf', 'leaves')} cut, {counted(self.moved, 'leaf', 'leaves')} moved"
        )
        counts = {"textual_splits": self.divided, "reunited": self.reunited, "cuts": self.cut, "moved": self.moved}
        return Changes(counts, text)


@dataclass(slots=True, eq=False)
class _State:
    """The state of an adjustment: its cells, and the loads of the slots."""

    cells: list[_Cell]
    slots: int
    continuous: Floats
    workload: Workload
    costs: Costs
    sampled: ContinuousQueries
    most: int
    done: _Done = field(default_factory=_Done)

    @property
    def loads(self) -> Floats:
        """Of the slots, float64[slots]."""
        leaves = [leaf for cell in self.cells for leaf in cell.leaves]
        loads = np.bincount([leaf.slot for leaf in leaves], [leaf.load for leaf in leaves], self.slots)
        return loads.astype(np.float64)

    def of_slot(self, slot: int) -> list[tuple[int, int]]:
        """The leaves of a slot: (cell, share), the heaviest first."""
        places = [
            (cell, share)
            for cell, each in enumerate(self.cells)
            for share, leaf in enumerate(each.leaves)
            if leaf.slot == slot
        ]
        return sorted(places, key=lambda place: (-self.leaf(*place).load, place))

    def leaf(self, cell: int, share: int) -> _Leaf:
        """A leaf."""
        return self.cells[cell].leaves[share]

    def queries(self, leaf: _Leaf) -> float:
        """The continuous queries of a leaf: the paper's S."""
        return leaf.queries * float(self.continuous[leaf.source])

    def send(self, cell: int, share: int, slot: int) -> None:
        """Give a leaf to a slot."""
        leaves = list(self.cells[cell].leaves)
        leaves[share] = replace(leaves[share], slot=slot)
        self.cells[cell] = replace(self.cells[cell], leaves=tuple(leaves))

    def within(self, rectangle: Rectangle) -> tuple[Ints, Ints]:
        """The sampled objects and the entries of queries of a rectangle."""
        work = self.workload
        everything = np.arange(len(work.rate)), np.arange(len(work.entry))
        return work.objects_within(rectangle, everything[0]), work.entries_within(rectangle, everything[1])

    # -------------------------------------------------------------------------------------------------------- phase I

    def lighten(self, heavy: int, light: int) -> bool:
        """Phase I: whether it has moved anything."""
        moved = False
        for cell, share in self.of_slot(heavy)[:HEAVIEST]:
            loads = self.loads
            room = float(loads[heavy] - loads[light])
            if len(self.cells[cell].leaves) == 1:
                moved |= self._divide(cell, light, room)
            elif self.leaf(cell, share).load < room and self._belongs(cell, share, light):
                self.send(cell, share, light)
                self.done.reunited += 1
                moved = True
        return moved

    def _divide(self, cell: int, light: int, room: float) -> bool:
        """Divide a cell by text and move a share, if that makes the work less and leaves the slot's load below."""
        objects, entries = self.within(self.cells[cell].rectangle)
        if len(objects) < LEAST or self._count() >= self.most:
            return False
        dealt, leaf, stands = deal(self.workload, objects, entries, 2), self.leaf(cell, 0), self.workload.standing
        whole, standing = self.workload.load(objects, entries), float(stands[entries].sum())
        if dealt.load >= whole * (1.0 - _ROUNDING) or not standing:
            return False
        queries = [min(float(stands[part.entries].sum()) / standing, 1.0) for part in dealt.parts]
        leaves = [
            replace(leaf, load=leaf.load * part.load / whole, objects=leaf.objects / 2, queries=leaf.queries * asked)
            for part, asked in zip(dealt.parts, queries, strict=True)
        ]
        given = int(np.argmin(queries))
        if leaves[given].load >= room:
            return False
        leaves[given] = replace(leaves[given], slot=light)
        words, shares = self.workload.hashes[dealt.words], dealt.shares.astype(np.int32)
        self.cells[cell] = _Cell(self.cells[cell].rectangle, tuple(leaves), words, shares)
        self.done.divided += 1
        return True

    def _belongs(self, cell: int, share: int, slot: int) -> bool:
        """Whether a slot has other shares of a cell, and would have less work with this one than two slots have."""
        here, each = [], self._parts(cell)
        for other, leaf in enumerate(self.cells[cell].leaves):
            if leaf.slot == slot:
                here.append(each[other])
        if not here:
            return False
        both = [*here, each[share]]
        return self._together(both) < (self._together(here) + each[share].load) * (1.0 - _ROUNDING)

    def _parts(self, cell: int) -> tuple[Part, ...]:
        """What comes to each share of a cell."""
        of = self.cells[cell]
        return divided(self.workload, *self.within(of.rectangle), len(of.leaves), of.words, of.shares)

    def _together(self, parts: list[Part]) -> float:
        """The work of shares in one slot."""
        objects, entries = (np.unique(np.concatenate(each)) for each in zip(*map(_rows, parts), strict=True))
        return self.workload.load(objects, entries)

    def _count(self) -> int:
        return sum(len(cell.leaves) for cell in self.cells)

    # ------------------------------------------------------------------------------------------------------- phase II

    def migrate(self, heavy: int, light: int) -> bool:
        """Phase II: whether it has moved anything."""
        loads = self.loads
        gap = float(loads[heavy] - loads[light])
        places = self.of_slot(heavy)
        pieces = self._pieces(places, gap / 2 / FINE)
        units = [(place, part) for place in places for part in self._units(pieces, place)]
        load, size = (np.array(each) for each in zip(*(self._figures(pieces, *unit) for unit in units), strict=True))
        chosen = greedy(load, size, gap / 2, gap)
        for unit in chosen.tolist():
            (cell, share), part = units[unit]
            if part is None:
                self.send(cell, share, light)
                self.done.moved += 1
            else:
                part.moves = True
        self._settle(pieces, light)
        return len(chosen) > 0

    def _units(self, pieces: dict[int, _Piece], place: tuple[int, int]) -> list[_Piece | None]:
        """What may move of a leaf: its parts, or, as None, the leaf."""
        return [*pieces[place[0]].uncut()] if place[0] in pieces else [None]

    def _figures(self, pieces: dict[int, _Piece], place: tuple[int, int], part: _Piece | None) -> tuple[float, float]:
        """L and S of what may move."""
        leaf = self.leaf(*place)
        if part is None:
            return leaf.load, self.queries(leaf)
        whole = pieces[place[0]]
        return leaf.load * _share(part, whole), self.queries(leaf) * self.sampled.share(part.rectangle, whole.rectangle)

    def _pieces(self, places: list[tuple[int, int]], most: float) -> dict[int, _Piece]:
        """The cells among some leaves, cut until no part has more than ``most`` of the load; by cell."""
        pieces, heap = dict[int, _Piece](), list[tuple[float, int, _Piece, float]]()
        for cell, share in places:
            if len(self.cells[cell].leaves) == 1:
                rectangle = self.cells[cell].rectangle
                piece = pieces[cell] = _Piece(rectangle, self._work(rectangle))
                unit = self.leaf(cell, share).load / max(piece.work, 1e-300)
                heap.append((-piece.work * unit, len(heap), piece, unit))
        heapq.heapify(heap)
        room = min(PARTS, self.most - self._count())
        number = len(heap)
        while room > 0 and heap and -heap[0][0] > most:
            *_, piece, unit = heapq.heappop(heap)
            cut = self.costs.best_cut(piece.rectangle)
            if cut is None:
                continue
            parts = [(rectangle, self._work(rectangle)) for rectangle in cut.of(piece.rectangle)]
            both = sum(work for _, work in parts)
            # a part has as much of the load as of the work, and the loads of the parts add up
            piece.halves = tuple(
                _Piece(rectangle, piece.work * (work / both if both else 0.5)) for rectangle, work in parts
            )
            for half in piece.halves:
                number += 1
                heapq.heappush(heap, (-half.work * unit, number, half, unit))
            room -= 1
        return pieces

    def _work(self, rectangle: Rectangle) -> float:
        return self.workload.load(*self.within(rectangle))

    def _settle(self, pieces: dict[int, _Piece], light: int) -> None:
        """Leave those cuts of cells between whose sides something has moved; from the last cell to the first."""
        for cell in sorted(pieces, reverse=True):
            whole, leaf = pieces[cell], self.leaf(cell, 0)
            parts = whole.together()
            moving = [part for part in parts if part.moves]
            if not moving:
                continue
            self.done.moved += len(moving)
            self.done.cut += len(parts) > 1
            held = self._held([part.rectangle for part in parts])
            self.cells[cell : cell + 1] = [
                _Cell(
                    part.rectangle,
                    (
                        replace(
                            leaf,
                            slot=light if part.moves else leaf.slot,
                            load=leaf.load * _share(part, whole),
                            objects=leaf.objects * share,
                            queries=leaf.queries * self.sampled.share(part.rectangle, whole.rectangle),
                        ),
                    ),
                )
                for part, share in zip(parts, held, strict=True)
            ]

    def _held(self, parts: list[Rectangle]) -> list[float]:
        """How the objects of a cell are divided among its parts: as the sampled ones, or else as the cell's area."""
        rates = [float(self.workload.rate[self.within(part)[0]].sum()) for part in parts]
        if not sum(rates):
            rates = [float((east - west) * (north - south)) for west, south, east, north in parts]
        return [rate / sum(rates) for rate in rates]


def _rows(part: Part) -> tuple[Ints, Ints]:
    return part.objects, part.entries


def _share(part: _Piece, whole: _Piece) -> float:
    """What a part has of the load of a cell; a cell that is not cut has all of it."""
    return 1.0 if part is whole else part.work / whole.work


# ----------------------------------------------------------------------------------------------------------- strategy


def migrate_cells(index: KdT, known: LeafLoads, statistics: Statistics, slots: int, limits: Limits) -> Adjustment:
    """CM: move cells from the most loaded slot to the least loaded one, until loads are balanced.

    Args:
        index: the index; it is not modified.
        known: what is known of the load of its leaves; it has a sample.
        statistics: J.
        slots: number of slots.
        limits: λ and the maximum number of leaves.
    """
    assert known.sample is not None  # who calls this has seen to it
    state = _state_of(index, known, known.sample, statistics, slots, limits)
    ended = f"it moved cells {slots:,} times"
    for _ in range(slots):
        loads = state.loads
        heavy, light = int(loads.argmax()), int(loads.argmin())
        if loads[heavy] <= loads[light]:
            ended = "all slots have the same load"
            break
        moved = state.lighten(heavy, light)
        if not (moved and imbalance(state.loads) <= limits.imbalance):
            loads = state.loads
            moved |= bool(loads[heavy] > loads[light]) and state.migrate(heavy, light)
        if not moved:
            ended = "no cell of the most loaded slot lowers the load by moving"
            break
        if imbalance(state.loads) <= limits.imbalance:
            ended = "loads are balanced"
            break
    return _finished(index, known, state, ended)


def _state_of(
    index: KdT, known: LeafLoads, sample: Sample, statistics: Statistics, slots: int, limits: Limits
) -> _State:
    """The index as it is before the adjustment."""
    side = index.cells.side
    workload = Workload.of(sample.objects, statistics, index.frequencies, side)
    costs = Costs(side, workload.column, workload.row, workload.rate)
    first, offsets, words, shares = index.table
    cells = []
    for cell, rectangle in enumerate(index.cells.rectangles.tolist()):
        rows = range(int(first[cell]), int(first[cell + 1]))
        leaves = tuple(_Leaf(int(known.mapping[leaf]), leaf, float(known.load[leaf])) for leaf in rows)
        dealt = slice(offsets[cell], offsets[cell + 1])
        cells.append(_Cell(tuple(rectangle), leaves, words[dealt], shares[dealt]))
    most = max(limits.leaves, len(index.leaves))
    return _State(cells, slots, known.continuous, workload, costs, ContinuousQueries(sample, side), most)


def _finished(index: KdT, known: LeafLoads, state: _State, ended: str) -> Adjustment:
    """The adjusted index, the origins of its leaves, and where they are."""
    cells = state.cells
    leaves = [leaf for cell in cells for leaf in cell.leaves]
    first, offsets = (np.zeros(len(cells) + 1, np.int64) for _ in range(2))
    np.cumsum([len(cell.leaves) for cell in cells], out=first[1:])
    np.cumsum([len(cell.words) for cell in cells], out=offsets[1:])
    words = np.concatenate([cell.words for cell in cells])
    shares = np.concatenate([cell.shares for cell in cells])
    rectangles = np.array([cell.rectangle for cell in cells], np.int32)
    nothing = np.zeros(len(cells))
    grid = AGrid(index.space, rectangles, nothing, nothing, index.cells.side)
    each = np.arange(len(leaves), dtype=np.int32)
    source = np.array([leaf.source for leaf in leaves], np.int32)
    objects, queries = (np.array([getattr(leaf, name) for leaf in leaves]) for name in ("objects", "queries"))
    origins = Origins(each, source, objects, queries, len(leaves))
    load = np.array([leaf.load for leaf in leaves])
    table = first.astype(np.int32), offsets, words, shares
    made = KdT(grid, *table, index.frequencies, origins.carry_objects(known.objects), load)
    mapping = np.array([leaf.slot for leaf in leaves], np.int32)
    return Adjustment(made, origins, state.done.changes(), ended, mapping)

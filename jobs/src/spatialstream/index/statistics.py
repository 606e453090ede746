"""J: the statistics of where queries go, what they ask and how long they last (SSTD, section 4.1.1 and figure 5).

J is a complete quadtree of fixed depth over the space, all levels kept. Cell 0 is the space, and the children of cell c
are 4c + 1 + j with j = (east half) + 2 (north half). A :class:`Statistics` holds counts only: how many queries of each
type reach each cell, how often their keywords do, how many objects each cell got in how much time. Probabilities and
rates are quotients of counts, taken when they are asked for. A query counts for as many as it stands for: J of a live
stream is made from a :class:`~spatialstream.index.sample.Sample` of it whenever somebody wants it, and kept nowhere.

Cost: O(cells that the query's border crosses + depth) for each query, O(1) for each object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spatialstream.index.cost import CellStatistics, workloads
from spatialstream.model.arrays import Codes, Floats, Ints, Words
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.expressions import has_marks, searched
from spatialstream.model.hashing import distinct, hash_strings
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CANCEL, CODE, TYPES, QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.times import TIME_LIMIT

__all__ = ["LEVELS", "SKQ", "SRQ", "KeywordCounts", "Statistics"]

LEVELS = 5
"""Default depth: 4^5 = 1024 cells on the finest level."""

SRQ, SKQ, CKQ = (CODE[kind] for kind in (QueryType.SRQ, QueryType.SKQ, QueryType.CKQ))

_LONGEST = 16
"""Queries with more keywords than this count as if they had this many."""

_BUCKETS = 64
"""Durations are counted by powers of two of a ms."""

_ENDLESS = 30 * 86_400_000
"""A query that lives until it is cancelled counts as one of this duration, in ms."""

_SLACK = 1e-6
"""Share of a finest cell by which rounding may move a border that boxes and cells have in common."""


def cell_count(levels: int) -> int:
    """Cells of all levels from 0 to ``levels``."""
    return int((4 ** (levels + 1) - 1) // 3)


def _scatter(offsets: Ints) -> Ints:
    """The owner of each entry of a CSR structure."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


# ---------------------------------------------------------------------------------------- which cells a query reaches


@kernel
def _visit(levels: int, first: Ints, second: Ints, offsets: Ints, rows: Ints) -> None:
    """Cells that each pair of ranges of finest cells meets: row 2 c where it meets part of c, 2 c + 1 where all of c.

    Cells below a covered one are left out. With empty ``rows`` only counts into ``offsets[1:]``, else fills ``rows``.
    """
    counting = len(rows) == 0
    stack = np.empty((4 * levels + 4, 4), np.int64)  # cell, width, column and row of its south-west finest cell
    for q in range(len(first)):
        found = 0
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, 1 << levels, 0, 0
        depth = 1
        while depth > 0:
            depth -= 1
            cell, width, x, y = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
            meets = False
            covered = width == 1
            for part in (first, second):
                w, s, e, n = part[q, 0], part[q, 1], part[q, 2], part[q, 3]
                if w < x + width and e >= x and s < y + width and n >= y:
                    meets = True
                    covered |= w <= x and e >= x + width - 1 and s <= y and n >= y + width - 1
            if not meets:
                continue
            if not counting:
                rows[offsets[q] + found] = 2 * cell + (1 if covered else 0)
            found += 1
            if covered:
                continue
            half = width // 2
            for child in range(4):
                stack[depth, 0], stack[depth, 1] = 4 * cell + 1 + child, half
                stack[depth, 2], stack[depth, 3] = x + half * (child & 1), y + half * (child >> 1)
                depth += 1
        if counting:
            offsets[q + 1] = found


@kernel
def _pair_keys(
    queries: Ints,
    visit_offsets: Ints,
    rows: Ints,
    term_offsets: Codes,
    codes: Codes,
    ranks: Codes,
    terms: int,
    weight: Floats,
    keys: Ints,
    weights: Floats,
) -> None:
    """``keys``: row * terms + rank for each row that a query visits and each of its keywords; ``weights``: its own."""
    k = 0
    for q in queries:
        for v in range(visit_offsets[q], visit_offsets[q + 1]):
            for i in range(term_offsets[q], term_offsets[q + 1]):
                keys[k] = rows[v] * terms + ranks[codes[i]]
                weights[k] = weight[q]
                k += 1


def _finest_ranges(space: Space, parts: Floats, levels: int) -> Ints:
    """Boxes float64[n, 4] as closed ranges int64[n, 4] of columns and rows of finest cells."""
    side = 1 << levels
    west, south, east, north = space.bounds
    scaled = (parts - np.array([west, south] * 2)) * (side / np.array([east - west, north - south] * 2))
    ranges: Ints = np.clip(np.floor(scaled), 0, side - 1).astype(np.int64)
    ranges[parts[:, 0] > parts[:, 2]] = (side, side, -1, -1)
    return ranges


def _finest_cells(space: Space, x: Floats, y: Floats, levels: int) -> Ints:
    """The finest cell of each point."""
    side = 1 << levels
    west, south, east, north = space.bounds
    column = np.clip((x - west) * (side / (east - west)), 0, side - 1).astype(np.int64)
    row = np.clip((y - south) * (side / (north - south)), 0, side - 1).astype(np.int64)
    cell = np.zeros(len(x), np.int64)
    for bit in range(levels - 1, -1, -1):
        cell = 4 * cell + 1 + ((column >> bit) & 1) + 2 * ((row >> bit) & 1)
    return cell


def _add_up(counts: Floats, levels: int) -> None:
    """Give every cell the sum of its children, from the finest level (already counted) up."""
    for level in range(levels - 1, -1, -1):
        first, last = cell_count(level - 1) if level else 0, cell_count(level)
        counts[first:last] = counts[4 * first + 1 : 4 * last + 1].reshape(-1, 4).sum(axis=1)


# ---------------------------------------------------------------------------------------------- how far a kNN reaches


def _nearest_boxes(
    space: Space,
    objects: ObjectBatch,
    weight: Floats,
    counts: Floats,
    span: float,
    levels: int,
    queries: QueryBatch,
) -> Floats:
    """Estimated search regions of SKQs and CKQs, as parts float64[n, 2, 4].

    A search region is the circle around ρ that holds k objects with all the keywords and of the right time. Keywords
    and time are taken as independent: of the sampled objects one in 1 / selectivity qualifies, where the selectivity
    is the product of the keywords' document frequencies and of min(1, duration / span). So the circle has to hold m =
    k / selectivity objects. The density around ρ is that of the smallest cell of J that covers ρ and holds m objects;
    the radius follows from m = density π r². If there are not m objects at all, every cell is reached.
    """
    each = np.repeat(weight, np.diff(objects.terms.offsets))
    frequency = np.bincount(objects.terms.codes, each, len(objects.terms.vocabulary))
    codes, _ = distinct(pa.concat_arrays([objects.terms.vocabulary, queries.keywords.vocabulary]))
    known = codes[len(frequency) :]  # the terms of objects are distinct, so each is its own code
    known = np.where(known < len(frequency), known, -1)
    rarest = 0.5 * (float(weight.max(initial=0.0)) or 1.0)
    share = np.append(np.maximum(frequency, rarest), rarest)[known] / (float(weight.sum()) or 1.0)
    logs = np.append(0.0, np.cumsum(np.log(share)[queries.keywords.codes]))
    selectivity = np.exp(logs[queries.keywords.offsets[1:]] - logs[queries.keywords.offsets[:-1]])
    lasts = np.where(queries.window >= 0, np.minimum(queries.window, queries.duration), queries.duration)
    selectivity *= np.clip(lasts / max(span, 1.0), 1e-12, 1.0)
    needed = queries.k / np.maximum(selectivity, 1e-300)

    x, y = queries.at.T
    west, south, east, north = space.bounds
    shrink = np.maximum(np.cos(np.radians(y)), 1e-3) if space.geographic else np.ones(len(queries))
    area = (east - west) * shrink * (north - south)
    cell = _finest_cells(space, x, y, levels)
    radius = np.full(len(queries), np.inf)
    for level in range(levels, -1, -1):
        enough = np.isinf(radius) & (counts[cell] >= needed)
        density = counts[cell[enough]] * 4.0**level / area[enough]
        radius[enough] = np.sqrt(needed[enough] / (np.pi * density))
        cell = (cell - 1) // 4
    wide = radius / shrink
    parts = np.empty((len(queries), 2, 4))
    parts[:, 0] = np.stack([x - wide, y - radius, x + wide, y + radius], axis=1)
    parts[:, 1] = NOWHERE
    if space.geographic:
        for crossing, shift in ((parts[:, 0, 0] < west, 360.0), (parts[:, 0, 2] > east, -360.0)):
            parts[crossing, 1] = parts[crossing, 0] + (shift, 0.0, shift, 0.0)
    return parts


# --------------------------------------------------------------------------------------------------------- the counts


@dataclass(frozen=True, slots=True, eq=False)
class KeywordCounts:
    """How often the queries of a type that reach a cell have each keyword, sparse.

    Row 2 c counts queries that reach cell c and not all of it, row 2 c + 1 those that cover c: they concern every cell
    below it too, and are written down once.

    Attributes:
        offsets: int64[2 cells + 1]; row r is the entries from ``offsets[r]`` to ``offsets[r + 1]``.
        term: int32[m], positions in :attr:`Statistics.terms`, ascending in a row.
        count: float64[m].
    """

    offsets: Ints
    term: Codes
    count: Floats

    @classmethod
    def of(cls, keys: Ints, weights: Floats, rows: int, terms: int) -> KeywordCounts:
        """From keys row * terms + term and their weights; equal keys are added up."""
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.empty(0, np.int64)
        distinct = keys[starts]
        count = np.add.reduceat(weights, starts) if len(keys) else np.empty(0)
        offsets = np.searchsorted(distinct, np.arange(rows + 1) * max(terms, 1))
        return cls(offsets, (distinct % max(terms, 1)).astype(np.int32), count)

    def entries(self, cell: int) -> tuple[Codes, Floats]:
        """Keywords of the queries that reach the cell: (term int32[m], count float64[m]); counts of a term add up."""
        rows = [2 * cell]
        while cell >= 0:
            rows.append(2 * cell + 1)
            cell = (cell - 1) // 4 if cell else -1
        parts = [slice(self.offsets[row], self.offsets[row + 1]) for row in rows]
        return np.concatenate([self.term[part] for part in parts]), np.concatenate([self.count[part] for part in parts])

    def of_cell(self, cell: int, terms: int) -> Floats:
        """How often each of ``terms`` terms is a keyword of a query that reaches the cell: float64[terms]."""
        term, count = self.entries(cell)
        return np.bincount(term, count, minlength=terms).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """The counts of J; all of them float64, because a query may stand for several.

    Attributes:
        space: what cell 0 is.
        levels: the finest level.
        queries: float64[6], queries of each type, in the order of :data:`spatialstream.model.kinds.TYPES`.
        reached: float64[6, cells], those that reach each cell.
        lengths: float64[6, l], those with l keywords.
        durations: float64[6, b], those with a duration of b bits (in ms).
        duration_sums: float64[6, b], the sum of these durations in ms.
        terms: uint64[v], hashes of the keywords, ascending.
        srq, skq: M_srq and M_skq.
        objects: float64[cells], objects in each cell.
        span: the time in ms in which they came.
    """

    space: Space
    levels: int
    queries: Floats
    reached: Floats
    lengths: Floats
    durations: Floats
    duration_sums: Floats
    terms: Words
    srq: KeywordCounts
    skq: KeywordCounts
    objects: Floats
    span: float

    @classmethod
    def of(
        cls,
        space: Space,
        objects: ObjectBatch,
        queries: QueryBatch,
        span: float,
        levels: int = LEVELS,
        weights: tuple[Floats, Floats] | None = None,
    ) -> Statistics:
        """Statistics of a period of history, or of a sample of it.

        Args:
            space: the stream's space.
            objects: the objects that came in the period. The search regions of SKQs and CKQs are estimated from them:
                from the density of objects around ρ and the frequency of the keywords.
            queries: the queries that came; cancellations are passed over.
            span: its length in ms.
            levels: the finest level of J.
            weights: how many objects, and how many queries, each of them stands for; by default itself alone.
        """
        weight, asked = (np.ones(len(objects)), np.ones(len(queries))) if weights is None else weights
        if not len(queries) or (queries.code == CANCEL).any():
            chosen = np.flatnonzero(queries.code != CANCEL)
            queries, asked = queries.take(chosen), asked[chosen]
        cells = cell_count(levels)
        counts = np.bincount(_finest_cells(space, objects.x, objects.y, levels), weight, cells).astype(np.float64)
        _add_up(counts, levels)

        if has_marks(queries.keywords):
            queries = replace(queries, keywords=searched(queries.keywords))
        parts = region_parts(space, queries.regions)
        nearest = np.flatnonzero((queries.code == SKQ) | (queries.code == CKQ))
        if len(nearest):
            parts[nearest] = _nearest_boxes(space, objects, weight, counts, span, levels, queries.take(nearest))
        first, second = (_finest_ranges(space, parts[:, part], levels) for part in (0, 1))
        visits = np.zeros(len(queries) + 1, np.int64)
        _visit(levels, first, second, visits, np.empty(0, np.int64))
        np.cumsum(visits, out=visits)
        rows = np.empty(visits[-1], np.int64)
        if len(rows):
            _visit(levels, first, second, visits, rows)

        code = queries.code.astype(np.int64)
        visitor = _scatter(visits)
        hit = np.bincount(code[visitor] * 2 * cells + rows, asked[visitor], len(TYPES) * 2 * cells)
        partly, wholly = np.moveaxis(hit.reshape(len(TYPES), cells, 2).astype(np.float64), 2, 0)
        for level in range(1, levels + 1):
            above, start, end = cell_count(level - 2) if level > 1 else 0, cell_count(level - 1), cell_count(level)
            wholly[:, start:end] += np.repeat(wholly[:, above:start], 4, axis=1)

        lengths = np.minimum(np.diff(queries.keywords.offsets), _LONGEST).astype(np.int64)
        duration = np.where(queries.duration > TIME_LIMIT, _ENDLESS, queries.duration).astype(np.float64)
        buckets = np.frexp(duration)[1].astype(np.int64)
        hashes = hash_strings(queries.keywords.vocabulary)
        terms, ranks = np.unique(hashes, return_inverse=True)

        def keyword_counts(kind: int) -> KeywordCounts:
            chosen = np.flatnonzero(code == kind)
            size = int((np.diff(visits)[chosen] * np.diff(queries.keywords.offsets)[chosen]).sum())
            keys, each = np.empty(size, np.int64), np.empty(size)
            words, places = queries.keywords, ranks.astype(np.int32)
            _pair_keys(chosen, visits, rows, words.offsets, words.codes, places, len(terms), asked, keys, each)
            return KeywordCounts.of(keys, each, 2 * cells, len(terms))

        def table(column: Ints, width: int, of_each: Floats) -> Floats:
            flat = np.bincount(code * width + column, of_each, len(TYPES) * width)
            return flat.reshape(len(TYPES), width).astype(np.float64)

        return cls(
            space,
            levels,
            np.bincount(code, asked, len(TYPES)).astype(np.float64),
            partly + wholly,
            table(lengths, _LONGEST + 1, asked),
            table(buckets, _BUCKETS, asked),
            table(buckets, _BUCKETS, asked * duration),
            terms,
            keyword_counts(SRQ),
            keyword_counts(SKQ),
            counts,
            float(span),
        )

    # -------------------------------------------------------------------------------------------- probabilities, rates

    def cells_of(self, boxes: Floats) -> Ints:
        """The smallest cell of J that covers each box float64[n, 4] (west, south, east, north), int64[n].

        A box that ends where the next cell begins is not taken to reach into that. A box smaller than J's finest cells
        gets the finest cell that it lies in, unless it stands astride of two.
        """
        side = 1 << self.levels
        west, south, east, north = self.space.bounds
        scaled = (boxes - np.array([west, south] * 2)) * (side / np.array([east - west, north - south] * 2))
        low = np.clip(np.floor(scaled[:, :2] + _SLACK), 0, side - 1).astype(np.int64)
        high = np.clip(np.ceil(scaled[:, 2:] - _SLACK) - 1, low, side - 1).astype(np.int64)
        apart = np.bitwise_or.reduce(low ^ high, axis=1)
        level = self.levels - np.frexp(apart.astype(np.float64))[1]
        cell = np.zeros(len(boxes), np.int64)
        for bit in range(self.levels - 1, -1, -1):
            below = 4 * cell + 1 + ((low[:, 0] >> bit) & 1) + 2 * ((low[:, 1] >> bit) & 1)
            cell = np.where(level >= self.levels - bit, below, cell)
        return cell

    def reach(self, cells: Ints) -> Floats:
        """p_srq, ..., p_ctq of each cell, float64[6, n]; 0 for a type that no query has."""
        result: Floats = self.reached[:, cells] / np.maximum(self.queries, 1e-300)[:, np.newaxis]
        return result

    def similarity(self, box: tuple[float, float, float, float]) -> float:
        """ĥ (section 5.3, before Eqn 3): which part of the queries that reach a cell reach one of its quarters.

        With N_0 the smallest cell of J that covers the box and N_1 to N_4 its quarters, it is the sum over i and j of
        N_i.p_j, divided by 4 times the sum over j of N_0.p_j: from 0.25, where each query meets one quarter, to 1,
        where each meets all four.

        On J's finest level nothing is known about quarters: they count as being reached by what reaches the cell, so ĥ
        is 1, which speaks for text. Where no query reaches N_0 at all it is 0, which speaks for space: an even choice
        goes to space in Algorithm 1 too.

        Args:
            box: (west, south, east, north).
        """
        cell = int(self.cells_of(np.array([box]))[0])
        whole = float(self.reach(np.array([cell])).sum())
        if whole == 0.0:
            return 0.0
        quarters = 4 * cell + 1 + np.arange(4)
        if quarters[3] >= len(self.objects):
            return 1.0
        return float(self.reach(quarters).sum()) / (4.0 * whole)

    def cell(self, cell: int) -> CellStatistics:
        """What the cost model wants to know of a cell. A type that no query has has probability 0."""
        lengths = self.lengths[[SRQ, SKQ]]
        longest = int(np.flatnonzero(np.append(1.0, lengths.any(axis=0)))[-1])
        lengths = lengths[:, : max(longest, 1)].copy()
        durations = [self.duration_distribution(kind) for kind in range(len(TYPES))]
        return CellStatistics(
            self.queries / max(float(self.queries.sum()), 1e-300),
            self.reach(np.array([cell]))[:, 0],
            lengths / np.maximum(lengths.sum(axis=1, keepdims=True), 1e-300),
            np.array([chance @ duration for chance, duration in durations]),
        )

    def workloads(self, cells: Ints, objects: Floats, rate: Floats, h: Floats) -> Floats:
        """Eqn 2 of n partitions under these queries, float64[n]; where there are none at all, the objects they hold.

        Args:
            cells: int64[n], the cell that each partition is, or is a share of.
            objects: float64[n], abs(O).
            rate: float64[n], E_P in objects a ms.
            h: float64[n, 2], H_srq and H_skq.
        """
        if not self.queries.any():
            return objects.astype(np.float64)
        return workloads(self.cell(0), self.reach(cells), objects, rate, h)

    def duration_distribution(self, kind: int) -> tuple[Floats, Floats]:
        """Pr(q.τ = T) and T in ms, of a type: durations that differ by less than a factor 2 are taken as their mean."""
        count = self.durations[kind]
        return count / max(float(count.sum()), 1e-300), self.duration_sums[kind] / np.maximum(count, 1e-300)

    def keyword_distribution(self, cell: int, kind: int) -> Floats:
        """M_srq (``kind`` SRQ) or M_skq of a cell: p_w of each of :attr:`terms`, float64[v]; all 0 without keywords."""
        counts = (self.srq if kind == SRQ else self.skq).of_cell(cell, len(self.terms))
        return counts / max(float(counts.sum()), 1e-300)

    def rates(self, x: Floats, y: Floats) -> Floats:
        """Arrivals in a ms that each object of a sample stands for: E_obj of its finest cell, shared out there.

        So the rates of the objects of any partition add up to its E_P, also of a textual share of a cell.
        """
        cells = _finest_cells(self.space, x, y, self.levels)
        sampled = np.bincount(cells, minlength=len(self.objects))
        result: Floats = self.objects[cells] / (sampled[cells] * max(self.span, 1.0))
        return result

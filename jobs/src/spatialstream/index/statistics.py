"""J: statistics of the regions, keywords and lifetimes of queries (SSTD, section 4.1.1 and figure 5).

J is a quadtree (:mod:`spatialstream.index.cells`) that is deeper where there are more sampled objects and queries: a
cell with :data:`LEAST` of them is split, and there are at most :data:`MOST` cells. A :class:`Statistics` holds, for
each cell, the number of queries of each type that reach it, counts of their keywords, and the number of objects that
arrived in a time span. A sampled query counts as the number of queries it represents. J of a live stream is computed
from a :class:`~spatialstream.index.sample.Sample` on request, and not stored.

If few queries were counted in a cell, the figures of its ancestors are used: a cell's p is its parent's p times the
cell's share, which is estimated with a prior (:func:`_smoothed`). Keyword frequencies, numbers of keywords and
lifetimes of a cell with few queries are those of its nearest ancestor with enough.

The *shape* of an expression is its number of groups and their lengths (:meth:`Statistics.coverage`).

Cost: O(cells that the query's border crosses + depth) per query, O(depth) per object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spatialstream.index.cellcounts import CellCounts, Reaching
from spatialstream.index.cells import Cells, Visits
from spatialstream.index.cost import CellStatistics, expression_coverage, workloads
from spatialstream.model.arrays import Codes, Floats, Ints, Words
from spatialstream.model.covers import NOWHERE, region_parts
from spatialstream.model.expressions import expanded, has_marks, searched
from spatialstream.model.hashing import distinct, hash_strings
from spatialstream.model.kernels import kernel
from spatialstream.model.kinds import CANCEL, CODE, IS_CONTINUOUS, TYPES, QueryType, Route, having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["SKQ", "SRQ", "Statistics"]

LEAST = 8
"""Minimum number of sampled objects and queries of a cell of J that is split."""

MOST = 32_768
"""Maximum number of cells of J."""

DEPTH = 12
"""The deepest level of J."""

_PRIOR = 8.0
"""Weight of the prior, in queries, that a cell's quarters are reached with the average shares of their level."""

_WORDS = 64.0
"""Minimum number of keywords for a cell to use its own keyword frequencies instead of an ancestor's; also the minimum
number of queries to use its own shapes and lifetimes."""

SRQ, SKQ = (CODE[kind] for kind in (QueryType.SRQ, QueryType.SKQ))

_NEAREST = having(lambda kind: kind.has_point)
"""Whether each code is of a query about a point, bool[codes]."""

_REGIONAL = having(lambda kind: kind.route is Route.REGION)
"""Whether each code is of a query with a region, bool[codes]."""

_LONGEST = 16
"""Groups with more keywords than this are counted with this number."""

_BUCKETS = 64
"""Number of buckets of durations: bucket b holds those of b bits in ms."""

_LONGEST_LIFE = 30 * 86_400_000
"""Maximum lifetime, in ms: queries with a longer one, or without an end, are counted with this lifetime."""


@kernel
def _added_up(code: Ints, offsets: Ints, rows: Codes, of_each: Floats, totals: Floats) -> None:
    """Add three figures of each query, float64[n, 3], to ``totals`` float64[types, rows, 3] by type and reached row."""
    for q in range(len(code)):
        sums = totals[code[q]]
        for row in rows[offsets[q] : offsets[q + 1]]:
            for what in range(3):
                sums[row, what] += of_each[q, what]


# ---------------------------------------------------------------------------------------------- how far a kNN reaches


def _nearest_boxes(
    space: Space,
    objects: ObjectBatch,
    weight: Floats,
    counts: Floats,
    span: float,
    cells: Cells,
    queries: QueryBatch,
) -> Floats:
    """Estimated search regions of SKQs and CKQs, as parts float64[n, 2, 4].

    A search region is the circle around ρ that contains k objects with all the keywords and in the time range. Keywords
    and time are assumed to be independent: a fraction of the sampled objects qualifies, the selectivity, which is the
    product of the keywords' document frequencies and of min(1, duration / span). So the circle has to contain m =
    k / selectivity objects. The density around ρ is that of the smallest cell of J that contains ρ and at least m
    objects; the radius follows from m = density π r². If there are fewer than m objects in total, every cell is
    reached.
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
    cell = cells.of_points(x, y)
    radius = np.full(len(queries), np.inf)
    for _ in range(cells.depth + 1):
        enough = np.isinf(radius) & (counts[cell] >= needed)
        density = counts[cell[enough]] * 4.0 ** cells.level[cell[enough]] / area[enough]
        radius[enough] = np.sqrt(needed[enough] / (np.pi * density))
        cell = cells.parent[cell].astype(np.int64)
    wide = radius / shrink
    parts = np.empty((len(queries), 2, 4))
    parts[:, 0] = np.stack([x - wide, y - radius, x + wide, y + radius], axis=1)
    parts[:, 1] = NOWHERE
    if space.geographic:
        for crossing, shift in ((parts[:, 0, 0] < west, 360.0), (parts[:, 0, 2] > east, -360.0)):
            parts[crossing, 1] = parts[crossing, 0] + (shift, 0.0, shift, 0.0)
    return parts


# --------------------------------------------------------------------------------------------------------- the counts


def _centres(space: Space, queries: QueryBatch) -> tuple[Floats, Floats]:
    """A point for each query with a location: ρ, or the centre of its region."""
    parts = region_parts(space, queries.regions)[:, 0]
    regional = np.flatnonzero(_REGIONAL[queries.code] & (parts[:, 0] <= parts[:, 2]))
    nearest = np.flatnonzero(_NEAREST[queries.code])
    x = np.append((parts[regional, 0] + parts[regional, 2]) / 2.0, queries.at[nearest, 0])
    y = np.append((parts[regional, 1] + parts[regional, 3]) / 2.0, queries.at[nearest, 1])
    return x, y


def _without_cancellations(queries: QueryBatch, weights: Floats) -> tuple[QueryBatch, Floats]:
    """The queries but for cancellations, and what each of them stands for."""
    if len(queries) and not (queries.code == CANCEL).any():
        return queries, weights
    chosen = np.flatnonzero(queries.code != CANCEL)
    return queries.take(chosen), weights[chosen]


def _cells(space: Space, objects: ObjectBatch, queries: QueryBatch, levels: int | None) -> Cells:
    """The cells of J: smaller where objects and queries are; or all of some levels."""
    if levels is not None:
        return Cells.complete(space, levels)
    x, y = _centres(space, queries)
    x, y = np.append(objects.x, x), np.append(objects.y, y)
    return Cells.adaptive(space, x, y, least=LEAST, most=MOST, depth=DEPTH)


def _reached_parts(
    space: Space, objects: ObjectBatch, weight: Floats, counts: Floats, span: float, cells: Cells, queries: QueryBatch
) -> Floats:
    """What each query reaches, as parts float64[n, 2, 4]: its region, or what :func:`_nearest_boxes` estimates."""
    parts = region_parts(space, queries.regions)
    nearest = np.flatnonzero(_NEAREST[queries.code])
    if len(nearest):
        parts[nearest] = _nearest_boxes(space, objects, weight, counts, span, cells, queries.take(nearest))
    return parts


def _by_cell(cells: Cells, visits: Visits, code: Ints, of_each: Floats) -> Floats:
    """Three figures of each query, float64[n, 3], added up by type and reached cell, float64[3, types, cells]."""
    n = len(cells)
    totals = np.zeros((len(TYPES), 2 * n, 3))
    _added_up(code, *visits, of_each, totals)
    partly, wholly = np.ascontiguousarray(totals.reshape(len(TYPES), n, 2, 3).transpose(2, 3, 0, 1))
    cells.hand_down(wholly.reshape(-1, n))
    result: Floats = partly + wholly
    return result


def _histogram(code: Ints, column: Ints, width: int, weight: Floats) -> Floats:
    """Weights added up by type and by the value of a column, float64[types, width]."""
    flat = np.bincount(code * width + column, weight, len(TYPES) * width)
    return flat.reshape(len(TYPES), width).astype(np.float64)


def _smoothed(cells: Cells, came: Floats, reached: Floats, prior: float) -> Floats:
    """The fraction p of each type's queries that reaches each cell, float64[types, n].

    The fraction of the parent's queries that reach a cell is estimated as if ``prior`` additional queries had reached
    the parent and were distributed over its quarters as on average on that level. So the prior dominates if there are
    few queries, and vanishes if there are many.
    """
    shares: Floats = reached / np.maximum(came, 1e-300)[:, np.newaxis]
    if prior == 0.0:
        return shares
    for level in cells.levels()[1:]:
        parent = cells.parent[level]
        above = reached[:, parent]
        usual = reached[:, level].sum(axis=1) / np.maximum(above.sum(axis=1), 1e-300)
        part = (reached[:, level] + prior * usual[:, np.newaxis]) / (above + prior)
        shares[:, level] = shares[:, parent] * part
    return shares


def _shapes(keywords: TermLists) -> tuple[Codes, Ints]:
    """The shape of each group of n expressions, see :class:`Statistics`, int32[m]; and the groups per expression."""
    if has_marks(keywords):
        found = expanded(keywords)
        groups, sizes = np.bincount(found.owner, minlength=len(keywords)), np.diff(found.groups.offsets)
    else:
        groups, sizes = np.ones(len(keywords), np.int64), np.diff(keywords.offsets)
    shapes = (np.repeat(groups, groups) - 1) * (_LONGEST + 1) + np.minimum(sizes, _LONGEST)
    return shapes.astype(np.int32), groups.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """The counts of J. They are float64, because a sampled query may represent several.

    Attributes:
        space: the space, which is cell 0.
        cells: the n cells.
        queries: float64[types], queries of each type, in the order of :data:`spatialstream.model.kinds.TYPES`.
        reached: float64[types, n], queries of each type that reach each cell.
        shares: float64[types, n], p_srq, ..., p_ctq: the fraction of a type's queries that reach each cell, smoothed.
        lengths: float64[types, l], queries with l keywords; a query with several groups counts in equal parts for the
            length of each.
        durations: float64[types, b], queries with a duration of b bits (in ms).
        duration_sums: float64[types, b], the sum of these durations in ms.
        lifetimes: float64[types, n], mean lifetime of the queries that reach each cell, in ms.
        basis: int32[6, n], the cell whose lifetimes are used for each cell: itself, or its nearest ancestor with enough
            queries.
        terms: uint64[v], hashes of the keywords, ascending.
        srq, skq: M_srq and M_skq, as counts of positions in ``terms``.
        shapes: counts of the groups of SRQs and SKQs and their lengths: (groups - 1) (longest + 1) + length. A query
            counts in equal parts for its groups.
        objects: float64[n], objects in each cell.
        span: the time in ms in which they arrived.
        crqs: the CRQs among the queries, for an index that registers them by words.
        crq_counts: float64[crqs], how many CRQs each stands for.
    """

    space: Space
    cells: Cells
    queries: Floats
    reached: Floats
    shares: Floats
    lengths: Floats
    durations: Floats
    duration_sums: Floats
    lifetimes: Floats
    basis: Codes
    terms: Words
    srq: CellCounts
    skq: CellCounts
    shapes: tuple[CellCounts, CellCounts]
    objects: Floats
    span: float
    crqs: QueryBatch
    crq_counts: Floats

    @classmethod
    def of(
        cls,
        space: Space,
        objects: ObjectBatch,
        queries: QueryBatch,
        span: float,
        levels: int | None = None,
        weights: tuple[Floats, Floats] | None = None,
    ) -> Statistics:
        """Compute the statistics of a period of history, or of a sample of it.

        Args:
            space: the stream's space.
            objects: the objects that arrived in the period. The search regions of SKQs and CKQs are estimated from the
                density of objects around ρ and the frequency of the keywords.
            queries: the queries that arrived; cancellations are ignored.
            span: the period's length in ms.
            levels: None: J is adaptive and smoothed. Otherwise it is a complete quadtree of this depth with raw counts
                and with the same lengths and durations in all cells, as in the paper.
            weights: number of objects that each object, and of queries that each query represents; 1 by default.
        """
        weight, query_weight = (np.ones(len(objects)), np.ones(len(queries))) if weights is None else weights
        queries, query_weight = _without_cancellations(queries, query_weight)
        code = queries.code.astype(np.int64)
        cells = _cells(space, objects, queries, levels)
        arrived = np.bincount(cells.of_points(objects.x, objects.y), weight, len(cells)).astype(np.float64)
        cells.add_up(arrived)
        words = searched(queries.keywords) if has_marks(queries.keywords) else queries.keywords
        worded = replace(queries, keywords=words)
        visits = cells.visits(_reached_parts(space, objects, weight, arrived, span, cells, worded))

        duration = np.minimum(queries.duration, _LONGEST_LIFE).astype(np.float64)
        figures = np.stack([np.ones(len(code)), duration, np.diff(words.offsets)], axis=1)
        reached, lasting, keywords = _by_cell(cells, visits, code, query_weight[:, np.newaxis] * figures)
        one = float(query_weight.mean()) if len(query_weight) else 1.0
        prior, enough, enough_words = _PRIOR * one, _WORDS * one, _WORDS * one
        if levels is not None:  # as in the paper
            prior, enough, enough_words = 0.0, np.inf, 0.0
        basis, word_basis = (
            np.stack([cells.nearest(flags) for flags in counted])
            for counted in (reached >= enough, keywords >= enough_words)
        )

        count = np.bincount(code, query_weight, len(TYPES)).astype(np.float64)
        buckets = np.frexp(duration)[1].astype(np.int64)
        duration_sums = _histogram(code, buckets, _BUCKETS, query_weight * duration)
        lifetimes = lasting / np.maximum(reached, 1e-300)
        lifetimes[:, 0] = duration_sums.sum(axis=1) / np.maximum(count, 1e-300)

        terms, ranks = np.unique(hash_strings(words.vocabulary), return_inverse=True)
        shape_of, groups = _shapes(queries.keywords)
        part, ends = query_weight / groups, np.append(0, np.cumsum(groups)).astype(np.int32)
        length = (shape_of % (_LONGEST + 1)).astype(np.int64)
        by_word = words.offsets, ranks.astype(np.int32)[words.codes], len(terms), query_weight
        by_shape = ends, shape_of, int(shape_of.max(initial=0)) + 1, part
        srq, skq = Reaching.of(cells, visits, code, (SRQ, SKQ))
        crqs = np.flatnonzero(queries.code == CODE[QueryType.CRQ])
        return cls(
            space=space,
            cells=cells,
            queries=count,
            reached=reached,
            shares=_smoothed(cells, count, reached, prior),
            lengths=_histogram(np.repeat(code, groups), length, _LONGEST + 1, np.repeat(part, groups)),
            durations=_histogram(code, buckets, _BUCKETS, query_weight),
            duration_sums=duration_sums,
            lifetimes=np.take_along_axis(lifetimes, basis, axis=1),
            basis=basis,
            terms=terms,
            srq=CellCounts(srq, *by_word, word_basis[SRQ]),
            skq=CellCounts(skq, *by_word, word_basis[SKQ]),
            shapes=(CellCounts(srq, *by_shape, basis[SRQ]), CellCounts(skq, *by_shape, basis[SKQ])),
            objects=arrived,
            span=float(span),
            crqs=queries.take(crqs),
            crq_counts=query_weight[crqs],
        )

    # -------------------------------------------------------------------------------------------- probabilities, rates

    def cells_of(self, boxes: Floats) -> Ints:
        """The smallest cell of J that covers each box float64[n, 4] (west, south, east, north), int64[n]."""
        return self.cells.of_boxes(boxes)

    def reach(self, cells: Ints) -> Floats:
        """p_srq, ..., p_ctq of each cell, float64[types, n]; 0 for a type without queries."""
        result: Floats = self.shares[:, cells]
        return result

    def similarity(self, box: tuple[float, float, float, float], weighted: bool = True) -> float:
        """ĥ (section 5.3, before Eqn 3): the mean fraction of a cell's queries that reach one of its quarters.

        With N_0 the smallest cell of J that covers the box and N_1 to N_4 its quarters, ĥ is the sum over i and j of
        Pr(j) N_i.p_j, divided by 4 times the sum over j of Pr(j) N_0.p_j. It ranges from 0.25, if each query intersects
        one quarter, to 1, if each intersects all four. The paper omits the probabilities Pr(j) of the types, which
        gives a rare type that goes everywhere, such as kNN queries, the same influence as any other type.

        If the cell of J is not split, nothing is known about its quarters: they are assumed to be reached by all its
        queries, so ĥ is 1, which favours a split by text. If no query reaches N_0, ĥ is 0, which favours a split by
        space, as ties do in Algorithm 1.

        Args:
            box: (west, south, east, north).
            weighted: whether types are weighted by their probabilities; otherwise ĥ is computed as printed in the
                paper.
        """
        cell = int(self.cells_of(np.array([box]))[0])
        chance = self.queries if weighted else np.ones(len(TYPES))
        whole = float(chance @ self.shares[:, cell])
        if whole == 0.0 or not self.reached[:, cell].any():
            return 0.0
        first = int(self.cells.first[cell])
        if first < 0:
            return 1.0
        return float((chance @ self.shares[:, first : first + 4]).sum()) / (4.0 * whole)

    def cell(self, cell: int) -> CellStatistics:
        """The inputs of the cost model for a cell. A type without queries has probability 0."""
        lengths = self.lengths[[SRQ, SKQ]]
        longest = int(np.flatnonzero(np.append(1.0, lengths.any(axis=0)))[-1])
        lengths = lengths[:, : max(longest, 1)].copy()
        return CellStatistics(
            self.queries / max(float(self.queries.sum()), 1e-300),
            self.reach(np.array([cell]))[:, 0],
            lengths / np.maximum(lengths.sum(axis=1, keepdims=True), 1e-300),
            self.lifetimes[:, cell],
        )

    def asked(self, cells: Ints) -> Floats:
        """The probability that a random query has each type and reaches each cell, float64[types, n].

        For continuous types, multiplied by the mean lifetime in ms: the number of active queries in the cell if one
        query arrives per ms.
        """
        chance = self.queries / max(float(self.queries.sum()), 1e-300)
        lasts = np.where(IS_CONTINUOUS[: len(TYPES), np.newaxis], self.lifetimes[:, cells], 1.0)
        result: Floats = chance[:, np.newaxis] * lasts * self.reach(cells)
        return result

    def coverage(self, cells: Ints, h: Floats) -> Floats:
        """Eqn 1 for SRQ and SKQ, from the shapes of the queries that reach each cell: float64[2, n]; 1 if none do.

        Args:
            cells: int64[n], the cell of each partition.
            h: float64[n, 2], H_srq and H_skq of each partition.
        """
        result = np.ones((2, len(cells)))
        for row, shapes in enumerate(self.shapes):
            basis = shapes.basis[cells]
            for cell in np.unique(basis).tolist():
                shape, count = shapes.entries(cell)
                if count.any():
                    groups, length = np.divmod(shape, _LONGEST + 1)
                    here = basis == cell
                    result[row, here] = expression_coverage(groups + 1, length, count / count.sum(), h[here, row])
        return result

    def workloads(self, cells: Ints, objects: Floats, rate: Floats, h: Floats, asked: Floats | None = None) -> Floats:
        """Eqn 2 for n partitions, float64[n]; if there are no queries at all, the number of objects they hold.

        Args:
            cells: int64[n], the cell of each partition.
            objects: float64[n], abs(O).
            rate: float64[n], E_P in objects per ms.
            h: float64[n, 2], H_srq and H_skq.
            asked: float64[types, n], replaces the result of :meth:`asked`, if better figures are known.
        """
        if asked is None and not self.queries.any():
            return objects.astype(np.float64)
        return workloads(self.asked(cells) if asked is None else asked, objects, rate, self.coverage(cells, h))

    def duration_distribution(self, kind: int) -> tuple[Floats, Floats]:
        """Pr(q.τ = T) and T in ms, of a type: durations with the same number of bits are replaced by their mean."""
        count = self.durations[kind]
        return count / max(float(count.sum()), 1e-300), self.duration_sums[kind] / np.maximum(count, 1e-300)

    def keyword_distribution(self, cell: int, kind: int) -> Floats:
        """M_srq (``kind`` SRQ) or M_skq of a cell: p_w of each of :attr:`terms`, float64[v]; all 0 if no keywords."""
        counts = (self.srq if kind == SRQ else self.skq).of_cell(cell)
        return counts / max(float(counts.sum()), 1e-300)

    def keywords(self, kind: int) -> tuple[Floats, Codes]:
        """The mean number of keywords per group of the queries of a type (SRQ or SKQ) that reach each cell.

        Returns:
            The means, float64[n], and the cell whose mean is used for each cell, int32[n], as in :attr:`basis`.
        """
        shapes = self.shapes[(SRQ, SKQ).index(kind)]
        length = np.arange(shapes.values) % (_LONGEST + 1)
        return shapes.averages(length.astype(np.float64)), shapes.basis

    def rates(self, x: Floats, y: Floats) -> Floats:
        """Arrivals per ms that each object of a sample represents: E_obj of its finest cell, divided evenly there.

        So the rates of the objects of any partition, including a textual share of a cell, add up to its E_P.
        """
        cells = self.cells.of_points(x, y)
        sampled = np.bincount(cells, minlength=len(self.objects))
        result: Floats = self.objects[cells] / (sampled[cells] * max(self.span, 1.0))
        return result

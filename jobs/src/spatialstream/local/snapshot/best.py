"""The best objects by place, text and time, by best-first search of the implicit quadtree (Pastri, Algorithm 6).

The search is that of :mod:`~spatialstream.local.snapshot.nearest`, by a lower bound of the score in place of the
distance. A node carries, for each word of the query, the range of the word's postings inside it; a node that has none
is dropped. Nothing in it scores less than the bound, which takes

- the space from the least distance of the node;
- the time from the latest object of its segment;
- the text from the words that are in the node: by Cauchy and Schwarz the cosine of any object with these words alone is
  at most |q_S|/|q|, whatever other words it has. No impacts are stored for this.

Where few postings are left, the lists of the words are merged: each object is met once, with the words of the query
that it has, and these bound its cosine as they bound that of a node. Most objects have one word of several, and are
passed over without their place or their other terms being read. Ties affect the answer, so a node whose bound is the
k-th score is still opened. While too few of those found satisfy a condition on properties, more are looked for.

Cost: an object that is looked at costs its terms, whose weights are looked up once for a segment and a corpus table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from spatialstream.local.arrays import Array, Bytes, Codes, Floats, Ints, grown, wide
from spatialstream.local.snapshot.addresses import Columns, columns_at
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.snapshot.heaps import ascending, offer, pop, push
from spatialstream.local.snapshot.rows import ObjectRows, alike, rows_at
from spatialstream.local.snapshot.termlists import get_unit
from spatialstream.local.snapshot.unions import Satisfying, Share
from spatialstream.local.snapshot.zorder import LEVELS, node_box, node_start
from spatialstream.local.snapshot.zranges import bisect, has_keywords, is_keyword, is_reached, nearest_bound
from spatialstream.local.wordtable import find_word, pack
from spatialstream.model.expressions import Expression
from spatialstream.model.geometry import distance
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.ranking.asked import Ranking
from spatialstream.model.ranking.scores import (
    decayed_score,
    growth,
    interval_score,
    recency,
    spatial_score,
    textual_score,
)
from spatialstream.model.space import Space

__all__ = ["Found", "RankedAsk", "best", "node_bound", "search_best"]

_LEAF = 16
"""Number of postings up to which a node is not split."""

_MORE = 4
"""By how much the number of objects grows that are looked for, as long as too few satisfy, or the last are alike."""

_SLACK = 1.0 + 1e-12
"""By which the bound of the cosine is raised: many times the error of its three roots."""


class RankedAsk(NamedTuple):
    """A ranked query with the weights of its words: created once per query, used for every segment.

    Kernels that are called from Python take it as a plain ``tuple(ask)``, as :class:`~.zranges.Ask`.

    Attributes:
        geographic, x, y: the space, and the point.
        word_offsets, words: the scored words.
        weights: int64[w], theirs, each times its occurrences among them.
        asked: sum of the squares of these.
        static: whether words of an object weigh by their occurrences alone.
        filter_offsets, filter_words: the terms of the filter, those of all groups and forbidden ones.
        groups: int64[f], the group of each; -1 for forbidden ones.
        sizes: int64[g], terms of each group, at least one group: an object has to have all terms of one.
        t_after, t_last: objects of (t_after, t_last] are candidates.
        t, half_life: of the query, ms; the half-life of one about an interval is 0.
        first, last: the interval.
        shares: weights of space, time and text.
        slots, known_offsets, known_words, known_weights, unknown: the corpus table.
    """

    geographic: bool
    x: float
    y: float
    word_offsets: Codes
    words: Bytes
    weights: Ints
    asked: int
    static: bool
    filter_offsets: Codes
    filter_words: Bytes
    groups: Ints
    sizes: Ints
    t_after: int
    t_last: int
    t: int
    half_life: int
    first: int
    last: int
    shares: tuple[float, float, float]
    slots: Codes
    known_offsets: Codes
    known_words: Bytes
    known_weights: Codes
    unknown: int

    @classmethod
    def of(
        cls,
        space: Space,
        at: tuple[float, float],
        ranking: Ranking,
        text: Expression,
        times: tuple[int, int],
        t: int,
        corpus: CorpusTable,
    ) -> RankedAsk:
        """Build from the parts of a query.

        Args:
            space: of the objects.
            at: the point.
            ranking: by what is scored.
            text: the filter.
            times: (after, last], ms.
            t: of the query.
            corpus: the table of its time.
        """
        words = pack(ranking.words)
        weights = ranking.weighed(corpus.weights_in(*words))
        first, last = ranking.between or (0, 1)
        filter_offsets, filter_words, groups, sizes = _filters(text)
        return cls(
            space.geographic,
            *at,
            *words,
            weights,
            int(weights @ weights),
            ranking.static,
            filter_offsets,
            filter_words,
            groups,
            sizes,
            *times,
            t,
            ranking.half_life or 0,
            first,
            last,
            ranking.shares,
            corpus.slots,
            corpus.offsets,
            corpus.data,
            corpus.weights,
            corpus.unknown,
        )


@lru_cache(1_024)
def _filters(text: Expression) -> tuple[Codes, Bytes, Ints, Ints]:
    """The fields of a :class:`RankedAsk` from the filter."""
    groups = [(word, i) for i, group in enumerate(text.groups) for word in group]
    filters = groups + [(word, -1) for word in text.none]
    owners = np.array([group for _, group in filters], np.int64)
    sizes = np.array([len(group) for group in text.groups], np.int64)
    return *pack([word for word, _ in filters]), owners, sizes


@lean_kernel
def _weight(s: Columns, code: int, ask: RankedAsk) -> int:
    """The weight of a segment's term."""
    known = wide(s.numbers[code])
    if known > 0:
        return known - 1
    start, end = s.word_offsets[code], s.word_offsets[code + 1]
    at = find_word(ask.slots, ask.known_offsets, ask.known_words, s.words, start, end)
    weight = ask.unknown if at < 0 else wide(ask.known_weights[at])
    s.numbers[code] = weight + 1
    return weight


@lean_kernel
def _age(ask: RankedAsk, t: int) -> float:
    """What the time of an object adds to its score: P, or M about an interval; it falls with t."""
    if ask.half_life > 0:
        return growth(max(ask.t - t, 0), ask.half_life)
    return recency(min(t, ask.last), ask.first, ask.last)


@lean_kernel
def _score(ask: RankedAsk, spatial: float, age: float, textual: float) -> float:
    """The score of an object, or a bound of it: it rises with the age, and falls with S and T."""
    if ask.half_life > 0:
        return decayed_score(ask.shares[0], spatial, textual, age)
    return interval_score(ask.shares, spatial, age, textual)


@lean_kernel
def _match(s: Columns, position: int, ask: RankedAsk, codes: Array, filters: Array, counts: Array) -> float:
    """T of an object; -1 if it fails the filter."""
    counts[:] = 0
    own, dot, code = 0, 0, 0
    at, end = wide(s.unit_offsets[position]), wide(s.unit_offsets[position + 1])
    counted = len(s.counts) > 0
    while at < end:
        times = wide(s.counts[at]) if counted else 1
        step, at = get_unit(s.units, at)
        code += step
        weight = times if ask.static else times * _weight(s, code, ask)
        own += weight * weight
        for w in range(len(codes)):
            if codes[w] == code:
                dot += weight * ask.weights[w]
        for f in range(len(filters)):
            if filters[f] == code:
                if ask.groups[f] < 0:
                    return -1.0
                counts[ask.groups[f]] += 1
    for f in range(len(filters)):
        if filters[f] >= 0 and is_keyword(ask.filter_offsets, ask.filter_words, f):
            counts[ask.groups[f]] += has_keywords(s, position, filters[f : f + 1])
    passes = False
    for group in range(len(counts)):
        passes = passes or counts[group] == ask.sizes[group]
    return textual_score(dot, own, ask.asked) if passes else -1.0


@lean_kernel
def _most_textual(ask: RankedAsk, squares: int, weightless: bool) -> float:
    """An upper bound of T of objects that have some words of the query, and none of the others.

    An object whose words all weigh nothing has T = 1, and so has every object if the words of the query do.

    Args:
        ask: the query.
        squares: sum of the squares of the weights of these words.
        weightless: whether one of them weighs nothing.
    """
    if weightless or ask.asked == 0:
        return 1.0
    return min(1.0, math.sqrt(float(squares)) / math.sqrt(float(ask.asked)) * _SLACK)


@lean_kernel
def _ceiling(ask: RankedAsk, node: Array) -> float:
    """An upper bound of T of the objects of a node, of whose words there are postings; -1 without any."""
    there, weightless, squares = False, False, 0
    for w in range(len(ask.weights)):
        if node[5 + 2 * w] < node[6 + 2 * w]:
            there = True
            weightless = weightless or ask.weights[w] == 0
            squares += ask.weights[w] * ask.weights[w]
    return _most_textual(ask, squares, weightless) if there else -1.0


@lean_kernel
def _nearest(s: Columns, ask: RankedAsk, node: Array) -> float:
    """A lower bound of the distances of the objects of a node."""
    box = (s.grid[0], s.grid[1], s.grid[2], s.grid[3])
    if node[1] > 0:
        box = node_box(s.grid, node[1], node[2])
    return nearest_bound(ask.geographic, ask.x, ask.y, box)


@lean_kernel
def _bound(s: Columns, ask: RankedAsk, radius: float, node: Array, near: float) -> float:
    """As :func:`node_bound`, of a node no object of which is nearer than ``near``, which is within the radius."""
    textual = _ceiling(ask, node)
    if textual < 0.0:
        return math.inf
    return _score(ask, spatial_score(near, radius), _age(ask, s.t_max), textual)


@lean_kernel
def node_bound(s: Columns, ask: RankedAsk, radius: float, node: Array) -> float:
    """A lower bound of the scores of the objects of a node within the radius; infinite if there is none.

    Args:
        s: columns of the segment.
        ask: the query.
        radius: of the search disk.
        node: int64[5 + 2 w]: row, level, prefix, positions [lo, hi), and [lo, hi) in the postings of each word.
    """
    near = _nearest(s, ask, node)
    return _bound(s, ask, radius, node, near) if near <= radius else math.inf


@lean_kernel
def _root(s: Columns, ask: RankedAsk, row: int, codes: Array, filters: Array, node: Array) -> int:
    """Set the root of a segment's tree, and the codes of the words; returns the number of postings."""
    node[0], node[1], node[2], node[3], node[4] = row, 0, 0, 0, len(s.x)
    most = 0
    for w in range(len(codes)):
        code = find_word(s.slots, s.word_offsets, s.words, ask.words, ask.word_offsets[w], ask.word_offsets[w + 1])
        codes[w] = code
        node[5 + 2 * w], node[6 + 2 * w] = 0, 0
        if code >= 0:
            node[5 + 2 * w], node[6 + 2 * w] = wide(s.posting_offsets[code]), wide(s.posting_offsets[code + 1])
            most += node[6 + 2 * w] - node[5 + 2 * w]
    for f in range(len(filters)):
        start, end = ask.filter_offsets[f], ask.filter_offsets[f + 1]
        filters[f] = find_word(s.slots, s.word_offsets, s.words, ask.filter_words, start, end)
    return most


@lean_kernel
def _enter(limit: float, key: float, keys: Array, heap: Array, used: int, n: int) -> tuple[int, int]:
    """Add the node in row ``used``, whose bound is ``key``, to the n that wait, unless it is above the limit.

    Returns:
        the numbers of rows in use and of nodes that wait.
    """
    if key < math.inf and key <= limit:
        push(keys, heap, n, key, used)
        return used + 1, n + 1
    return used, n


@lean_kernel
def _enter_roots(
    table: Array, ask: RankedAsk, radius: float, codes: Array, filters: Array, nodes: Array, keys: Array, heap: Array
) -> tuple[int, int]:
    """Add the root of each segment; returns their number, and that of their postings."""
    used, waiting, most = 0, 0, 0
    for row in range(len(table)):
        s = columns_at(table, row)
        if is_reached(s, ask.t_after, ask.t_last):
            most += _root(s, ask, row, codes[row], filters[row], nodes[used])
            key = node_bound(s, ask, radius, nodes[used])
            used, waiting = _enter(math.inf, key, keys, heap, used, waiting)
    return used, most


@lean_kernel
def _enter_children(
    s: Columns,
    ask: RankedAsk,
    radius: float,
    limit: float,
    node: int,
    nodes: Array,
    keys: Array,
    heap: Array,
    used: int,
    waiting: int,
) -> tuple[int, int]:
    """Add the children of the node in a row; there has to be room for four. Returns as :func:`_enter`.

    A child that is farther than the radius costs its box, and nothing is read for it. The others take their postings
    off the node's.
    """
    level, prefix = nodes[node, 1] + 1, 4 * nodes[node, 2]
    start, end = nodes[node, 3], nodes[node, 4]
    reached = 0
    for child in range(4):
        near = nearest_bound(ask.geographic, ask.x, ask.y, node_box(s.grid, level, prefix + child))
        if near > radius:
            continue
        skipped = reached < child
        if skipped:
            start = node_start(s, level, prefix + child, start, end)
        first, start = start, node_start(s, level, prefix + child + 1, start, end) if child < 3 else end
        if first == start:
            continue
        reached = child + 1
        nodes[used, 0], nodes[used, 1], nodes[used, 2] = nodes[node, 0], level, prefix + child
        nodes[used, 3], nodes[used, 4] = first, start
        for w in range(len(ask.weights)):
            lo, hi = nodes[node, 5 + 2 * w], nodes[node, 6 + 2 * w]
            if skipped:
                lo = bisect(s.postings, lo, hi, first)
            if child < 3:
                hi = bisect(s.postings, lo, hi, start)
            nodes[used, 5 + 2 * w], nodes[used, 6 + 2 * w] = lo, hi
            nodes[node, 5 + 2 * w] = hi
        used, waiting = _enter(limit, _bound(s, ask, radius, nodes[used], near), keys, heap, used, waiting)
    return used, waiting


@lean_kernel
def _is_leaf(node: Array) -> bool:
    """Whether the objects of a node are looked at one by one."""
    postings = 0
    for i in range(5, len(node), 2):
        postings += node[i + 1] - node[i]
    return postings <= _LEAF or node[1] == LEVELS


@lean_kernel
def _next(s: Columns, node: Array) -> int:
    """The first position in the postings that are left of a node; -1 without any."""
    position = -1
    for w in range(5, len(node), 2):
        if node[w] < node[w + 1]:
            at = wide(s.postings[node[w]])
            if position < 0 or at < position:
                position = at
    return position


@lean_kernel
def _take(s: Columns, ask: RankedAsk, node: Array, position: int) -> tuple[int, bool]:
    """Take a position off the postings of a node, where it is the first of each that has it.

    Returns:
        sum of the squares of the weights of the words that have it, and whether one of them weighs nothing.
    """
    squares, weightless = 0, False
    for w in range(len(ask.weights)):
        at = node[5 + 2 * w]
        if at < node[6 + 2 * w] and s.postings[at] == position:
            node[5 + 2 * w] = at + 1
            squares += ask.weights[w] * ask.weights[w]
            weightless = weightless or ask.weights[w] == 0
    return squares, weightless


@lean_kernel
def _offer_objects(
    table: Array,
    ask: RankedAsk,
    radius: float,
    worst: float,
    node: Array,
    codes: Array,
    filters: Array,
    counts: Array,
    found: tuple[Array, Array, Array],
    m: int,
) -> tuple[int, int]:
    """Offer the objects of a node to the m best so far; returns how many these are now, and how many it looked at.

    Objects with scores above ``worst`` are left out. The node has no postings left in the end.
    """
    row, checked = node[0], 0
    s = columns_at(table, row)
    limit = found[0][0] if m == len(found[0]) else worst
    timed = not (ask.t_after < s.t_min and s.t_max <= ask.t_last)
    most_spatial = spatial_score(_nearest(s, ask, node), radius)
    while True:
        position = _next(s, node)
        if position < 0:
            return m, checked
        squares, weightless = _take(s, ask, node, position)
        t = s.t[position]
        if timed and not (ask.t_after < t and t <= ask.t_last):
            continue
        age, ceiling = _age(ask, t), _most_textual(ask, squares, weightless)
        if _score(ask, most_spatial, age, ceiling) > limit:
            continue
        d = distance(ask.geographic, ask.x, ask.y, s.x[position], s.y[position])
        if not d <= radius:
            continue
        spatial = spatial_score(d, radius)
        if _score(ask, spatial, age, ceiling) > limit:
            continue
        checked += 1
        textual = _match(s, position, ask, codes, filters, counts)
        score = _score(ask, spatial, age, textual)
        if textual < 0.0 or score > worst:
            continue
        m = offer(table, found, m, score, row, position)
        if m == len(found[0]):
            limit = found[0][0]


@kernel
def _measured(
    table: Array, ask: RankedAsk, rows: Array, positions: Array, codes: Array, filters: Array, counts: Array
) -> tuple[Array, Array]:
    """The distance of each object, and its T."""
    distances, textuals = np.empty(len(rows)), np.empty(len(rows))
    for i in range(len(rows)):
        row, position = wide(rows[i]), wide(positions[i])
        s = columns_at(table, row)
        distances[i] = distance(ask.geographic, ask.x, ask.y, s.x[position], s.y[position])
        textuals[i] = _match(s, position, ask, codes[row], filters[row], counts)
    return distances, textuals


@kernel
def best(
    table: Array, asked: tuple[Any, ...], k: int, radius: float, worst: float
) -> tuple[Array, Array, Array, Array, Array, int]:
    """The k objects with the least scores within the radius, of those with scores up to ``worst``.

    Returns:
        rows of the table int32[m], positions int32[m], distances float64[m], T float64[m] and scores float64[m], in
        order of (score, t descending, id, x, y); and the number of objects looked at. Fewer than k: they are all.
    """
    ask = RankedAsk(*asked)
    nodes = np.empty((64 + len(table), 5 + 2 * len(ask.weights)), np.int64)
    keys, heap = np.empty(len(nodes)), np.empty(len(nodes), np.int64)
    codes = np.empty((len(table), len(ask.weights)), np.int64)
    filters = np.empty((len(table), len(ask.groups)), np.int64)
    counts = np.empty(len(ask.sizes), np.int64)
    used, most = _enter_roots(table, ask, radius, codes, filters, nodes, keys, heap)
    waiting, m, checked, limit = used, 0, 0, worst
    k = min(k, most)
    found = (np.empty(k), np.empty(k, np.int32), np.empty(k, np.int32))
    while k > 0 and waiting > 0 and keys[0] <= limit:
        node = heap[0]
        waiting -= 1
        pop(keys, heap, waiting)
        row = nodes[node, 0]
        if _is_leaf(nodes[node]):
            of, sets = codes[row], filters[row]
            m, more = _offer_objects(table, ask, radius, worst, nodes[node], of, sets, counts, found, m)
            checked += more
            if m == k:
                limit = found[0][0]
            continue
        if used + 4 > len(nodes):
            nodes = grown(nodes, used, 2 * used + 4)
        if waiting + 4 > len(keys):
            keys, heap = grown(keys, waiting, 2 * waiting + 4), grown(heap, waiting, 2 * waiting + 4)
        s = columns_at(table, row)
        used, waiting = _enter_children(s, ask, radius, limit, node, nodes, keys, heap, used, waiting)
    ascending(table, found, m)
    rows, positions = found[1][:m], found[2][:m]
    distances, textuals = _measured(table, ask, rows, positions, codes, filters, counts)
    return rows, positions, distances, textuals, found[0][:m], checked


@dataclass(frozen=True, slots=True, eq=False)
class RankedSearch:
    """A search of some segments of a table.

    Attributes:
        share: these segments.
        asked: a :class:`RankedAsk`, as a plain tuple.
        satisfied: what candidates have to satisfy besides, by their rows in the table; None: nothing.
    """

    share: Share
    asked: tuple[Any, ...]
    satisfied: Satisfying | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a slot knows of the best objects: enough to find those of all slots, whatever the radius will be.

    Attributes:
        rows: objects, with distances.
        owners, positions: int32[n] each, rows of the table, and where the objects are in them.
        textual: float64[n], T of each.
        checked: number of objects looked at.
    """

    rows: ObjectRows
    owners: Codes
    positions: Codes
    textual: Floats
    checked: int


def _best(
    search: RankedSearch, k: int, radius: float, worst: float, *, ties: bool
) -> tuple[Array, Array, Array, Array, Array, int]:
    """As :func:`best`, of those that satisfy, with their places in the table in place of their rows.

    With ``ties`` there are also all objects that are like the last one in all but their fields.
    """
    wanted, checked = k + 1 if ties else k, 0
    while True:
        *found, more = best(search.share.rows, search.asked, wanted, radius, worst)
        checked += more
        rows, positions = found[:2]
        owners = search.share.owners(rows)
        if search.satisfied is None and not ties:
            return owners, positions, found[2], found[3], found[4], checked
        kept = np.arange(len(rows))
        if search.satisfied is not None:
            kept = np.flatnonzero(search.satisfied(owners, positions))
        if len(rows) < wanted or (len(kept) >= k and not (ties and _alike(search.share.rows, found, kept[k - 1]))):
            owners, positions, distances, textual, scores = (
                each[kept if ties else kept[:k]] for each in (owners, *found[1:])
            )
            return owners, positions, distances, textual, scores, checked
        wanted *= _MORE


def _best_of_all(searches: Sequence[RankedSearch], k: int, radius: float, *, ties: bool) -> tuple[Sequence[Array], int]:
    """What :func:`_best` finds by all searches, with all that has the score of the last; and the objects checked."""
    if len(searches) == 1:
        *found, _, checked = _best(searches[0], k, radius, math.inf, ties=ties)
        return found, checked
    parts, worst, checked = list[Sequence[Array]](), math.inf, 0
    for search in searches:
        *found, more = _best(search, k, radius, worst, ties=ties)
        checked += more
        parts.append(found)
        scores = np.concatenate([each[-1] for each in parts])
        if len(scores) >= k:
            worst = float(np.partition(scores, k - 1)[k - 1])
    *columns, scores = (np.concatenate(each) for each in zip(*parts, strict=True))
    return [each[scores <= worst] for each in columns], checked


def _alike(table: Array, found: Sequence[Array], one: int) -> bool:
    """Whether the last object found is like another one in all by which they are ordered, apart from their fields."""
    rows, positions, distances, textual, _ = found
    ends = np.array([one, len(rows) - 1])
    last = rows_at(table, rows[ends], positions[ends], distances[ends])
    return bool(textual[one] == textual[-1]) and alike(last, 0, 1)


def search_best(
    table: Array, searches: Sequence[RankedSearch], k: int, ranking: Ranking, *, ties: bool = False
) -> Found:
    """The k best within i r, and all candidates within (i - 1) r, for the least i with k candidates, or the last one.

    All slots together have k candidates at i or before; and if before, at i* < i, then the candidates that are here
    within i* r are among those within (i - 1) r, which are fewer than k. Candidates are what one of the searches of
    segments of the table finds. With ``ties`` the k best are some more, if others are like the last of them; with
    several searches, if others have its score.
    """
    checked, nearer = 0, list[Sequence[Array]]()
    for i in range(1, ranking.expansions + 1):
        found, more = _best_of_all(searches, k, i * ranking.radius, ties=ties)
        checked += more
        if len(found[0]) >= k or i == ranking.expansions:
            break
        nearer = [found]
    if nearer:
        found = [np.concatenate(pair) for pair in zip(found, *nearer, strict=True)]
        _, kept = np.unique(found[0].astype(np.int64) << 32 | found[1], return_index=True)
        found = [each[kept] for each in found]
    rows, positions, distances, textual = found
    return Found(rows_at(table, rows, positions, distances), rows, positions, textual, checked)

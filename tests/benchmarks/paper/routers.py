"""What Tornado's routing units know and are told: figures 8(c), 10(b) and 13(b) of its paper.

The textual summary of an evaluator (section 3.1) has one word of each query that is registered there; here the one that
fewest objects have. Messages and bytes between routing units and evaluators are counted, not sent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion
from spatialstream.model.kernels import kernel
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.regions import Regions
from tests.benchmarks.paper.counting import Counts, passing, worth
from tests.benchmarks.paper.usa import QUERIES, USA, WORDS, Panels, Workload, before, built, queries, stream
from tests.benchmarks.paper.workloads import HOUR

ROUTERS = 7
"""Routing units, where their number is not varied (table 1)."""

ROUTED, LOOKED_UP = 0.005, 0.07
"""What a routing unit takes for an object, µs: for its place, and for ten words of which none is in a summary."""

BAND = 20.0
"""Of the frequencies of figure 8(c): a query's words are those of so many percent of all words said."""

CELL, TOTALS, OPERATION, OPERATIONS = 16, 12, 24, 1 + 8
"""Bytes of figure 13(b): of a cell, its number, cost and queries; of an evaluator, its cost and queries, and of each
operation that it offers, place, gain and price. It offers so many at most: a split and eight corner shifts."""


# -------------------------------------------------------------------------------------------------------- figure 8(c)


def rarest(comes: Workload) -> npt.NDArray[np.int64]:
    """The word of each query that fewest objects have, as a number in their vocabulary; -1: no object has it."""
    found, asked = comes
    frequency = np.bincount(found.terms.codes, minlength=len(found.terms.vocabulary))
    by_number = [*frequency.tolist(), -1]
    known = {word: i for i, word in enumerate(found.terms.vocabulary.to_pylist()) if frequency[i]}
    numbers = ([known.get(word, -1) for word in asked.keywords[i]] for i in range(len(asked)))
    return np.array([min(each, key=by_number.__getitem__) for each in numbers])


@kernel
def looked_up(
    summary: npt.NDArray[np.bool_],
    owner: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int32],
    codes: npt.NDArray[np.int32],
) -> npt.NDArray[np.bool_]:
    """Whether the row of ``summary`` of each object's owner has one of its words."""
    found = np.zeros(len(owner), np.bool_)
    for i in range(len(owner)):
        for k in range(offsets[i], offsets[i + 1]):
            if summary[owner[i], codes[k]]:
                found[i] = True
                break
    return found


def heard(comes: Workload, version: RoutingVersion) -> npt.NDArray[np.bool_]:
    """Whether the summary of an object's evaluator has one of its words; if not, it is not forwarded."""
    found, asked = comes
    row, slot = version.route_queries(asked)
    word, owner = rarest(comes)[row], version.route_objects(found)
    summary = np.zeros((version.slots, len(found.terms.vocabulary)), np.bool_)
    summary[slot[word >= 0], word[word >= 0]] = True
    return looked_up(summary, owner, found.terms.offsets, found.terms.codes)


def by_summary(version: RoutingVersion, comes: Workload, textual: bool) -> Counts:
    """What passing costs if objects without a word of any query are not forwarded, or if all are.

    Evaluators that get no objects have nothing to do, so the throughput is at most that of the routing units.
    """
    found, asked = comes
    (row, slot), owner = version.route_queries(asked), version.route_objects(found)
    goes = heard(comes, version) if textual else np.ones(len(found), np.bool_)
    each = range(version.slots)
    counts = passing(
        found, asked, [np.flatnonzero(goes & (owner == i)) for i in each],
        [row[slot == i].astype(np.int64) for i in each],
    )  # fmt: skip
    routing = (ROUTED + LOOKED_UP * textual) * len(found) / ROUTERS
    results = float(counts["results"].sum())
    return {
        "throughput": 1e6 * len(found) / max(float(worth("CRQ", counts).max()), routing),
        "forwarded": float(goes.mean()),
        "results": results / len(found),
        "digest": results,
    }


def as_frequent(around: ObjectBatch, n: int, seed: int, percent: float) -> list[list[str]]:
    """The words of n queries, by frequency: the band of all words said that ends at a percentage, the rarest first.

    0 %: words that no object says. 100 %: those of the most frequent words that make up :data:`BAND` percent of all.
    """
    random = np.random.default_rng((9, seed))
    if not percent:
        return [[f"unsaid{word}" for word in each] for each in random.integers(0, 1000, (n, 1)) + np.arange(WORDS)]
    frequency = np.bincount(around.terms.codes, minlength=len(around.terms.vocabulary))
    order = np.argsort(frequency, kind="stable")
    share = np.cumsum(frequency[order]) / frequency.sum()
    chosen, pending = np.empty((n, WORDS), np.int64), np.arange(n)
    while len(pending):
        drawn = (percent - BAND * random.random((len(pending), WORDS))) / 100.0
        chosen[pending] = np.sort(order[np.searchsorted(share, drawn)], axis=1)
        pending = pending[(np.diff(chosen[pending]) == 0).any(axis=1)]
    vocabulary = np.array(around.terms.vocabulary.to_pylist())
    words: list[list[str]] = vocabulary[chosen].tolist()
    return words


def figure_8c(scale: float) -> Panels:
    """Throughput by the frequency of the queries' words, with summaries of words at the routing units and without."""
    version, found = built("a-grid", before(scale)), stream(scale)[0]
    points: dict[str, dict[float, Counts]] = {"space and words": {}, "space": {}}
    for percent in (0.0, 20.0, 40.0, 60.0, 80.0, 100.0):
        n = round(QUERIES * scale)
        comes = found, queries(found, n, 401, said=as_frequent(found, n, 1, percent))
        for name, of_name in points.items():
            of_name[percent] = by_summary(version, comes, name != "space")
    return {"8c": points}


# ------------------------------------------------------------------------------------------------------- figure 10(b)


def first_said(
    row: npt.NDArray[np.int64], slot: npt.NDArray[np.int64], word: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The queries that bring a word that an evaluator's summary has not; all columns in the order of queries."""
    pair = slot.astype(np.int64) * (int(word.max(initial=0)) + 1) + word
    return np.unique(row[np.unique(pair, return_index=True)[1]])


def messages(n: int, new: npt.NDArray[np.int64], units: int) -> float:
    """Messages a query at the routing unit that has most: queries come in turn, new words go to all other units.

    Args:
        n: how many queries.
        new: those with new words.
        units: how many routing units.
    """
    own = np.bincount(np.arange(n) % units, minlength=units)
    told = len(new) - np.bincount(new % units, minlength=units)
    return float((own + told).max()) / n


def figure_10(scale: float) -> Panels:
    """Messages that routing units get: all queries, or theirs and the new words of others'."""
    comes = stream(scale)
    keywords, n = comes[1].keywords, len(comes[1])
    row, slot = (each.astype(np.int64) for each in built("a-grid", before(scale)).route_queries(comes[1]))
    lengths = np.diff(keywords.offsets)[row]
    each = np.repeat(np.arange(len(row)), lengths)
    place = np.arange(len(each)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + keywords.offsets[row[each]]
    new = {
        "forward": first_said(row, slot, rarest(comes)[row]),
        "forward all words": first_said(row[each], slot[each], keywords.codes[place].astype(np.int64)),
        "broadcast": np.arange(n),
    }
    numbers = (1, 3, 5, 7, 10, 12)
    return {
        "10b": {
            name: {float(units): {"messages": messages(n, queries_of, units)} for units in numbers}
            for name, queries_of in new.items()
        }
    }


# ------------------------------------------------------------------------------------------------------- figure 13(b)


def cells_of_boxes(index: AGrid, regions: Regions) -> npt.NDArray[np.int64]:
    """The ranges of cells of boxes, int64[n, 4], the last ones exclusive."""
    ends = []
    for borders, first, last in ((index.x, 0, 2), (index.y, 1, 3)):
        low, high = (np.searchsorted(borders[1:-1], regions.shape[:, i], "right") for i in (first, last))
        ends += [low, high + 1]
    return np.stack([ends[0], ends[2], ends[1], ends[3]], axis=1).astype(np.int64)


def known_cells(index: AGrid, comes: Workload) -> int:
    """Cells of the fine grid that have an object or a query."""
    found, asked = comes
    west, south, east, north = cells_of_boxes(index, asked.regions).T
    edges = np.zeros((len(index.y), len(index.x)), np.int64)
    for y, x, sign in ((south, west, 1), (south, east, -1), (north, west, -1), (north, east, 1)):
        np.add.at(edges, (y, x), sign)
    known = edges.cumsum(axis=0).cumsum(axis=1) > 0
    column, row = (
        np.searchsorted(borders[1:-1], at, "right") for borders, at in ((index.x, found.x), (index.y, found.y))
    )
    known[row, column] = True
    return int(known.sum())


def figure_13b(scale: float) -> Panels:
    """Bytes of statistics that reach those who decide, each time: of all cells, or what evaluators offer.

    ``here`` is the sample by which this project's strategies decide.
    """
    history, comes = before(scale), stream(scale)
    sample = Sample.of(USA, *comes, float(72 * HOUR))
    here = float(sum(array.nbytes for array in sample.to_arrays()[0].values()))
    found: dict[str, dict[float, Counts]] = {"decentralised": {}, "centralised": {}}
    for leaves in (4, 9, 16, 25, 36, 64, 100):
        index = built("a-grid", history, leaves).index
        assert isinstance(index, AGrid)
        offered, detailed = len(index.leaves) * (TOTALS + OPERATIONS * OPERATION), CELL * known_cells(index, comes)
        found["decentralised"][float(leaves)] = {"bytes": float(offered), "here": here}
        found["centralised"][float(leaves)] = {"bytes": float(detailed), "here": here}
    return {"13b": found}

"""Text partitioning that PS2Stream (ICDE 2017, section VI-B) compares with: the words are divided among the slots.

A query is registered at the slot of the rarest word of each of its groups, and an object goes to the slots of those of
its words under which queries are registered. So a division of words is a kd^t-tree of one cell, with a share for each
slot, and is routed as such.

- *frequency*: words by falling frequency in objects, each to the slot with least so far.
- *hypergraph*: words are nodes, objects are edges between their words, and as few slots as possible are to have a word
  of an object. The paper's source cuts this hypergraph with a library; here words go by falling weight to the slot that
  has most of their objects already, among those with at most the mean weight and a tenth: a greedy partition.
- *metric*: words by falling o_w q_w, each to the slot whose load (Definition 1) grows least, as long as that has about
  the mean. The paper's source has a metric of its own; this is the one by which the kd^t-tree divides words here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from spatialstream.index.a_grid.a_grid import SIDE, AGrid
from spatialstream.index.kd_t.dealing import deal
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.index.kd_t.kd_t import KdT
from spatialstream.index.kd_t.workload import NO_WORD, Workload
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Codes, Ints, Words
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space

SLACK = 0.1
"""By which part a slot may exceed the mean weight."""

Division = tuple[Words, Codes]
"""Hashes of words, ascending, and the slot of each."""


def divided_space(space: Space, rectangles: npt.NDArray[np.int32], frequencies: Frequencies) -> KdT:
    """Rectangles of cells as a kd^t-tree without shares."""
    n = len(rectangles)
    cells = AGrid(space, rectangles, np.zeros(n), np.zeros(n))
    nothing = np.empty(0, np.uint64), np.empty(0, np.int32)
    each = np.arange(n + 1, dtype=np.int32)
    return KdT(cells, each, np.zeros(n + 1, np.int64), *nothing, frequencies, np.zeros(n), np.ones(n))


def divided_words(space: Space, division: Division, slots: int, frequencies: Frequencies) -> KdT:
    """A division of words as a kd^t-tree of one cell."""
    words, of = division
    cells = AGrid(space, np.array([[0, 0, SIDE, SIDE]], np.int32), np.zeros(1), np.zeros(1))
    table = np.array([0, slots], np.int32), np.array([0, len(words)], np.int64), words, of.astype(np.int32)
    return KdT(cells, *table, frequencies, np.zeros(slots), np.ones(slots))


def frequency(workload: Workload, slots: int) -> Division:
    """Each word to the slot whose words are in fewest objects so far."""
    words, objects, _ = _asked(workload)
    of, loads = np.zeros(len(words), np.int32), np.zeros(slots)
    for each in np.argsort(-objects, kind="stable").tolist():
        of[each] = loads.argmin()
        loads[of[each]] += objects[each]
    return workload.hashes[words], of


def hypergraph(workload: Workload, slots: int) -> Division:
    """Each word to the slot that has most of its objects."""
    words, objects, queries = _asked(workload)
    weight = objects * queries
    order = np.argsort(-weight, kind="stable")
    of, loads = np.zeros(len(words), np.int32), np.zeros(slots)
    member = np.zeros((slots, len(workload.rate)), np.bool_)
    offsets, rows = workload.postings
    most = weight.sum() / slots * (1.0 + SLACK)
    for each in order.tolist():
        has = rows[offsets[words[each]] : offsets[words[each] + 1]]
        common = member[:, has].sum(axis=1).astype(np.float64)
        common[(loads > 0.0) & (loads + weight[each] > most)] = -1.0
        best = np.flatnonzero(common == common.max())
        taken = best[loads[best].argmin()]
        of[each] = taken
        loads[taken] += weight[each]
        member[taken, has] = True
    return workload.hashes[words], of


def metric(workload: Workload, slots: int) -> Division:
    """Each word to the slot whose load grows least; so the heaviest ones, the others by their hash."""
    dealt = deal(workload, np.arange(len(workload.rate)), np.arange(len(workload.entry)), slots)
    return workload.hashes[dealt.words], dealt.shares.astype(np.int32)


METHODS: dict[str, Callable[[Workload, int], Division]] = {
    "frequency": frequency, "hypergraph": hypergraph, "metric": metric,
}  # fmt: skip
"""By name."""


def partitioned(method: str, objects: ObjectBatch, statistics: Statistics, slots: int) -> KdT:
    """The words of sampled objects and queries divided among slots by one of :data:`METHODS`."""
    frequencies = Frequencies.of(objects.terms)
    workload = Workload.of(objects, statistics, frequencies, SIDE)
    return divided_words(statistics.space, METHODS[method](workload, slots), slots, frequencies)


def _asked(workload: Workload) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """The words under which queries are registered, and how many objects and queries each has."""
    some = workload.word != NO_WORD
    words, of = np.unique(workload.word[some], return_inverse=True)
    offsets, _ = workload.postings
    return words, offsets[words + 1] - offsets[words], np.bincount(of, workload.standing[some], len(words))

"""Corpus tables: how many objects have each word, up to every multiple of Δ that a ranked query needs.

Table B counts the objects with timestamps in (B - nΔ, B], where nΔ is the retention rounded up; without a retention,
all up to B. It is a function of the objects alone, except for late ones: these count in the first table that is not
written yet. An epoch writes the tables that it passes: the last one, and those that its queries name. It does so before
it is announced, so the slots that answer its queries find them.

Each router partition counts the terms of its objects by interval of Δ (:class:`CorpusCounts`), as part of its state.
For each table it writes what it has counted; then one task adds these up (:func:`write_tables`). The marker of the
epoch tells the slots which tables there are. The last :data:`KEPT` are kept, and those that rounds to come may name.

Cost: O(terms) for the objects of an epoch; O(distinct words) in memory and for a table, and for each interval that
enters or leaves its range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.connectors.contracts import Storage, find
from spatialstream.local.snapshot.corpora import CorpusTable
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.wordtable import from_arrow, to_arrow
from spatialstream.model.arrays import Ints, numpy_view, pack_arrays, unpack_arrays
from spatialstream.model.errors import Missing
from spatialstream.model.kinds import having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.progress import made
from spatialstream.stages.runs import times_of_queries
from spatialstream.stages.turns import Epoch

__all__ = [
    "CORPUS",
    "KEPT",
    "CorpusCounts",
    "CorpusTables",
    "Tally",
    "drop_tables",
    "is_passed",
    "kept_tables",
    "load_table",
    "tables_of",
    "write_parts",
    "write_tables",
]

CORPUS = "corpus/"
"""Prefix of the names of tables."""

KEPT = 3
"""Number of tables that are kept."""

_MOST_PIECES = 16
"""Pieces of a tally before they are added up."""

_RANKED = having(lambda kind: kind.is_ranked)


# -------------------------------------------------------------------------------------------------------- which tables


def is_passed(epoch: Epoch) -> bool:
    """Whether an epoch writes tables: it passes a multiple of Δ, and the stream counts words."""
    counted = epoch.counted
    return counted is not None and epoch.watermark // counted.interval > epoch.after // counted.interval


def tables_of(epoch: Epoch, storage: Storage) -> tuple[int, ...]:
    """The tables that an epoch writes, ascending: of those that it passes the last one, and those of its queries."""
    if not is_passed(epoch):
        return ()
    assert epoch.counted is not None
    interval = epoch.counted.interval
    last = epoch.watermark // interval
    asked = times_of_queries(epoch, storage, _RANKED) // interval
    passed = asked[(asked > epoch.after // interval) & (asked <= last)]
    return tuple((np.unique(np.append(passed, last)) * interval).tolist())


def kept_tables(before: Sequence[int], written: Iterable[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tables for the queries of a round, and those that are left after it; ascending.

    Args:
        before: those that the round before has left.
        written: by the epochs of the round.
    """
    there = tuple(sorted({*before, *written}))
    return there, there[-KEPT:]


# ------------------------------------------------------------------------------------------------------------ counting


@dataclass(slots=True)
class Tally:
    """A number of objects, and of those with each word: the sum of some pieces.

    Attributes:
        objects: number of objects.
        pieces: words, distinct in each, and their counts, which may be negative.
        file: of the checkpoint with just this; None: there is none.
    """

    objects: int = 0
    pieces: list[tuple[pa.StringArray, Ints]] = field(default_factory=list)
    file: str | None = None

    def add(self, objects: int, words: pa.StringArray, counts: Ints) -> None:
        """Count more."""
        self.objects += objects
        self.pieces.append((words, counts))
        self.file = None
        if len(self.pieces) > _MOST_PIECES:
            self.sum()

    def merge(self, other: Tally, sign: int = 1) -> None:
        """Add what another one counts, or with the sign -1 take it away."""
        words, counts = other.sum()
        self.add(sign * other.objects, words, sign * counts)

    def sum(self) -> tuple[pa.StringArray, Ints]:
        """The words in no particular order, and their counts, none of which is 0."""
        if len(self.pieces) != 1:
            words = pa.chunked_array([words for words, _ in self.pieces], pa.string())
            counts = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in self.pieces)])
            summed = pa.table({"word": words, "count": counts}).group_by("word").aggregate([("count", "sum")])
            summed = summed.filter(pc.not_equal(summed.column("count_sum"), 0)).combine_chunks()
            self.pieces = [(_whole(summed.column("word")), numpy_view(_whole(summed.column("count_sum"))))]
        return self.pieces[0]

    def copy(self) -> Tally:
        """Another one that counts the same."""
        return Tally(self.objects, [*self.pieces])

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Serialize as named flat arrays and a JSON value."""
        words, counts = self.sum()
        offsets, data = from_arrow(words)
        return {"offsets": offsets, "words": data, "counts": counts}, {"objects": self.objects}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> Self:
        """Deserialize the result of :meth:`to_arrays`."""
        return cls(int(meta["objects"]), [(to_arrow(arrays["offsets"], arrays["words"]), arrays["counts"])])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


class CorpusCounts:
    """What one router partition has counted.

    Args:
        interval: Δ, ms.
        intervals: number of intervals that a table covers; 0: all.
    """

    def __init__(self, interval: int, intervals: int) -> None:
        self._interval, self._intervals = interval, intervals
        self._last: int | None = None
        """Number of the last interval of the last table."""
        self._whole = Tally()
        """Objects of the range of that table, and later those late ones that the next table counts too."""
        self._single: dict[int, Tally] = {}
        """Objects by interval: those after the last table, and with a retention those of its range."""

    def add(self, objects: ObjectBatch) -> None:
        """Count objects. An interval is (B - Δ, B] for a multiple B of Δ."""
        number = -(-objects.t // self._interval)
        for each in np.unique(number).tolist():
            words, counts, n = _counted(objects, number == each)
            is_late = self._last is not None and each <= self._last
            if is_late and self._leaves(each, self._last):
                continue
            if is_late:
                self._whole.add(n, words, counts)
            if not is_late or self._intervals:
                self._single.setdefault(each, Tally()).add(n, words, counts)

    def _leaves(self, number: int, last: int | None) -> bool:
        """Whether an interval is before the range of a table."""
        return bool(self._intervals) and last is not None and number <= last - self._intervals

    def table(self, at: int) -> Tally:
        """What is counted in the range of the table at a multiple of Δ, which is later than that of the call before."""
        last = at // self._interval
        for number in sorted(self._single):
            entered = self._last is not None and number <= self._last
            if number <= last and not entered and not self._leaves(number, last):
                self._whole.merge(self._single[number])
            elif entered and self._leaves(number, last):
                self._whole.merge(self._single[number], -1)
        kept = (number for number in self._single if number > last or self._intervals)
        self._single = {number: self._single[number] for number in kept if not self._leaves(number, last)}
        self._last = last
        self._whole.sum()
        return self._whole

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        for tally in (self._whole, *self._single.values()):
            if tally.file is None:
                tally.file = write("corpus", *tally.to_arrays())
        single = [[number, tally.file] for number, tally in sorted(self._single.items())]
        return {"last": self._last, "whole": self._whole.file, "single": single}

    @classmethod
    def restore(cls, interval: int, intervals: int, manifest: Manifest, read: ReadFile) -> Self:
        """See :mod:`spatialstream.local.state`."""
        self = cls(interval, intervals)
        self._last = manifest["last"]
        self._whole = _restored(manifest["whole"], read)
        self._single = {int(number): _restored(file, read) for number, file in manifest["single"]}
        return self


def _restored(file: str, read: ReadFile) -> Tally:
    tally = Tally.from_arrays(*read(file))
    tally.file = file
    return tally


def _counted(objects: ObjectBatch, chosen: Any) -> tuple[pa.StringArray, Ints, int]:
    """The terms of the chosen objects, how many have each, and how many objects these are."""
    terms = objects.terms
    of_terms = np.repeat(chosen, np.diff(terms.offsets))
    codes = terms.codes[int(terms.offsets[0]) : int(terms.offsets[-1])]
    counts = np.bincount(codes[of_terms], minlength=len(terms.vocabulary))
    used = np.flatnonzero(counts)
    return terms.vocabulary.take(pa.array(used)), counts[used].astype(np.int64), int(np.count_nonzero(chosen))


# ------------------------------------------------------------------------------------------------------------- writing


def _name(at: int) -> str:
    return f"{CORPUS}{at}.arrays"


def _part(epoch: Epoch, at: int, partition: int) -> str:
    return f"{CORPUS}{epoch.number:09d}-{epoch.revision}-{partition:04d}-{at}.part"


def write_parts(epoch: Epoch, partition: int, parts: Iterable[tuple[int, Tally]], storage: Storage) -> None:
    """Write what a partition has counted for the tables of an epoch."""
    for at, tally in parts:
        storage.put(_part(epoch, at, partition), *pack_arrays(*tally.to_arrays()))


def write_tables(epoch: Epoch, storage: Storage) -> None:
    """Write the tables of an epoch, whose partitions have all written their parts."""
    for at in tables_of(epoch, storage):
        names = [_part(epoch, at, partition) for partition in range(epoch.partitions)]
        try:
            parts = [storage.get(name) for name in names]
        except Missing:
            if find(storage, _name(at)) is None:
                raise
            continue  # another try has written the table, and this one has been overtaken
        whole = Tally()
        for name, part in zip(names, parts, strict=True):
            whole.merge(Tally.from_arrays(*unpack_arrays(part, f"{storage.place}/{name}")))
            made()
        words, counts = whole.sum()
        order = pc.sort_indices(words)
        table = CorpusTable.of(at, whole.objects, words.take(order), counts[order.to_numpy()])
        storage.put(_name(at), *pack_arrays(*table.to_arrays()))
        storage.discard(names)


def drop_tables(storage: Storage, watermark: int) -> None:
    """Delete the tables up to a watermark but for the last ones; later ones are of rounds to come."""
    there = sorted(int(name.removeprefix(CORPUS).removesuffix(".arrays")) for name in _tables(storage))
    storage.discard(_name(at) for at in [at for at in there if at <= watermark][:-KEPT])


def _tables(storage: Storage) -> list[str]:
    return [name for name in storage.list(CORPUS) if name.endswith(".arrays")]


# ------------------------------------------------------------------------------------------------------------- reading


@lru_cache(maxsize=4)
def load_table(storage: Storage, at: int) -> CorpusTable:
    """Load a table.

    Raises:
        Missing: it is not kept any more.
        StateError: it is damaged.
    """
    return CorpusTable.from_arrays(*unpack_arrays(storage.get(_name(at)), f"{storage.place}/{_name(at)}"))


@dataclass(frozen=True, slots=True)
class CorpusTables:
    """The tables that a slot may read after a round; see :class:`spatialstream.local.snapshot.corpora.Corpora`.

    Attributes:
        storage: where they are.
        there: their times, ascending; at least one.
    """

    storage: Storage
    there: tuple[int, ...]

    @classmethod
    def among(cls, storage: Storage, there: Sequence[int]) -> Self | None:
        """The tables of these times; None if there are none."""
        return cls(storage, tuple(there)) if there else None

    def of(self, t: int) -> CorpusTable:
        """The last table that is not after a time; the first one, if all are."""
        return load_table(self.storage, max((at for at in self.there if at <= t), default=self.there[0]))

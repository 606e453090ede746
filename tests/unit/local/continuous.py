"""Small streams with many ties, split into epochs and distributed over slots, for the tests of continuous queries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from spatialstream.local.base import LocalIndex
from spatialstream.local.nearest.skyband import Changes
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.selections import Selection
from spatialstream.model.space import WGS84, Space
from tests.unit.memory_files import MemoryFiles

PLANE = Space.planar(0.0, 0.0, 4.0, 4.0)
PLACES = {
    PLANE: [(x, y) for x in (0.0, 1.0, 2.0, 3.5) for y in (0.0, 1.0, 4.0)],
    WGS84: [
        (-180.0, 0.0),
        (180.0, 0.0),
        (179.5, 1.0),
        (-179.5, 0.5),
        (0.0, 90.0),
        (90.0, 90.0),
        (10.0, 50.0),
        (10.5, 50.0),
    ],
}
WORDS = ["x", "y", "zebra-crossing"]
LAST = 16


@dataclass
class Epoch:
    """The records of one epoch."""

    numbers: list[int] = field(default_factory=list)
    cancelled: list[tuple[int, int]] = field(default_factory=list)
    objects: list[SpatialObject] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    before: int = 0
    """No later record is earlier than this."""
    horizon: int = 0
    """No later object, and no later registration or cancellation at this instant, is earlier than or at this."""
    restart: bool = False


@dataclass
class Stream:
    """A stream: all records at once for the oracle, and epoch by epoch."""

    space: Space
    queries: list[Query]
    end: list[int]
    """For each query (its number is its position), its cancellation, or a time after all records."""
    objects: list[SpatialObject]
    slots: int
    epochs: list[Epoch]

    def batch(self, numbers: list[int]) -> tuple[np.ndarray, QueryBatch]:
        """Arguments of ``register``."""
        return np.array(numbers, np.int64), QueryBatch.of([self.queries[i] for i in numbers])


def order(o: SpatialObject) -> tuple[int, str, float, float]:
    """The sort key of objects: their order of arrival."""
    return o.t, o.id, o.x, o.y


def queries_of(what: st.SearchStrategy[tuple[Predicate, Selection]]) -> st.SearchStrategy[list[Query]]:
    """Up to six continuous queries that may have a window, of these conditions and selections."""
    query = st.builds(
        lambda t, parts, duration, window: (t, *parts, Lifetime(duration, True, window)),
        st.integers(0, LAST // 2),
        what,
        st.sampled_from([0, 1, 6, 100]),
        st.sampled_from([None, None, 0, 1, 3, 5, 100]),
    )
    return st.lists(query, max_size=6).map(
        lambda parts: [Query(f"q{(7 * i) % 10}", *part) for i, part in enumerate(parts)]
    )


Candidates = Sequence[tuple[SpatialObject, tuple[Any, ...], tuple[Any, ...]]]
"""Objects that may be in an answer, each with its rank and what rows show of it, in order of arrival."""


def first_of(stream: Stream, candidates: Callable[[Query, list[SpatialObject]], Candidates]) -> list[Any]:
    """Every change of the first k candidates of each query, from its definition."""
    rows = []
    last = stream.epochs[-1].horizon if stream.epochs else 0
    for number, query in enumerate(stream.queries):
        window = query.lifetime.window
        end = min(query.t + query.lifetime.duration, stream.end[number])
        ranked = candidates(query, [o for o in stream.objects if query.t <= o.t < end])
        events = [(o.t, 1, order(o), i) for i, (o, *_) in enumerate(ranked)]
        if window is not None:
            events += [(t, 0, (), -1) for t in {o.t + window for o, *_ in ranked} if t < end and t <= last]
        answer: list[tuple[Any, ...]] = []
        seen: list[tuple[Any, ...]] = []
        for now, phase, place, i in sorted(events):
            if phase:
                seen.append(ranked[i])
            inside = [each for each in seen if window is None or now - window < each[0].t <= now]
            new = [shown for _, _, shown in sorted(inside, key=lambda each: each[1])][: query.k]
            if new != answer:
                answer = new
                rows.append(((now, phase, place, query.id), (now, query.id, new)))
    return [row for _, row in sorted(rows, key=lambda row: row[0])]


@st.composite
def streams(draw: st.DrawFn, queries: st.SearchStrategy[list[Query]], space: Space) -> Stream:
    """Streams over the given queries."""
    found = draw(queries)
    times = st.integers(0, LAST)
    objects = draw(
        st.lists(
            st.builds(
                lambda i, t, place, terms: SpatialObject(i, t, *place, tuple(terms)),
                st.sampled_from(["a", "b", "ab", "é", "𝒂"]),
                times,
                st.sampled_from(PLACES[space]),
                st.sets(st.sampled_from(WORDS)).map(sorted),
            ),
            max_size=24,
        )
    )
    objects = sorted(objects, key=order)
    end = [draw(st.one_of(st.just(10**9), times.map(lambda t, q=q: max(t, q.t)))) for q in found]
    slots = draw(st.integers(1, 3))
    records = [((q.t, 0), ("query", i)) for i, q in enumerate(found)]
    records += [((c, 1), ("cancel", i)) for i, c in enumerate(end) if c < 10**9]
    records += [((o.t, 2), ("object", i)) for i, o in enumerate(objects)]
    records.sort(key=lambda record: record[0])
    cuts = sorted(draw(st.sets(st.integers(0, max(0, len(records))), max_size=6)) | {0, len(records)})
    epochs = []
    for low, high in pairwise(cuts):
        epoch = Epoch(restart=draw(st.booleans()))
        for (t, kind), (what, i) in records[low:high]:
            if what == "query":
                epoch.numbers.append(i)
            elif what == "cancel":
                epoch.cancelled.append((i, t))
            else:
                epoch.objects.append(objects[i])
                epoch.slots.append(draw(st.integers(0, slots - 1)))
            epoch.before, epoch.horizon = t, t if kind == 2 else t - 1
        epochs.append(epoch)
    if epochs:
        epochs[-1].horizon = epochs[-1].before  # nothing comes later
        epochs[-1].before += 1
    return Stream(space, found, end, objects, slots, epochs)


class Digests(MemoryFiles):
    """Files named by a digest of their content."""

    def write(self, kind, arrays, meta=None):
        digest = hashlib.sha256(kind.encode())
        for name, array in arrays.items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        name = f"{kind}-{digest.hexdigest()[:16]}"
        self.files[name] = {key: array.copy() for key, array in arrays.items()}, dict(meta or {})
        return name


class Run:
    """Runs the indexes of several slots, epoch by epoch; subclasses define the resulting rows."""

    index: ClassVar[type[LocalIndex]]
    options: ClassVar[dict[str, Any]] = {}
    """Arguments for creating an index."""
    kept: ClassVar[dict[str, Any]] = {}
    """Those of them that are not in its manifest."""

    def __init__(self, stream: Stream, files: MemoryFiles) -> None:
        self.stream, self.files = stream, files
        self.slots: list[Any] = [self.index(stream.space, **self.options) for _ in range(stream.slots)]

    def epoch(self, epoch: Epoch) -> list[Any]:
        """The rows of an epoch."""
        numbers, queries = self.stream.batch(epoch.numbers)
        cancelled = np.array([i for i, _ in epoch.cancelled] + [999], np.int64)
        at = np.array([t for _, t in epoch.cancelled] + [0], np.int64)
        for index in self.continuous():
            index.register(numbers, queries)
            index.end_at(cancelled, at)
        batches = [
            ObjectBatch.of([o for o, s in zip(epoch.objects, epoch.slots, strict=True) if s == slot])
            for slot in range(len(self.slots))
        ]
        rows = self.rows(epoch, batches)
        for index in self.slots:
            self.expire(index, epoch.before - 1)
        return rows

    def continuous(self) -> list[Any]:
        """The indexes that queries are registered with."""
        return self.slots

    def rows(self, epoch: Epoch, batches: list[ObjectBatch]) -> list[Any]:
        """Pass each slot its objects, and return the resulting rows."""
        raise NotImplementedError

    def expire(self, index: Any, now: int) -> None:
        index.expire(now)

    def checkpoint(self) -> list[dict]:
        return [index.checkpoint(self.files.write) for index in self.slots]

    def restart(self) -> None:
        self.slots = [
            self.index.restore(self.stream.space, manifest, self.files.read, **self.kept)
            for manifest in self.checkpoint()
        ]

    def whole(self) -> list[Any]:
        """The rows of the whole stream."""
        rows = []
        for epoch in self.stream.epochs:
            rows += self.epoch(epoch)
            if epoch.restart:
                self.restart()
        return rows


class MergedRun(Run):
    """Slots whose arrivals a merger turns into the changes of lists.

    Attributes:
        merging: class of the merger.
        arrivals: class of what it merges.
        found: the columns of what ``match`` finds that arrivals have after the coordinates.
        columns: the columns of changes that rows show after the coordinates.
    """

    merging: ClassVar[type[Any]]
    arrivals: ClassVar[type[Any]]
    found: ClassVar[tuple[str, ...]]
    columns: ClassVar[tuple[str, ...]]

    def __init__(self, stream: Stream, files: MemoryFiles) -> None:
        super().__init__(stream, files)
        self.merger: Any = self.merging(stream.space)

    @classmethod
    def arrivals_of(cls, index: Any, objects: ObjectBatch | list[SpatialObject]) -> Any:
        """What an index passes on of some objects."""
        batch = objects if isinstance(objects, ObjectBatch) else ObjectBatch.of(objects)
        parts = [
            cls.arrivals(
                found.number,
                batch.ids.take(pa.array(found.position)),
                *(column[found.position] for column in (batch.t, batch.x, batch.y)),
                *(getattr(found, name) for name in cls.found),
            )
            for found in index.match(batch)
        ]
        return cls.arrivals.concat(parts)

    @classmethod
    def rows_of(cls, changes: Changes) -> list[Any]:
        """The rows of changes."""
        rows = []
        names = "object_t", "x", "y", *cls.columns
        columns = (changes.ids.to_pylist(), *(getattr(changes, name) for name in names))
        for i in range(len(changes)):
            part = slice(changes.offsets[i], changes.offsets[i + 1])
            objects = list(zip(*(list(column[part]) for column in columns), strict=True))
            rows.append((int(changes.t[i]), changes.query[i].as_py(), objects))
        return rows

    @classmethod
    def changes_of(cls, merger: Any, arrivals: Any, horizon: int, *shown: int) -> list[Any]:
        """The rows of what a merger makes of arrivals."""
        parts = list(merger.changes(arrivals, horizon, *shown))
        assert all(map(len, parts))
        return [row for part in parts for row in cls.rows_of(part)]

    def merged(self, batches: list[ObjectBatch]) -> Any:
        """What the slots pass on of an epoch."""
        found = [self.arrivals_of(index, batch) for index, batch in zip(self.slots, batches, strict=True)]
        return self.arrivals.concat(found)

    def checkpoint(self) -> list[dict]:
        return [*super().checkpoint(), self.merger.checkpoint(self.files.write)]

    def restart(self) -> None:
        *slots, merger = self.checkpoint()
        self.slots = [self.index.restore(self.stream.space, manifest, self.files.read) for manifest in slots]
        self.merger = self.merging.restore(self.stream.space, merger, self.files.read)


def compiled(*modules: ModuleType) -> dict[str, int]:
    """The number of argument types for which each kernel of some modules has been compiled."""
    return {
        f"{module.__name__}.{name}": len(kernel.signatures)
        for module in modules
        for name, kernel in vars(module).items()
        if hasattr(kernel, "signatures")
    }

"""The continuous counts of a slot: each is compared with each object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from spatialstream.local.arrays import Flags, Ints
from spatialstream.local.base import MovableIndex
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import ANY_WORDS


@dataclass
class Counted:
    """A query: its number, its last step, and the times of the objects that it has met."""

    number: int
    query: Query
    last: int
    times: list[int] = field(default_factory=list)

    def next_step(self, after: int) -> int:
        """The first step after a time."""
        t, step = self.query.t, self.query.lifetime.step
        assert step is not None
        return t + step * max(1, (after - t) // step + 1)

    def counts(self, after: int, until: int) -> Iterator[tuple[int, int]]:
        """The steps of a time, and the number at each."""
        window, step = self.query.lifetime.window, self.query.lifetime.step
        assert window is not None
        assert step is not None
        for now in range(self.next_step(after), min(until, self.last) + 1, step):
            yield now, sum(now - window < t <= now for t in self.times)


class CountIndex(MovableIndex):
    """See there."""

    def __init__(self, space: Space) -> None:
        self.space, self._watermark = space, -(2**60)
        self._queries: dict[int, Counted] = {}

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def nbytes(self) -> int:
        return sum(8 * len(each.times) for each in self._queries.values())

    def register(self, numbers: Ints, queries: QueryBatch) -> None:
        for i, number in enumerate(numbers.tolist()):
            query = queries[i]
            assert isinstance(query, Query)
            self._queries[number] = Counted(number, query, query.t + query.lifetime.duration)

    def end_at(self, numbers: Ints, t: Ints) -> None:
        for number, end in zip(numbers.tolist(), t.tolist(), strict=True):
            if number in self._queries:
                self._queries[number].last = min(self._queries[number].last, end - 1)

    def drop(self, numbers: Ints) -> None:
        for number in numbers.tolist():
            self._queries.pop(number, None)

    def _unfinished(self, now: int) -> list[Counted]:
        return [each for _, each in sorted(self._queries.items()) if each.next_step(now) <= each.last]

    def known(self, numbers: Ints) -> Flags:
        return np.isin(numbers, [each.number for each in self._unfinished(self._watermark)])

    def continuous(self, now: int) -> tuple[Ints, QueryBatch]:
        found = self._unfinished(max(now, self._watermark))
        queries = [
            replace(each.query, lifetime=replace(each.query.lifetime, duration=each.last - each.query.t))
            for each in found
        ]
        return np.array([each.number for each in found], np.int64), QueryBatch.of(queries)

    def match(self, objects: ObjectBatch) -> Iterable[Any]:
        for each in self._queries.values():
            regions, text = Regions.of([each.query.predicate.region]), each.query.predicate.expression
            for i, t in enumerate(objects.t.tolist()):
                here = t >= each.query.t and regions.contain(self.space, 0, objects.x[i], objects.y[i])
                if here and text.holds(objects[i].terms):
                    each.times.append(t)
        return ()

    def steps(self, watermark: int) -> list[tuple[int, str, int, int]]:
        """(number, id, now, count) of each step since the last call, up to this one."""
        rows = [
            (each.number, each.query.id, *step)
            for each in self._queries.values()
            for step in each.counts(self._watermark, watermark)
        ]
        self._watermark = max(self._watermark, watermark)
        return rows

    def expire(self, now: int) -> None:
        self._watermark = max(self._watermark, now)
        self._queries = {each.number: each for each in self._unfinished(self._watermark)}

    def checkpoint(self, write: WriteFile) -> Manifest:
        queries = [[each.number, each.query.to_record(), each.last, each.times] for each in self._queries.values()]
        return {"watermark": self._watermark, "queries": queries}

    @classmethod
    def restore(cls, space: Space, manifest: Manifest, read: ReadFile) -> Self:
        self = cls(space)
        self._watermark = manifest["watermark"]
        for number, record, last, times in manifest["queries"]:
            query = parse_query(record, space, ANY_WORDS)
            assert isinstance(query, Query)
            self._queries[number] = Counted(number, query, last, list(times))
        return self


INDEXES = {"counts": CountIndex}

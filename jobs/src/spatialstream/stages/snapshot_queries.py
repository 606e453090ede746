"""Snapshot queries that are asked between rounds: the slots that they concern, and the rows of what those find.

A query goes to the slots to which the router would send it; SKQs in two phases, first to the slot nearest to them, and
then to those within the radius that it gives. Slots whose signatures say that they have nothing for it are skipped
(:mod:`~spatialstream.stages.signatures`). An SKQ whose nearest slot is skipped begins at the slot that has the nearest
block with its words; one for which only a few slots may have something asks all of these at once. All slots answer as
of one round, so the rows are those that the stream itself gives for the same queries with their times, if they come
with the next round.

Slots answer in the order of the queries, and rows are made in that order while the answers come: what is held is about
twice :data:`~spatialstream.stages.snapshots.BLOCK_BYTES`, or what is found for one query where that is more. This
module does not know how slots are reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import numpy_view
from spatialstream.model.errors import Gone, Missing
from spatialstream.model.kinds import CODE, KINDS
from spatialstream.model.parsed_queries import packed, unpacked
from spatialstream.model.queries import Nearest, Query
from spatialstream.model.regions import Circle
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.kinds import SNAPSHOT
from spatialstream.stages.kinds.base import Columns, Objects, stack
from spatialstream.stages.routing import Routing, widened
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.signatures import SlotPruning
from spatialstream.stages.snapshots import (
    BLOCK_BYTES,
    SHORT,
    items_of,
    nbytes,
    reach_of,
    rows_of,
    search,
    short_row,
)
from spatialstream.stages.two_phase import others_of
from spatialstream.stages.views import RoundId, view_of

__all__ = ["Find", "Lines", "Part", "SnapshotRows", "Tally", "Wanted", "found_here", "gathered", "joined", "scattered"]

_FEW = 4
"""An SKQ asks all slots that may have something at once if these are at most a quarter of all: then one slot has hardly
all that it looks for, and a second phase would only ask the others later."""

Part = tuple[int, list[Columns]]
"""The number of a query, and what some slots have found for it."""

Blocks = tuple[list[int], list[pa.RecordBatch]]
"""Numbers of queries that are complete with these batches and the earlier ones; and a batch of results per type."""

Lines = tuple[list[int], list[bytes]]
"""Numbers of queries, and the row of each."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query, and slots that it concerns.

    Attributes:
        number: identifies the query.
        query: with its time.
        since: it looks at objects of (since, t].
        slots: numbers of the slots.
        alone: whether no other slot is asked: of the terms of an STQ, those that cannot be among the first k are
            omitted then.
        within: an SKQ does not need farther objects than this: the distance of the k-th object that is known.
    """

    number: int
    query: Query
    since: int
    slots: tuple[int, ...]
    alone: bool
    within: float = np.inf

    def to_record(self) -> list[Any]:
        """As JSON, for :meth:`of`."""
        return [self.number, packed(self.query), self.since, self.slots, self.alone, self.within]

    @classmethod
    def of(cls, record: Sequence[Any]) -> Self:
        """From :meth:`to_record`."""
        number, query, since, slots, alone, within = record
        return cls(number, unpacked(query), since, tuple(slots), alone, within)


Find = Callable[[Sequence[Wanted]], Iterator[Part]]
"""Searches the slots of queries, which are ascending by number; yields what all of its slots have found for each of
them, in their order. Raises Gone if a slot has not answered as of the round."""


# ------------------------------------------------------------------------------------------------- slots of one process


def found_here(place: str, round_id: RoundId, wanted: Sequence[Wanted]) -> Iterator[Part]:
    """What slots of this process find for queries, one after the other.

    Args:
        place: of the storage of the slots' state.
        round_id: of a round that is done.
        wanted: the queries.

    Raises:
        Gone: a view of the round is not here; before the first part.
    """
    views = {slot: view_of(place, slot, round_id) for each in wanted for slot in each.slots}
    for each in wanted:
        try:
            yield each.number, [_searched(views[slot].objects, each) for slot in each.slots]
        except Missing as error:  # a segment that was never read, and has been dropped since
            raise Gone(f"{error}: try again with the newest round") from None


def _searched(objects: Objects, wanted: Wanted) -> Columns:
    return search(objects, wanted.query, wanted.number, wanted.since, alone=wanted.alone, within=wanted.within)


def scattered(parts: Iterable[Part], types: Mapping[int, str]) -> Iterator[Blocks]:
    """What slots of one process have found, as blocks of some megabytes, for :func:`gathered` in another one.

    Args:
        parts: of queries, ascending by number.
        types: of the queries.
    """
    done, found, size = list[int](), dict[str, list[Columns]](), 0
    for number, some in parts:
        for piece in (piece for part in some for piece in _pieces(part)):
            found.setdefault(types[number], []).append(piece)
            size += nbytes(piece)
            if size >= BLOCK_BYTES:
                yield done, list(map(stack, found.values()))
                done, found, size = [], {}, 0
        done.append(number)
    yield done, list(map(stack, found.values()))


def _pieces(part: Columns) -> Iterator[Columns]:
    """What was found for a query, cut into pieces of about :data:`BLOCK_BYTES`."""
    size, length = nbytes(part), len(part["number"])
    rows = length if size <= BLOCK_BYTES else max(1, length * BLOCK_BYTES // size)
    for first in range(0, length, max(1, rows)):
        yield part if rows == length else {name: column[first : first + rows] for name, column in part.items()}


def gathered(blocks: Iterable[Blocks]) -> Iterator[Part]:
    """The inverse of :func:`scattered`."""
    waiting = dict[int, list[Columns]]()
    for done, batches in blocks:
        for batch in batches:
            owners = messages.numbers(batch, "number")
            ends = [*(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)]
            for first, end in zip([0, *ends], ends, strict=False):
                waiting.setdefault(int(owners[first]), []).append(_columns(batch.slice(first, end - first)))
        for number in done:
            yield number, waiting.pop(number, [])


def _columns(part: pa.RecordBatch) -> Columns:
    return {
        name: column if pa.types.is_string(column.type) or pa.types.is_large_string(column.type) else numpy_view(column)
        for name, column in zip(part.schema.names, part.columns, strict=True)
    }


def joined(streams: Sequence[tuple[Sequence[Wanted], Iterator[Part]]]) -> Iterator[Part]:
    """What several processes have found for queries: of each query the parts of all whose slots it concerns.

    Raises:
        Gone: one of them has not answered for all its queries.
    """
    asked = dict[int, list[Iterator[Part]]]()
    for wanted, parts in streams:
        for each in wanted:
            asked.setdefault(each.number, []).append(parts)
    for number in sorted(asked):
        found = list[Columns]()
        for parts in asked[number]:
            answered, some = next(parts, (None, ()))
            if answered != number:
                raise Gone("a slot has not answered: try again with the newest round")
            found += some
        yield number, found


# ----------------------------------------------------------------------------------------------------------- all slots


class Tally(Protocol):
    """Keeps count of what is held for the answers to a call."""

    def found(self, size: int, *, listed: bool) -> None:
        """So many bytes more have been found; ``listed``: objects that are all in a row. Raises if it is too much."""

    def making(self, size: int) -> AbstractContextManager[object]:
        """Entered while rows are made of ``size`` bytes."""

    def sent(self, size: int) -> None:
        """Release ``size`` bytes of what was found, with the rows made of it."""


class SnapshotRows:
    """The rows of snapshot queries as of a round.

    Args:
        queries: with their times, which are not after the watermark.
        routing: where objects are, after the round.
        watermark: after the round, ms.
        space: of the stream.
        retention: ms that the queries can look back; None: for ever.
        longest: bytes of a row; a longer one says so in place of its list; None: any length.
        pruning: what is known, by now, of the slots' views of the round; None: nothing.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        routing: Routing,
        watermark: int,
        space: Space,
        retention: int | None = None,
        longest: int | None = None,
        pruning: Callable[[], SlotPruning] | None = None,
    ) -> None:
        self._routing, self._space, self._longest = routing, space, longest
        self._pruning = pruning or (lambda: SlotPruning(space, routing.slots, {}))
        self._wanted = list[Wanted]()
        for number, (query, slots) in enumerate(zip(queries, routing.slots_of(queries), strict=True)):
            since, _ = reach_of(query, retention, watermark)
            first = self._first(query, since, slots)
            self._wanted.append(Wanted(number, query, since, first, len(first) == 1))

    def _first(self, query: Query, since: int, slots: list[int]) -> tuple[int, ...]:
        """Those of its slots that a query asks first; at least one, which says that there is nothing."""
        pruning = self._pruning()
        if isinstance(query.selection, Nearest):
            kept = self._nearest(query, query.selection, since, slots, pruning)
        else:
            kept = pruning.may_have(slots, query, since, query.predicate.region)
        return tuple(kept or [slots[0] if pruning.here is None else pruning.here])

    def _nearest(self, query: Query, at: Nearest, since: int, slots: list[int], pruning: SlotPruning) -> list[int]:
        """The slots where an SKQ begins: the nearest one, or all that may have something if these are few."""
        everywhere = range(self._routing.slots)
        there = pruning.may_have(everywhere, query, since, None) if pruning.knows else everywhere
        if len(there) * _FEW <= len(everywhere):
            return [*there]
        return slots if slots[0] in there else [pruning.nearest(there, query, since, (at.x, at.y))]

    def rows(self, find: Find, tally: Tally) -> Iterator[Lines]:
        """The rows, some at a time, as what ``find`` finds comes in."""
        group, size = deque[Part](), 0
        for number, parts in find(self._wanted):
            group.append((number, parts))
            size += self._counted(number, parts, tally)
            if size >= BLOCK_BYTES:
                yield from self._of_group(group, find, tally)
                size = 0
        yield from self._of_group(group, find, tally)

    def _counted(self, number: int, parts: Sequence[Columns], tally: Tally) -> int:
        size = sum(map(nbytes, parts))
        tally.found(size, listed=SNAPSHOT[self._wanted[number].query.type].listed)
        return size

    def _of_group(self, group: deque[Part], find: Find, tally: Tally) -> Iterator[Lines]:
        """Rows of queries whose first phase is done; the group is empty then."""
        batch, size = dict[int, list[Columns]](), 0
        for number, parts in self._completed(group, find, tally):
            batch[number] = parts
            size += sum(map(nbytes, parts))
            del parts
            if size >= BLOCK_BYTES or not group:
                made, batch = self._made(batch, size, tally), {}
                yield made
                tally.sent(size)
                size = 0

    def _completed(self, group: deque[Part], find: Find, tally: Tally) -> Iterator[Part]:
        """The parts of queries; of SKQs those of the second phase too."""
        again = [second for number, parts in group if (second := self._second(number, parts)) is not None]
        more, later = find(again) if again else iter(()), {each.number for each in again}
        while group:
            number, parts = group.popleft()
            if number in later:
                _, others = next(more)
                self._counted(number, others, tally)
                parts = [*parts, *others]
            yield number, parts

    def _second(self, number: int, parts: Sequence[Columns]) -> Wanted | None:
        """The second phase of a query that needs one."""
        first = self._wanted[number]
        if not isinstance(first.query.selection, Nearest) or len(first.slots) > 1:  # all that may have something
            return None
        (slot,), at, k = first.slots, first.query.selection, first.query.k
        distance = np.concatenate([part["distance"] for part in parts]) if parts else np.empty(0)
        within = float(distance[k - 1]) if len(distance) >= k else np.inf
        region = Circle(at.x, at.y, widened(within, self._space)) if within < np.inf else None
        others = [each for each in range(self._routing.slots) if each != slot]
        left = self._pruning().may_have(others, first.query, first.since, region)
        if not left:
            return None
        reached = others_of(first.query, at, within, first.since, slot, self._routing, self._space)
        slots = sorted({*reached} & {*left})
        return replace(first, slots=tuple(slots), alone=False, within=within) if slots else None

    def _made(self, batch: Mapping[int, Sequence[Columns]], size: int, tally: Tally) -> Lines:
        """The rows of queries whose answers are complete."""
        rows, by_type = dict[int, bytes](), dict[str, list[int]]()
        for number in batch:
            by_type.setdefault(self._wanted[number].query.type, []).append(number)
        with tally.making(size):
            for kind, numbers in by_type.items():
                left = numbers
                if sum(items_of(self._wanted[i].query, batch[i]) for i in numbers) <= SHORT:
                    rows |= {i: self._short(i, batch[i]) for i in numbers}
                    left = [i for i in numbers if self._longest is not None and len(rows[i]) > self._longest]
                if left:
                    rows |= zip(left, self._columnwise(kind, left, batch), strict=True)
        return list(rows), list(rows.values())

    def _short(self, number: int, parts: Sequence[Columns]) -> bytes:
        return short_row(self._wanted[number].query, parts, self._after(number), self._space).encode()

    def _after(self, number: int) -> int | None:
        """Up to which time the objects are not kept any more that a query asks for; None: all are."""
        query, since = self._wanted[number].query, self._wanted[number].since
        return None if since == query.t - query.lifetime.duration else since

    def _columnwise(self, kind: str, rows: Sequence[int], batch: Mapping[int, Sequence[Columns]]) -> list[bytes]:
        """Rows of queries of one type, of any length."""
        queries, after = [self._wanted[i].query for i in rows], [self._after(i) for i in rows]
        asked = messages.columns(
            number=np.array(rows),
            id=pa.array([each.id for each in queries], pa.string()),
            t=np.array([each.t for each in queries]),
            k=np.array([each.k for each in queries]),
            since=np.array([each or 0 for each in after]),
            whole=np.array([each is None for each in after]),
        )
        parts = [part for i in rows for part in batch[i]]
        found = [stack(parts)] if any(len(part["number"]) for part in parts) else []
        limits = None if self._longest is None else RowLimits(self._longest, self._longest)  # complete, or not at all
        made = rows_of(KINDS[CODE[kind]], asked, found, self._space, limits)
        lines: list[bytes] = made.lines.cast(pa.large_binary()).to_pylist()
        return lines

"""SKQs in two phases: first the slot nearest to ρ, then the slots within the radius that it gives (SSTD, section 6.2).

In the paper the radius goes back to the router, which sends the query out again. Here the second phase belongs to the
same round: the slots are still in the state of that round, so both phases see the same objects by construction, and no
path through router and broker is added. The slots are determined as the router does it, from the same routing versions.

An SKQ needs no second phase if no other slot has a leaf within its radius. If the first slot has fewer than k objects,
the radius is infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.connectors.contracts import Storage
from spatialstream.model.arrays import numpy_view
from spatialstream.model.queries import Nearest, Query, QueryBatch
from spatialstream.model.regions import Circle
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.kinds.base import Objects, found_columns, one_table, stack
from spatialstream.stages.messages import Block, numbers
from spatialstream.stages.routing import Extent, Routing, widened
from spatialstream.stages.state import get_records, records_file, turn_name
from spatialstream.stages.turns import Round

__all__ = [
    "Second",
    "answer_second",
    "asked_of",
    "others_of",
    "others_within",
    "requests",
    "second_name",
    "second_phase",
    "still_to_ask",
]


@dataclass(frozen=True, slots=True, eq=False)
class Second:
    """What is kept of the first phase.

    Attributes:
        numbers: int64[n], of the queries, ascending.
        rows: their heads, the objects found so far, and the queries with the slots still to be asked.
        slots: the slots that take part, ascending.
    """

    numbers: npt.NDArray[np.int64]
    rows: tuple[Block, ...]
    slots: tuple[int, ...]

    def save(self, storage: Storage, turn: Round, part: int, *, near: bool = False) -> None:
        """Write the rows to the file of a round and a part of MERGE; ``near``: only for processes of this machine."""
        batches = [each for row in self.rows for each in messages.messages(*row)]
        put = storage.share if near else storage.put
        put(second_name(turn.number, turn.revision, part), records_file(pa.Table.from_batches(batches)))

    @staticmethod
    def load(storage: Storage, turn: Round, part: int) -> list[Block]:
        """Load the rows from the file of a round and a part of MERGE."""
        name = second_name(turn.number, turn.revision, part)
        return [row for batch in get_records(storage, name) for row in messages.blocks(batch)]


def second_name(number: int, revision: int, part: int) -> str:
    """The name of the file of a round for the second phase of a part of MERGE."""
    return f"rounds/{turn_name((number, revision))}-{part:04d}.second"


def second_phase(rows: Sequence[Block], routing: Routing, space: Space) -> Second | None:
    """The SKQs that need a second phase, and what it needs of the first one; None if none does."""
    again = still_to_ask(rows, routing, space)
    if again is None:
        return None
    later = numbers(again, "number")
    blocks = [(0, messages.ASKED, again)]
    for kind in (messages.SNAPSHOT_QUERIES, messages.SNAPSHOT_OBJECTS):
        parts = [content for _, each, content in rows if each == kind]
        if parts:  # there are no objects if no query of this part of MERGE has found any
            blocks.append((0, kind, _only(one_table(parts), later)))
    slots = again.column("slots").flatten().to_numpy()
    return Second(later, tuple(blocks), tuple(np.unique(slots).tolist()))


def still_to_ask(rows: Sequence[Block], routing: Routing, space: Space) -> pa.RecordBatch | None:
    """The SKQs that need a second phase, see :func:`requests`, by number and with ``since``; None if none does.

    Args:
        rows: partials of the first phase.
        routing: where objects are.
        space: of the stream.
    """
    asked = [(slot, content) for slot, kind, content in rows if kind == messages.ASKED]
    if not asked:
        return None
    slot = np.concatenate([np.full(content.num_rows, each) for each, content in asked])
    record = pa.concat_batches([content for _, content in asked])
    number, since, t, k = (numbers(record, name) for name in ("number", "since", "t", "k"))
    at = numpy_view(record.column("at").flatten()).reshape(-1, 2)
    found = [content for _, kind, content in rows if kind == messages.SNAPSHOT_OBJECTS]
    row, target = others_within(at, _radius(number, k, found), since, t, slot, routing, space)
    if not len(row):
        return None
    again = np.unique(row)
    again = again[np.argsort(number[again])]
    place = np.full(len(number), -1)
    place[again] = np.arange(len(again))
    order = np.argsort(place[row], kind="stable")
    return requests(record.take(pa.array(again)), place[row][order], target[order])


def others_within(
    at: npt.NDArray[np.float64],
    radius: npt.NDArray[np.float64],
    since: npt.NDArray[np.int64],
    t: npt.NDArray[np.int64],
    slot: npt.NDArray[np.integer],
    routing: Routing,
    space: Space,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The slots that may have something nearer than what the first one has found: (row, slot), ascending.

    Args:
        at: float64[n, 2], the points of n queries.
        radius: float64[n], the distance of the k-th object that was found; infinite if there are fewer.
        since: int64[n], ms; only objects of (since, t] matter.
        t: int64[n], ms.
        slot: int[n], the slots that have been asked.
        routing: where objects are.
        space: of the stream.
    """
    row, target = routing.slots_within(at, widened(radius, space), since, t)
    others = target != slot[row]
    return row[others], target[others]


def others_of(
    query: Query, at: Nearest, radius: float, since: int, slot: int, routing: Routing, space: Space
) -> list[int]:
    """The result of :func:`others_within` for one query, computed faster: the slots, ascending."""
    wide = widened(radius, space)
    region = Circle(at.x, at.y, wide) if wide < np.inf else None
    (slots,) = routing.reaching([Extent(region, since, query.t)])
    return [each for each in slots if each != slot]


def requests(record: pa.RecordBatch, row: npt.NDArray[np.integer], slot: npt.NDArray[np.int32]) -> pa.RecordBatch:
    """Queries with the slots to ask: a list column ``slots``.

    Args:
        record: n queries.
        row: int32[m], ascending: the row of a query.
        slot: int32[m], the slot to ask for it.
    """
    offsets = np.searchsorted(row, np.arange(record.num_rows + 1)).astype(np.int32)
    return record.append_column("slots", pa.ListArray.from_arrays(pa.array(offsets), pa.array(slot)))


def asked_of(slot: int, record: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """The rows of :func:`requests` that are for a slot, ascending."""
    asked = record.column("slots")
    owners = np.repeat(np.arange(record.num_rows), np.diff(asked.offsets.to_numpy()))
    rows: npt.NDArray[np.int64] = owners[asked.flatten().to_numpy() == slot]
    return rows


def _only(record: pa.RecordBatch, number: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return record.filter(pc.is_in(record.column("number"), pa.array(number)))


def _radius(
    number: npt.NDArray[np.int64], k: npt.NDArray[np.integer], found: Sequence[pa.RecordBatch]
) -> npt.NDArray[np.float64]:
    """The distance of the k-th of the objects found for each query; infinite if there are fewer."""
    if not found:
        return np.full(len(number), np.inf)
    owner, distance = (np.concatenate([numbers(part, name) for part in found]) for name in ("number", "distance"))
    order = np.lexsort((distance, owner))
    owner, distance = owner[order], distance[order]
    first, last = np.searchsorted(owner, number, "left"), np.searchsorted(owner, number, "right")
    full = last - first >= k
    radius = np.full(len(number), np.inf)
    radius[full] = distance[first[full] + k[full] - 1]
    return radius


def answer_second(slot: int, rows: Sequence[Block], objects: Objects) -> Iterator[Block]:
    """A slot's part in the second phase.

    Args:
        slot: number of the slot.
        rows: what :class:`Second` kept.
        objects: the slot's objects after the round.
    """
    parts = []
    for _, kind, record in rows:
        if kind != messages.ASKED:
            continue
        mine = asked_of(slot, record)
        number, since = numbers(record, "number"), numbers(record, "since")
        queries = QueryBatch.from_arrow(record.drop_columns(["number", "since", "slots"]))
        for i in mine.tolist():
            query = queries[i]
            assert isinstance(query, Query)
            assert isinstance(query.selection, Nearest)
            x, y, k = query.selection.x, query.selection.y, query.selection.k
            keywords = query.predicate.expression.literals
            found = objects.nearest(x, y, k, keywords, int(since[i]), query.t, fields=query.fields)
            parts.append(found_columns(int(number[i]), found))
    if parts:
        yield slot, messages.SNAPSHOT_OBJECTS, stack(parts)

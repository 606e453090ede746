"""Finds the records that make a stage fail: executes it without some (:mod:`~spatialstream.stages.quarantine`)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.memory_storage import Overlay
from spatialstream.local.state import Manifest, ReadFile
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.stages import merge as merging
from spatialstream.stages import messages, views
from spatialstream.stages import route as routing
from spatialstream.stages.division import PER_EPOCH
from spatialstream.stages.merge import ask, merge, merge_second, merger_state
from spatialstream.stages.messages import Block, numbers
from spatialstream.stages.quarantine import OBJECT, QUERY, QuarantinedRecord, culprits, dead_letter, failure
from spatialstream.stages.route import registry_state, route_epoch
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.runs import records_of_share, unpack_place
from spatialstream.stages.state import Checkpointed, OwnerState, forget
from spatialstream.stages.turns import Epoch, Round, Run
from spatialstream.stages.two_phase import Second, second_name
from spatialstream.stages.work import (
    BlockMessage,
    SlotIndexes,
    WorkSettings,
    blocks_of_round,
    slot_state,
    without,
    work,
)

__all__ = ["bisect_answers", "bisect_ask", "bisect_merge", "bisect_route", "bisect_work"]

_OF_LINES = frozenset({messages.ENDED, messages.LINES, messages.COUNTED})
_OF_OBJECTS = frozenset(
    {
        *(messages.SNAPSHOT_OBJECTS, messages.SNAPSHOT_LISTS, messages.SNAPSHOT_BEST),
        *(messages.ARRIVALS, messages.BEST_ARRIVALS),
    }
)
"""Blocks whose ids are those of objects."""

_Name = tuple[str, int]
"""Of a record: what and number of :class:`~spatialstream.stages.quarantine.QuarantinedRecord`."""


_Turn = TypeVar("_Turn", Epoch, Round)


def _found(
    names: Sequence[_Name], rehearse: Callable[[tuple[QuarantinedRecord, ...]], object]
) -> list[tuple[_Name, Exception]]:
    """The records without which a stage does not fail, and the exception because of each.

    Args:
        names: all records, in order.
        rehearse: executes the stage without some records, and leaves no trace.
    """

    def outcome(kept: np.ndarray) -> Exception | None:
        others = tuple(QuarantinedRecord(*names[i]) for i in np.setdiff1d(np.arange(len(names)), kept).tolist())
        return failure(lambda: rehearse(others))

    return [(names[i], error) for i, error in culprits(len(names), outcome)]


@contextmanager
def _scratch(
    state: OwnerState,
    restore: Callable[[Manifest | None, ReadFile], Checkpointed],
    turn: _Turn,
    storage: Storage,
) -> Iterator[tuple[Callable[[], Overlay], _Turn]]:
    """Context for rehearsals: a function that returns a storage with the state before a turn, and the turn for it.

    The owner then has none of that state in memory.

    Args:
        state: the owner's state in the turn.
        restore: restores the owner's structures.
        turn: the turn.
        storage: of the stream's state, which is only read.

    Raises:
        Lost: the owner's state before the turn is not available.
    """
    base = Overlay(storage)
    state.copy(base, restore)
    copy = Overlay(base)

    def renewed() -> Overlay:
        copy.renew()
        return copy

    try:
        yield renewed, replace(turn, since=turn.before)
    finally:
        for each in (base, copy):
            forget(each)
        views.forget(copy.place)


def bisect_route(epoch: Epoch, partition: int, storage: Storage) -> list[QuarantinedRecord]:
    """The records of a router partition's share that have to be quarantined for ROUTE not to fail."""
    known = {(each.what, each.number) for each in epoch.quarantined}
    items = {
        (run.name, row): (run, record)
        for run, row, record in records_of_share(epoch, partition, storage)
        if (run.name, row) not in known
    }

    with _scratch(registry_state(epoch, partition, storage), partial(routing.restored, epoch), epoch, storage) as (
        scratch,
        again,
    ):

        def rehearse(others: tuple[QuarantinedRecord, ...]) -> None:
            deque(route_epoch(replace(again, quarantined=(*epoch.quarantined, *others)), partition, scratch()), 0)

        found = _found(list(items), rehearse)
    return [QuarantinedRecord(*name, _routed_letter(epoch.number, *items[name], error)) for name, error in found]


def _routed_letter(epoch: int, run: Run, record: pa.RecordBatch, error: Exception) -> str:
    place = dict[str, int]()
    if run.kind == "queries":
        offset, line = unpack_place(record.column("line")[0].as_py())
        place, record = {"offset": offset, "line": line}, record.drop_columns(["line"])
    return dead_letter(error, "ROUTE", _echo(record, run.kind), run.source, epoch, **place)


def bisect_work(
    slot: int, blocks: Sequence[BlockMessage], turn: Round, settings: WorkSettings, storage: Storage
) -> list[QuarantinedRecord]:
    """The records of a slot's blocks to be quarantined for WORK not to fail; arguments as those of WORK."""
    rows = list(without(slot, blocks_of_round(slot, blocks, turn)[0], turn.quarantined))
    quarantined = {(each.what, each.number) for each in turn.quarantined}
    items: dict[_Name, pa.RecordBatch] = {}
    for kind, what, name in ((messages.REGISTERED, QUERY, "number"), (messages.OBJECTS, OBJECT, "seq")):
        for content in [content for _, each, content in rows if each == kind]:
            for row, number in enumerate(numbers(content, name).tolist()):
                if (what, number) not in quarantined:
                    items[what, number] = content.slice(row, 1)
    settings = replace(settings, archive=None)
    restore = partial(SlotIndexes.restore, settings, slot)
    with _scratch(slot_state(slot, turn, storage), restore, turn, storage) as (scratch, again):

        def rehearse(others: tuple[QuarantinedRecord, ...]) -> None:
            deque(work(slot, blocks, replace(again, quarantined=(*turn.quarantined, *others)), settings, scratch()), 0)

        found = _found(list(items), rehearse)
    return [
        QuarantinedRecord(*name, _letter(name, "WORK", _echo_of(name, items[name]), error)) for name, error in found
    ]


def _echo_of(name: _Name, record: pa.RecordBatch) -> str:
    if name[0] == QUERY:
        return _echo(record.drop_columns(["number"]), "queries")
    return _echo(record.drop_columns(["seq", "leaf"]), "objects")


def _echo(record: pa.RecordBatch, kind: str) -> str:
    """A record as JSON."""
    is_query = kind == "queries"
    if is_query:
        fields = QueryBatch.from_arrow(record)[0].to_record()
    else:
        one = ObjectBatch.from_arrow(record)[0]
        fields = asdict(replace(one, terms=one.said))
        del fields["counts"]
        fields |= dict(fields.pop("properties")) | json.loads(f"{{{fields.pop('stored') or ''}}}")
    return json.dumps(fields, ensure_ascii=False)


def _letter(name: _Name, stage: str, echo: str, error: Exception) -> str:
    """The dead letter of a record, given the kind of its topic and its epoch."""
    what, number = name
    return dead_letter(error, stage, echo, "queries" if what == QUERY else "objects", number // PER_EPOCH)


def bisect_merge(
    rows: Sequence[Block],
    turn: Round,
    settings: WorkSettings,
    storage: Storage,
    limits: RowLimits | None = None,
    part: int = 0,
) -> list[QuarantinedRecord]:
    """The records to be quarantined for MERGE not to fail. If there are none, the second phase can be tried next.

    Args:
        rows: the partials of all slots, which have done the round.
        turn: the round.
        settings: of the stream.
        storage: of the stream's state.
        limits: maximum length of rows.
        part: of MERGE.
    """
    items: dict[_Name, str] = {}
    for _, kind, content in rows:
        if "number" in content.schema.names and kind not in _OF_LINES:
            ids = next((content.column(name) for name in ("id", "query") if name in content.schema.names), None)
            named = None if kind in _OF_OBJECTS else ids
            for row, number in enumerate(numbers(content, "number").tolist()):
                echo = json.dumps({"number": number} if named is None else {"id": named[row].as_py()})
                items[QUERY, number] = items.get((QUERY, number), echo) if named is None else echo
    for _, kind, content in rows:
        if kind == messages.LINES:
            lines = content.column("line")
            for row, seq in enumerate(numbers(content, "seq").tolist()):
                items.setdefault((OBJECT, seq), lines[row].as_py())
    names = sorted(items, key=lambda name: (name[0] == OBJECT, name[1]))

    restore = partial(merging.restored, settings.space)
    with _scratch(merger_state(part, turn, storage), restore, turn, storage) as (scratch, again):

        def rehearse(others: tuple[QuarantinedRecord, ...]) -> Second | None:
            results = merge(_kept(rows, others), again, settings.space, scratch(), limits, part)
            deque(results.lines, 0)
            return results.second

        found = _found(names, rehearse)
        storage.delete([second_name(turn.number, turn.revision, part)])
        if not found and (second := rehearse(())) is not None:
            second.save(storage, turn, part)
    return [QuarantinedRecord(*name, _letter(name, "MERGE", items[name], error)) for name, error in found]


def bisect_ask(slot: int, turn: Round, storage: Storage, part: int = 0) -> list[QuarantinedRecord]:
    """The records to be quarantined for a slot, which has done the round, not to fail in the second phase."""
    rows = Second.load(storage, turn, part)

    def rehearse(others: tuple[QuarantinedRecord, ...]) -> None:
        deque(ask(slot, _kept(rows, others), turn, storage), 0)

    return _asked(rows, rehearse)


def bisect_answers(
    rows: Sequence[Block],
    turn: Round,
    settings: WorkSettings,
    storage: Storage,
    limits: RowLimits | None = None,
    part: int = 0,
) -> list[QuarantinedRecord]:
    """The records to be quarantined for MERGE not to fail in the second phase; see :func:`bisect_merge`."""
    second = Second.load(storage, turn, part)

    def rehearse(others: tuple[QuarantinedRecord, ...]) -> None:
        deque(merge_second(_kept([*second, *rows], others), settings.space, limits), 0)

    return _asked(second, rehearse)


def _asked(
    rows: Sequence[Block], rehearse: Callable[[tuple[QuarantinedRecord, ...]], object]
) -> list[QuarantinedRecord]:
    """The queries of a second phase to be quarantined, out of the rows that :class:`Second` kept."""
    items = {
        (QUERY, number): json.dumps({"id": name})
        for _, kind, content in rows
        if kind == messages.SNAPSHOT_QUERIES
        for number, name in zip(numbers(content, "number").tolist(), content.column("id").to_pylist(), strict=True)
    }
    return [
        QuarantinedRecord(*name, _letter(name, "MERGE", items[name], error))
        for name, error in _found(list(items), rehearse)
    ]


def _kept(rows: Sequence[Block], others: tuple[QuarantinedRecord, ...]) -> list[Block]:
    """Partials without some queries and without the matches of some objects."""
    seq, number = (
        np.array([each.number for each in others if each.what == what], np.int64) for what in (OBJECT, QUERY)
    )
    remaining: list[Block] = []
    for slot, kind, content in rows:
        name, gone = ("seq", seq) if kind == messages.LINES else ("number", number)
        if name in content.schema.names and len(gone):
            content = content.take(pa.array(np.flatnonzero(~np.isin(numbers(content, name), gone))))
        remaining.append((slot, kind, content))
    return remaining

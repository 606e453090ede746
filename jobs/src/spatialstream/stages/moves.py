"""Moves of continuous queries between slots on the adoption of a new routing version (SSTD, sections 5.2 and 5.3).

Objects never move. A query moves when a slot will become responsible for a part of its region that other slots have
now. In terms of the control records of epochs:

1. *prepare N*: of all slots that have a query now, the lowest exports it for each slot that will need it and does not
   have it. From this epoch on the router sends new queries to the slots of both versions, and every slot remembers the
   cancellations that come.
2. *load N*, once all slots have done so: the receivers register what was exported for them, and apply the remembered
   cancellations.
3. *activate N*: the version is active from this epoch on, once all slots have done so. A slot then drops the queries
   that do not concern it any more. One that reports at steps is kept as long as its windows reach back to objects that
   the slot holds; until then its counts are the sum over the old and the new slots, of different objects.
4. *abort N* cancels 1 and 2: what was registered stays, unused, until the next change of version; no object of its
   region comes to the slot.

Queries that are everywhere (CKQs, until they settle: :mod:`~spatialstream.stages.settling`) are on all slots anyway. If
a version has a partition of the CKQs, each is on one slot and moves likewise, without its list, which MERGE has.
Every step may be repeated: files are named after version and slots, and a query that is known is not registered again.

Cost: routing the slot's queries under both versions, about 1 us each, once per change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spatialstream.connectors.contracts import Storage, find
from spatialstream.index.version import RoutingVersion
from spatialstream.local.base import MovableIndex
from spatialstream.local.state import Manifest
from spatialstream.model.kinds import Kind
from spatialstream.model.queries import QueryBatch
from spatialstream.stages.messages import numbers
from spatialstream.stages.route import queries_with_numbers
from spatialstream.stages.settling import EVERYWHERE, is_everywhere, reaching
from spatialstream.stages.state import get_records, put_records

__all__ = [
    "Moves",
    "drop_faded",
    "drop_transfers",
    "export_queries",
    "release_queries",
    "transferred",
]

TRANSFERS = "transfers/"
"""Prefix of the names of transfer files."""

Registrations = tuple[npt.NDArray[np.int64], QueryBatch]
"""Numbers and queries."""


@dataclass(slots=True)
class Moves:
    """What a slot remembers of changes of version.

    Attributes:
        version: number of the version under which the slot has its queries; None before the first epoch.
        pending: number of the version that is being prepared.
        ended: (number, t) of the cancellations since ``prepare``.
        fading: number of a query with steps that does not concern this slot any more -> time from which its windows
            contain none of the slot's objects.
    """

    version: int | None = None
    pending: int | None = None
    ended: list[tuple[int, int]] = field(default_factory=list)
    fading: dict[int, int] = field(default_factory=dict)

    def remember(self, number: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
        """Remember cancellations while a version is being prepared."""
        if self.pending is not None:
            self.ended.extend(zip(number.tolist(), t.tolist(), strict=True))

    def forget(self) -> None:
        """No version is being prepared any more: drop the remembered cancellations."""
        self.pending = None
        self.ended.clear()

    def checkpoint(self) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        fading = sorted(self.fading.items())
        return {"version": self.version, "pending": self.pending, "ended": self.ended, "fading": fading}

    @classmethod
    def restore(cls, manifest: Manifest) -> Moves:
        """See :mod:`spatialstream.local.state`."""
        ended = [(number, t) for number, t in manifest["ended"]]
        fading = dict(manifest["fading"])
        return cls(manifest["version"], manifest["pending"], ended, fading)


def _name(version: int, source: int, target: int) -> str:
    return f"{TRANSFERS}{version:06d}/from-{source:04d}-to-{target:04d}.arrow"


def drop_transfers(storage: Storage, active: int) -> None:
    """Delete the transfers of a version, which is active now, and of those before it."""
    storage.delete(name for name in storage.list(TRANSFERS) if int(name.split("/")[1]) <= active)


def export_queries(
    slot: int, continuous: Sequence[Registrations], active: RoutingVersion, coming: RoutingVersion, storage: Storage
) -> int:
    """Export the queries of this slot that other slots will need; returns their number.

    Args:
        slot: this slot.
        continuous: its queries, kind by kind.
        active: the version under which they are here.
        coming: the version that is being prepared.
        storage: of the transfers, shared by all slots.
    """
    leaving: dict[int, list[Registrations]] = {}
    for number, queries in continuous:
        for target, rows in _targets(slot, queries, active, coming).items():
            leaving.setdefault(target, []).append((number[rows], queries.take(rows)))
    for target in range(coming.slots):
        name = _name(coming.number, slot, target)
        if target in leaving:
            numbers = np.concatenate([number for number, _ in leaving[target]])
            queries = QueryBatch.concat([queries for _, queries in leaving[target]])
            put_records(storage, name, queries_with_numbers(queries, numbers))
        else:
            storage.delete([name])
    return sum(len(number) for parts in leaving.values() for number, _ in parts)


def _targets(
    slot: int, queries: QueryBatch, active: RoutingVersion, coming: RoutingVersion
) -> dict[int, npt.NDArray[np.int64]]:
    """The slots that need queries of this slot, and which: rows of ``queries``, ascending."""
    settled = np.flatnonzero(~_stays(queries, active))
    queries = queries.take(settled)
    if not len(queries):
        return {}
    row, source = _routed(active, queries)
    row, first = np.unique(row, return_index=True)
    lowest = np.minimum.reduceat(source, first)
    mine = row[lowest == slot].astype(np.int64)  # the lowest of the slots that have a query exports it
    chosen = queries.take(mine)
    needed = np.setdiff1d(_keys(coming, chosen), _keys(active, chosen))
    target = needed % coming.slots
    return {int(each): settled[mine[needed[target == each] // coming.slots]] for each in np.unique(target)}


def _keys(version: RoutingVersion, queries: QueryBatch) -> npt.NDArray[np.int64]:
    """(row, slot) of each slot of each query, as one number."""
    row, slot = _routed(version, queries)
    return row.astype(np.int64) * version.slots + slot


def _routed(version: RoutingVersion, queries: QueryBatch) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The slots of queries, of which none is everywhere."""
    if version.nearest is None:
        return version.route_queries(reaching(queries, version.index.space))
    nearest = EVERYWHERE[queries.code]
    others, placed = np.flatnonzero(~nearest), np.flatnonzero(nearest)
    row, slot = version.route_queries(queries.take(others))
    rows = np.concatenate([others[row], placed]).astype(np.int32)
    slots = np.concatenate([slot, version.nearest.slots_of(queries.take(placed))])
    order = np.lexsort((slots, rows))
    return rows[order], slots[order]


def _stays(queries: QueryBatch, version: RoutingVersion) -> npt.NDArray[np.bool_]:
    """Which queries are on every slot."""
    return is_everywhere(queries) & (version.nearest is None)


def transferred(slot: int, version: int, slots: int, storage: Storage) -> Iterator[Registrations]:
    """The queries that other slots have exported for this one."""
    for source in range(slots):
        name = _name(version, source, slot)
        if find(storage, name) is not None:
            (record,) = get_records(storage, name)
            yield numbers(record, "number"), QueryBatch.from_arrow(record.drop_columns(["number"]))


def release_queries(
    slot: int, watermark: int, moves: Moves, coming: RoutingVersion, movable: Sequence[tuple[Kind, MovableIndex]]
) -> None:
    """After a change of version: drop the queries that do not concern this slot any more, or let them fade.

    Args:
        slot: this slot.
        watermark: objects up to this time may have come to the slot under the old version.
        moves: what the slot remembers; its ``fading`` is updated.
        coming: the version that is active now.
        movable: the slot's queries.
    """
    owned = set[int]()
    for kind, index in movable:
        number, queries = index.continuous(watermark)
        foreign = _foreign(slot, queries, coming)
        if not kind.steps:
            index.drop(number[foreign])
            continue
        owned.update(number[~foreign].tolist())
        until = np.where(queries.window < 0, queries.t + queries.duration, watermark + queries.window)[foreign]
        for each, deadline in zip(number[foreign].tolist(), until.tolist(), strict=True):
            moves.fading.setdefault(each, deadline)
    moves.fading = {each: until for each, until in moves.fading.items() if each not in owned}


def _foreign(slot: int, queries: QueryBatch, version: RoutingVersion) -> npt.NDArray[np.bool_]:
    """Which queries do not concern a slot."""
    foreign = ~_stays(queries, version)
    settled = np.flatnonzero(foreign)
    if len(settled):
        row, slots = _routed(version, queries.take(settled))
        foreign[settled[row[slots == slot]]] = False
    return foreign


def drop_faded(moves: Moves, movable: Sequence[tuple[Kind, MovableIndex]], watermark: int) -> None:
    """Drop the queries whose windows contain none of the slot's objects any more."""
    faded = [number for number, until in moves.fading.items() if until <= watermark]
    if faded:
        for kind, index in movable:
            if kind.steps:
                index.drop(np.array(sorted(faded), np.int64))
        for number in faded:
            del moves.fading[number]

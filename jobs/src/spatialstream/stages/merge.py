"""MERGE: partials of all slots become the result rows of a round.

All slots answer within the round, so a snapshot query is complete when the partials are in; except for SKQs whose first
phase shows that more slots matter (:mod:`spatialstream.stages.two_phase`). State is the answers of the live CKQs and
CBQs, and the catalogue of registered continuous queries, which can be listed between rounds.

With each continuous query MERGE keeps the number of its rows, and the time of the last one
(:mod:`~spatialstream.local.row_counts`). A round adds its rows to the state that the round before has left. So each row
is counted once, however often its round is done, and in whichever process. That includes replays for the state only,
which publish no rows: then the slots count the matches that they do not write, and the changes and steps are those that
were written. The oracle counts the rows of the results by query (``tests/unit/stream/test_row_counts.py``).

Rows of an epoch are written in one fixed order: by t, then CRQ matches, changes of CKQs, those of CBQs, snapshot
queries, CTQ steps; and within these by object or by order of registration. It depends on the input alone, so the
results of a run, read in the order of their files, are the same bytes for any number of slots and leaves, and any cut
into epochs.

MERGE may be divided by hash of the queries' ids (:mod:`~spatialstream.stages.division`). Each part is an owner of its
own state, and returns the rows of its queries in that order.

Partials and rows of an epoch may be many times the available memory. What grows with rows comes in blocks, waits in a
:class:`~spatialstream.stages.external_sort.Spool`, and is merged and emitted in blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.connectors.contracts import Storage
from spatialstream.local.base import ContinuousMerger
from spatialstream.local.catalogue import Catalogue
from spatialstream.local.row_counts import RowCounts
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.errors import Lost
from spatialstream.model.kinds import CODE, KINDS
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import Space
from spatialstream.stages import messages, views
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.kinds import CONTINUOUS, SNAPSHOT
from spatialstream.stages.kinds.rows import SNAPSHOT as ROW_OF_SNAPSHOT
from spatialstream.stages.kinds.rows import RowLines, RowSink
from spatialstream.stages.messages import Block, numbers
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.settling import Radii
from spatialstream.stages.snapshots import Answers, answers
from spatialstream.stages.state import OwnerState
from spatialstream.stages.turns import Round
from spatialstream.stages.two_phase import Second, answer_second, second_phase
from spatialstream.stages.views import ListingView
from spatialstream.stages.work import slot_objects

__all__ = [
    "Merged",
    "RoundResults",
    "ask",
    "merge",
    "merge_second",
    "merger_owner",
    "merger_state",
    "restored",
    "view",
]

_SPOOLED = {
    **{stage.partial: "number" for stage in SNAPSHOT.values() if stage.waits},
    **{kind: key for stage in CONTINUOUS.values() for kind, key in stage.spooled.items()},
}
"""Partials that wait in a spool: kind -> the key by which they are grouped."""

_TAKEN = {kind: stage for stage in CONTINUOUS.values() for kind in stage.taken}
"""Partials that are taken as they come, and by what."""

_MERGERS = {
    kind.type: (kind.index, merger)
    for kind in KINDS
    if kind.continuous and (merger := CONTINUOUS[kind.type].merger) is not None
}
"""For each kind whose state MERGE keeps: (name in the manifest, class)."""


@dataclass(slots=True)
class Merged:
    """The state of a part of MERGE.

    Attributes:
        mergers: what it keeps of its continuous queries, by type, such as the answers of CKQs.
        catalogue: its continuous queries.
    """

    mergers: dict[str, ContinuousMerger]
    catalogue: Catalogue = field(default_factory=Catalogue)

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        mergers = {_MERGERS[kind][0]: merger.checkpoint(write) for kind, merger in self.mergers.items()}
        return {**mergers, "catalogue": self.catalogue.checkpoint(write)}

    def register(self, number: npt.NDArray[np.int64], queries: QueryBatch) -> None:
        """Add continuous queries."""
        self.catalogue.register(number, queries)
        for kind, merger in self.mergers.items():
            rows = np.flatnonzero(queries.code == CODE[kind])
            merger.register(number[rows], queries.take(rows))

    def end_at(self, number: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
        """Cancel queries: their lifetimes end at t, if not earlier. Unknown numbers are ignored."""
        self.catalogue.end_at(number, t)
        for merger in self.mergers.values():
            merger.end_at(number, t)

    def radii(self) -> Radii:
        """See :meth:`ContinuousMerger.radii`, of all kinds."""
        number, radius = (
            np.concatenate(each) for each in zip(*(of.radii() for of in self.mergers.values()), strict=True)
        )
        order = np.argsort(number)
        return number[order], radius[order]


@dataclass(slots=True)
class RoundResults:
    """The results of a round.

    Attributes:
        lines: result lines in order, some thousands at a time; can be iterated over once.
        rejected: dead letters.
        counts: its rows by query type, ``rejected`` for dead letters, and ``repeated`` for repeated queries.
        loads: load statistics of each slot, as far as reported.
        second: the SKQs that need a second phase; their lines are not among ``lines``.
        foreign: number of skipped messages among the blocks, which the router has not written.
        radii: of the CKQs that concern a smaller circle from now on.
    """

    lines: Iterable[pa.LargeStringArray]
    rejected: list[str]
    counts: dict[str, int]
    loads: dict[int, dict[str, Any]]
    second: Second | None
    foreign: int
    radii: Radii


def merger_owner(part: int) -> str:
    """The name of a part of MERGE as an owner of state."""
    return f"merger-{part:04d}"


def merger_state(part: int, turn: Round, storage: Storage) -> OwnerState:
    """The state of a part of MERGE in a round."""
    return OwnerState.of(storage, merger_owner(part), turn)


def merge(
    rows: Iterable[Block], turn: Round, space: Space, storage: Storage, limits: RowLimits | None = None, part: int = 0
) -> RoundResults:
    """Merge one round's partials; the merger's state is then that of the round. In a replay only the state matters.

    Args:
        rows: the partials of all slots for this part, iterated over once; those of a slot in the order in which it
            made them.
        turn: the round.
        space: the stream's space.
        storage: of the state.
        limits: maximum length of rows; None: unlimited.
        part: its number, see :mod:`~spatialstream.stages.division`; the first one handles what belongs to no query.

    Raises:
        Lost: the state of the round before is not in memory any more.
    """
    with ExitStack() as unfinished:
        lines, spools = RowLines(), {kind: Spool(key) for kind, key in _SPOOLED.items()}
        unfinished.callback(lines.close)
        for spool in spools.values():
            unfinished.callback(spool.close)
        results = _merge(rows, turn, space, storage, limits, part, lines, spools)
        unfinished.pop_all()
    return results


def _merge(
    rows: Iterable[Block],
    turn: Round,
    space: Space,
    storage: Storage,
    limits: RowLimits | None,
    part: int,
    lines: RowLines,
    spools: Mapping[str, Spool],
) -> RoundResults:
    blocks, counted = list[Block](), RowCounts()
    sink = RowSink(lines, counted, space, limits, turn.known)
    for slot, kind, content in rows:
        if kind in _TAKEN:
            _TAKEN[kind].take((kind, content), sink)
        elif kind in spools:
            spools[kind].add(content)
        else:
            blocks.append((slot, kind, content))
    blocks.sort(key=lambda row: row[0])  # they come in any order, and a repetition has to write the same
    by_kind = _by_kind(blocks)
    state = merger_state(part, turn, storage)
    merged = state.begin(partial(restored, space))
    _register(by_kind, merged)
    for kind, stage in CONTINUOUS.items():
        stage.merge(spools, merged.mergers.get(kind), turn.watermark, sink)
    second = second_phase(blocks, turn.routing(storage), space) if turn.two_phase else None
    later = None if second is None else second.numbers
    _add_snapshots(lines, answers(by_kind, spools, space, later, limits))
    merged.catalogue.count(counted.total())
    radii = merged.radii() if turn.settling else (np.empty(0, np.int64), np.empty(0))

    rejected = [] if part else [each.letter for each in turn.quarantined]
    if refused := by_kind.get(messages.REJECTED):
        letters = pa.Table.from_batches(refused).sort_by("order")  # each router partition has its own
        rejected += letters.column("line").to_pylist()
    repeated = sum(content["count"][0].as_py() for content in by_kind.get(messages.REPEATED, []))
    counts = {**lines.counts, "rejected": len(rejected)} | ({"repeated": repeated} if repeated else {})
    if second is not None:
        counts["SKQ"] = counts.get("SKQ", 0) + len(second.numbers)
    if turn.checkpoint:
        merged.catalogue.drop(turn.watermark)
    state.end(merged)
    views.keep(storage.place, ~part, ListingView.of(merged.catalogue, turn))
    loads = {slot: json.loads(content["load"][0].as_py()) for slot, kind, content in blocks if kind == messages.LOAD}
    foreign = sum(content["count"][0].as_py() for content in by_kind.get(messages.FOREIGN, []))
    return RoundResults(lines, rejected, counts, loads, second, foreign, radii)


def merge_second(rows: Sequence[Block], space: Space, limits: RowLimits | None = None) -> Iterable[pa.LargeStringArray]:
    """The lines of SKQs after their second phase, some thousands at a time.

    Args:
        rows: what :class:`~spatialstream.stages.two_phase.Second` kept of the first phase, and all slots' answers in
            the second.
        space: the stream's space.
        limits: maximum length of rows; None: unlimited.
    """
    lines = RowLines()
    _add_snapshots(lines, answers(_by_kind(rows), {}, space, None, limits))
    return lines


def ask(slot: int, rows: Sequence[Block], turn: Round, storage: Storage) -> Iterator[Block]:
    """A slot's part in the second phase of a round that it has done; rows are what was kept of the first phase.

    Raises:
        Lost: the slot's state after the round is not available.
    """
    return answer_second(slot, rows, slot_objects(slot, turn, storage, done=False))


def _by_kind(rows: Iterable[Block]) -> dict[str, list[pa.RecordBatch]]:
    by_kind: dict[str, list[pa.RecordBatch]] = {}
    for _, kind, content in rows:
        by_kind.setdefault(kind, []).append(content)
    return by_kind


def restored(space: Space, manifest: Manifest | None, read: ReadFile) -> Merged:
    """The state of a part at a checkpoint; without a manifest an empty one."""
    if manifest is None:
        return Merged({kind: merger(space) for kind, (_, merger) in _MERGERS.items()})
    mergers = {kind: merger.restore(space, manifest[name], read) for kind, (name, merger) in _MERGERS.items()}
    return Merged(mergers, Catalogue.restore(manifest["catalogue"], read))


def view(part: int, turn: Round, space: Space, storage: Storage) -> ListingView:
    """The continuous queries of a part after a round, which is done.

    Raises:
        Lost: they are not in this process's memory, and the round has not ended with a checkpoint.
    """
    merged: Merged | None = merger_state(part, turn, storage).ended()
    if merged is None and not turn.checkpoint:
        raise Lost(f"the state of part {part} of MERGE after round {turn.number} is not in memory any more")
    if merged is None:
        done = turn.number, turn.revision
        after = merger_state(
            part, replace(turn, number=turn.number + 1, quarantined=(), before=done, since=done), storage
        )
        merged = restored(space, after.previous(), after.read)
    return ListingView.of(merged.catalogue, turn)


def _register(by_kind: dict[str, list[pa.RecordBatch]], merged: Merged) -> None:
    registered = by_kind.get(messages.REGISTERED, [])
    if registered:
        batches = [QueryBatch.from_arrow(content.drop_columns(["number"])) for content in registered]
        merged.register(np.concatenate([numbers(each, "number") for each in registered]), QueryBatch.concat(batches))
    for content in by_kind.get(messages.ENDED, []):
        merged.end_at(numbers(content, "number"), numbers(content, "t"))


def _add_snapshots(lines: RowLines, rows: Iterable[Answers]) -> None:
    for each in rows:
        lines.add(each.kind, each.t, ROW_OF_SNAPSHOT, each.number, each.lines, each.row)

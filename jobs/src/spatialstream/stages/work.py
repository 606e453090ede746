"""WORK: one slot applies the blocks of one round.

A slot processes all epochs that have been announced in one go, a *round*. Timestamps alone decide what counts for which
query, so within a round there is no need to interleave: all registrations and cancellations take effect first, then all
objects are matched (each continuous query knows its lifetime) and inserted, then snapshot queries are answered (each
looks no further than its own t), and at last the steps of CTQs up to the round's end. The order of the design, control
records, query changes, objects, snapshots, ticks, is thus kept by construction.

A slot's structures stay in memory from round to round, and are written to files at checkpoints
(:mod:`spatialstream.stages.state`).

A slot's results may be many times its memory: they are generated, emitted and counted in blocks.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.keys import read_key
from spatialstream.index.version import RoutingVersion
from spatialstream.local.base import ContinuousIndex, MovableIndex, SettlingIndex
from spatialstream.local.indexes import INDEXES
from spatialstream.local.snapshot.segments import SegmentStore, phase_of
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.errors import Lost, StateError
from spatialstream.model.kinds import CODE, IS_CONTINUOUS, KINDS, TYPES, Kind, Route, having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch, nobody
from spatialstream.model.space import Space
from spatialstream.model.times import TIME_LIMIT
from spatialstream.stages import messages, views
from spatialstream.stages.archive import write_archive
from spatialstream.stages.copies import Delivery, leaves_of
from spatialstream.stages.corpus import CorpusTables, kept_tables
from spatialstream.stages.kinds import CONTINUOUS
from spatialstream.stages.kinds.base import Arrived
from spatialstream.stages.kinds.continuous_best import weighed
from spatialstream.stages.load import Load
from spatialstream.stages.messages import Block, columns, numbers
from spatialstream.stages.moves import Moves, drop_faded, export_queries, release_queries, transferred
from spatialstream.stages.quarantine import OBJECT, QUERY, QuarantinedRecord
from spatialstream.stages.settling import EVERYWHERE, drop_distant, is_everywhere, load_radii, radii_name
from spatialstream.stages.snapshots import answer, reach
from spatialstream.stages.state import OwnerState
from spatialstream.stages.turns import ABORT, LOAD, PREPARE, Round
from spatialstream.stages.versions import load_version
from spatialstream.stages.views import View
from spatialstream.stages.words import Groups, census_name, prepared_name, write_groups

__all__ = [
    "BlockMessage",
    "SlotIndexes",
    "WorkSettings",
    "blocks_of_round",
    "slot_objects",
    "slot_owner",
    "slot_state",
    "without",
    "work",
]

BlockMessage = tuple[bytes, pa.Buffer | None]
"""Key and content of a block, as a channel returns it."""

_SNAPSHOT = having(lambda kind: not kind.continuous)
_REGIONAL = having(lambda kind: kind.route is Route.REGION)
_NEAREST = having(lambda kind: kind.route is Route.NEAREST)

_CONTINUOUS: dict[str, type[ContinuousIndex]] = {
    name: index for name, index in INDEXES.items() if issubclass(index, ContinuousIndex)
}
"""The indexes of continuous queries, by the names in a slot's manifest."""


@dataclass(frozen=True, slots=True)
class WorkSettings:
    """The settings of a slot.

    Attributes:
        space: of the stream.
        interval: Δ in ms: objects are dropped in units of it.
        retention: ms that snapshot queries can look back; None: for ever.
        archive: storage of the objects that retention drops; None: they are deleted.
        stores: whether objects are kept, for snapshot queries; otherwise the words of the continuous queries are
            written for the router, which drops what none of them can match (:mod:`~spatialstream.stages.words`).
        placing: whether each CKQ is on one slot; then their words are written too.
        mergers: number of parts of MERGE, see :mod:`~spatialstream.stages.division`.
    """

    space: Space
    interval: int
    retention: int | None
    archive: Storage | None = None
    mergers: int = 1
    stores: bool = True
    placing: bool = False

    @property
    def tells_words(self) -> bool:
        """Whether slots write words for the router."""
        return self.placing or not self.stores


class SlotIndexes:
    """All structures of one slot.

    Attributes:
        objects: its objects.
        moves: its part in changes of the routing version.
        watermark: after the last round; None before the first.
        tables: the corpus tables that ranked queries may read, see :mod:`~spatialstream.stages.corpus`.
    """

    def __init__(self, settings: WorkSettings, slot: int) -> None:
        space = settings.space
        self.settings = settings
        interval = None if settings.retention is None else settings.interval
        self.objects = SegmentStore(space, interval, phase=phase_of(slot))
        self._continuous: dict[str, ContinuousIndex] = {name: index(space) for name, index in _CONTINUOUS.items()}
        self.moves = Moves()
        self.watermark: int | None = None
        self.tables: tuple[int, ...] = ()

    def continuous(self) -> Iterator[tuple[Kind, ContinuousIndex]]:
        """The kinds of continuous queries, each with the index of its queries."""
        for kind in KINDS:
            if kind.continuous:
                yield kind, self._continuous[kind.index]

    def movable(self) -> list[tuple[Kind, MovableIndex]]:
        """Those whose queries are on the slots that their regions meet, and move between these."""
        return [(kind, index) for kind, index in self.continuous() if isinstance(index, MovableIndex)]

    def settling(self) -> list[SettlingIndex]:
        """Those whose queries are on every slot at first."""
        return [index for _, index in self.continuous() if isinstance(index, SettlingIndex)]

    def forget_moves(self) -> None:
        """No version is being prepared any more: forget what was remembered for queries that come."""
        self.moves.forget()
        for index in self.settling():
            index.forget_others()

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        return {
            "objects": self.objects.checkpoint(write),
            **{name: index.checkpoint(write) for name, index in self._continuous.items()},
            "moves": self.moves.checkpoint(),
            "watermark": self.watermark,
            "tables": self.tables,
        }

    @classmethod
    def restore(cls, settings: WorkSettings, slot: int, manifest: Manifest | None, read: ReadFile) -> SlotIndexes:
        """See :mod:`spatialstream.local.state`; without a manifest, the structures of a new slot."""
        if manifest is None:
            return cls(settings, slot)
        self = cls.__new__(cls)
        self.settings = settings
        self.objects = SegmentStore.restore(settings.space, manifest["objects"], read)
        self._continuous = {
            name: index.restore(settings.space, manifest[name], read) for name, index in _CONTINUOUS.items()
        }
        self.moves = Moves.restore(manifest["moves"])
        self.watermark, self.tables = manifest["watermark"], tuple(manifest["tables"])
        return self


def slot_owner(slot: int) -> str:
    """The name of a slot as an owner of state."""
    return f"slot-{slot:04d}"


def slot_state(slot: int, turn: Round, storage: Storage) -> OwnerState:
    """A slot's state in a round."""
    return OwnerState.of(storage, slot_owner(slot), turn)


def work(
    slot: int, blocks: Iterable[BlockMessage], turn: Round, settings: WorkSettings, storage: Storage
) -> Iterator[Block]:
    """Apply a round to one slot and generate its partials; the slot's state is then that of the round.

    Args:
        slot: number of the slot.
        blocks: the slot's blocks, in the order in which they were sent. There may be repeated ones, and blocks of
            epochs before the round.
        turn: the round.
        settings: of the stream.
        storage: of the state.

    Raises:
        Lost: the state of the round before is not in memory any more.
        StateError: a router partition's marker is missing, or the checkpoint is damaged.
    """
    began = time.perf_counter()
    found, foreign = blocks_of_round(slot, blocks, turn)
    rows = list(without(slot, found, turn.quarantined))
    _check_markers(slot, rows, turn)
    state = slot_state(slot, turn, storage)
    indexes = state.begin(partial(SlotIndexes.restore, settings, slot))
    load = Load()
    changed = indexes.moves.version not in (None, turn.version)
    shrunk = _take_radii(indexes, turn, storage)
    _take_over(slot, indexes, turn, storage, load)
    _leave_distant(slot, indexes, turn, storage, shrunk)
    _drop(indexes, None if turn.known else f"slot-{slot:04d}-{turn.number:09d}")
    tables, left = kept_tables(indexes.tables, _tables_of(rows))
    indexes.objects.corpora = CorpusTables.among(storage, tables)
    yield from _apply(slot, rows, indexes, turn, load, storage)
    indexes.tables, indexes.objects.corpora = left, CorpusTables.among(storage, left)
    _hand_over(slot, indexes, turn, storage, load)
    if changed:
        load.leaf = None  # leaves of two versions are mixed
    indexes.watermark = turn.watermark
    state.end(indexes)
    views.keep(storage.place, slot, View.of(indexes.objects, turn, settings.retention))
    if turn.measured and not turn.known:
        record = _load_record(slot, indexes, turn, load, storage)
        record["seconds"] = time.perf_counter() - began
        yield slot, messages.LOAD, columns(load=pa.array([json.dumps(record)]))
    if foreign:
        yield slot, messages.FOREIGN, columns(count=np.array([foreign], np.int64))


def blocks_of_round(slot: int, blocks: Iterable[BlockMessage], turn: Round) -> tuple[list[Block], int]:
    """A slot's blocks, without repetitions, and the number of messages that the router has not written (skipped)."""
    revisions = dict(zip(turn.epochs, turn.revisions, strict=True))
    seen_keys: set[bytes] = set()
    rows: list[Block] = []
    foreign = 0
    for key, data in blocks:
        place = read_key(key)
        if place is None:
            foreign += 1
            continue
        epoch, kind, revision = place
        if revisions.get(epoch) == revision and key not in seen_keys:
            try:
                content = messages.unpack(data)
            except (pa.ArrowException, OSError, StopIteration, TypeError):
                foreign += 1
                continue
            seen_keys.add(key)
            rows.append((slot, kind, content))
    return rows, foreign


def without(slot: int, rows: Sequence[Block], quarantined: Sequence[QuarantinedRecord]) -> Iterator[Block]:
    """A slot's blocks without the round's quarantined records. Quarantined queries that are registered end."""
    if not quarantined:
        yield from rows
        return
    seq, number = (
        np.array([each.number for each in quarantined if each.what == what], np.int64) for what in (OBJECT, QUERY)
    )
    for _, kind, content in rows:
        name, gone = ("seq", seq) if kind == messages.OBJECTS else ("number", number)
        if kind in (messages.OBJECTS, messages.REGISTERED, messages.ENDED) and len(gone):
            kept = np.flatnonzero(~np.isin(numbers(content, name), gone))
            content = content if len(kept) == content.num_rows else content.take(pa.array(kept))
        if content.num_rows:
            yield slot, kind, content
    if len(number):
        yield slot, messages.ENDED, columns(number=number, t=np.full(len(number), -TIME_LIMIT))


def _check_markers(slot: int, rows: Sequence[Block], turn: Round) -> None:
    """Make sure that all epochs of a round are complete."""
    by_epoch: dict[int, list[int]] = {}
    for _, kind, content in rows:
        if kind == messages.MARKER:
            by_epoch.setdefault(content.column("epoch")[0].as_py(), []).append(content.column("partitions")[0].as_py())
    for epoch in turn.epochs:
        markers = by_epoch.get(epoch, [])
        if not markers or len(markers) != markers[0]:
            raise StateError(f"slot {slot} has {len(markers)} markers of epoch {epoch}: blocks of it are missing")


def _tables_of(rows: Sequence[Block]) -> set[int]:
    """The corpus tables that the epochs of a round have written."""
    markers = [content for _, kind, content in rows if kind == messages.MARKER]
    return {at for each in markers if "tables" in each.schema.names for at in each.column("tables")[0].as_py()}


def slot_objects(slot: int, turn: Round, storage: Storage, *, done: bool = True) -> SegmentStore:
    """A slot's objects after a round, to be read only.

    Args:
        slot: number of the slot.
        turn: the round.
        storage: of the state.
        done: whether the round is done: its checkpoint comes last.

    Raises:
        Lost: they are not in this process's memory, and the round has not ended with a checkpoint.
    """
    indexes: SlotIndexes | None = slot_state(slot, turn, storage).ended()
    if indexes is not None:
        return indexes.objects
    if not (done and turn.checkpoint):
        raise Lost(f"the state of slot {slot} after round {turn.number} is not in memory any more")
    last = turn.number, turn.revision
    after = slot_state(slot, replace(turn, number=turn.number + 1, quarantined=(), before=last, since=last), storage)
    manifest = after.previous()
    assert manifest is not None
    objects = SegmentStore.restore(load_version(storage, turn.version).index.space, manifest["objects"], after.read)
    objects.corpora = CorpusTables.among(storage, manifest["tables"])
    return objects


# ------------------------------------------------------------------------------------------------- changes of version


def _take_radii(indexes: SlotIndexes, turn: Round, storage: Storage) -> npt.NDArray[np.int64]:
    """Take the round's radii; returns the numbers of their queries."""
    if not turn.radii or turn.before is None:
        return np.empty(0, np.int64)
    number, radius = load_radii(storage, [radii_name(turn.before, part) for part in turn.radii])
    for index in indexes.settling():
        index.shrink(number, radius, await_others=indexes.moves.pending is not None)
    return number


def _leave_distant(
    slot: int, indexes: SlotIndexes, turn: Round, storage: Storage, shrunk: npt.NDArray[np.int64]
) -> None:
    """Drop queries whose radii have shrunk and that are too far from here, those that have just come among them."""
    if not len(shrunk):
        return
    named = {each for each in (indexes.moves.version, indexes.moves.pending, turn.version) if each is not None}
    versions = [load_version(storage, each) for each in sorted(named)]
    for index in indexes.settling():
        drop_distant(slot, index, shrunk, versions)


def _take_over(slot: int, indexes: SlotIndexes, turn: Round, storage: Storage, load: Load) -> None:
    """Register the queries that other slots have exported for this one, if a LOAD control says so."""
    for control, number in turn.controls:
        if control != LOAD or indexes.moves.pending != number:
            continue
        coming = load_version(storage, number)
        with load.moving("registered") as moved:
            for numbers_, queries in transferred(slot, number, coming.slots, storage):
                for each in numbers_.tolist():
                    indexes.moves.fading.pop(each, None)
                known = [index.known(numbers_) for _, index in indexes.movable()]
                unknown = np.flatnonzero(~np.any(known, axis=0))
                _register(indexes, queries.take(unknown), numbers_[unknown])
                moved.append(len(numbers_))
        ended = np.array(indexes.moves.ended, np.int64).reshape(-1, 2)
        if len(ended):
            _end(indexes, ended[:, 0].copy(), ended[:, 1].copy())


def _hand_over(slot: int, indexes: SlotIndexes, turn: Round, storage: Storage, load: Load) -> None:
    """Export what other slots will need; drop what does not concern this slot any more."""
    moves = indexes.moves
    if moves.version is None:
        moves.version = turn.version
    if moves.version != turn.version:
        coming = load_version(storage, turn.version)
        release_queries(slot, turn.watermark, moves, coming, indexes.movable())
        moves.version = turn.version
        indexes.forget_moves()
    for control, number in turn.controls:
        if control == PREPARE:
            active, coming = (load_version(storage, each) for each in (turn.version, number))
            with load.moving("exported") as moved:
                continuous = [index.continuous(turn.watermark) for _, index in indexes.movable()]
                moved.append(export_queries(slot, continuous, active, coming, storage))
            if indexes.settings.tells_words and not turn.known:
                write_groups(storage, prepared_name(number, slot), _continuous_words(slot, indexes, turn, coming))
            indexes.forget_moves()
            moves.pending = number
        elif control == ABORT:
            indexes.forget_moves()
    drop_faded(moves, indexes.movable(), turn.watermark)
    if turn.census and indexes.settings.tells_words and not turn.known:
        active = load_version(storage, turn.version)
        groups = _continuous_words(slot, indexes, turn, active, active.mapping == slot)
        write_groups(storage, census_name((turn.number, turn.revision), slot), groups)


def _continuous_words(
    slot: int,
    indexes: SlotIndexes,
    turn: Round,
    version: RoutingVersion,
    within: npt.NDArray[np.bool_] | None = None,
) -> Groups:
    """The words of the slot's continuous queries by leaf of a version; slot 0 tells those that all slots have.

    If objects are stored they are those of CKQs alone.
    """
    queries = QueryBatch.concat([index.continuous(turn.watermark)[1] for _, index in indexes.movable()])
    if indexes.settings.stores:
        queries = queries.take(np.flatnonzero(EVERYWHERE[queries.code]))
    if slot and version.nearest is None:
        queries = queries.take(np.flatnonzero(~is_everywhere(queries)))
    groups = [Groups.of(queries, version.index, within, version.nearest)]
    if slot == 0 and not indexes.settings.stores:
        everywhere = (index for _, index in indexes.continuous() if not isinstance(index, MovableIndex))
        groups += [Groups.everywhere(index.conditions()) for index in everywhere]
    return Groups.concat(groups)


# --------------------------------------------------------------------------------------------------------------- load


def _load_record(slot: int, indexes: SlotIndexes, turn: Round, load: Load, storage: Storage) -> dict[str, Any]:
    """The load statistics of a slot as JSON values, bounded by the number of its leaves.

    ``tested`` is what :meth:`~spatialstream.local.base.ContinuousIndex.tested` of the indexes says, if it is something,
    and ``moved`` the continuous queries that changes of version moved, and the time for it.
    ``leaf_objects``, ``leaf_checked`` and ``leaf_matches`` are columns beside ``leaves``, the leaves that received
    objects. ``copies`` is the number of objects that came as copies, if there may be any; they count among what was
    checked at a leaf and matched, and not among its objects. ``leaf_queries`` are queries that came, and in a census
    ``leaf_continuous`` the registered continuous queries, by type and leaf.
    """
    record: dict[str, Any] = {
        "objects": load.objects,
        "matches": int(load.matched.sum()),
        "held": len(indexes.objects),
        "bytes": indexes.objects.nbytes + sum(index.nbytes for _, index in indexes.continuous()),
        "continuous": {kind.type: len(index) for kind, index in indexes.continuous()},
        "spent": {part: round(seconds, 7) for part, seconds in asdict(load.spent).items()},
    }
    if load.moved:
        record["moved"] = {step: (queries, round(seconds, 7)) for step, (queries, seconds) in load.moved.items()}
    if tested := _tested(indexes):
        record["tested"] = tested
    if load.copies is not None:
        record["copies"] = load.copies
    if load.leaf is not None:
        record |= _objects_by_leaf(load.leaf, load.home, load.checked, load.matched)
    if load.queries or turn.census:
        version = load_version(storage, turn.version)
        code = np.concatenate([np.empty(0, np.int8), *(queries.code for queries in load.queries)])
        record["queries"] = {kind: int(np.count_nonzero(code == CODE[kind])) for kind in TYPES}
        record["leaf_queries"] = _queries_by_leaf(slot, load.queries, version)
        if turn.census:
            continuous = [index.continuous(turn.watermark)[1] for _, index in indexes.movable()]
            record["leaf_continuous"] = _queries_by_leaf(slot, continuous, version)
            record["everywhere"] = _everywhere(slot, continuous, version)
    return record


def _everywhere(slot: int, batches: Sequence[QueryBatch], version: RoutingVersion) -> dict[str, int]:
    """The number of queries of the kinds that are on every slot at first, each counted by one slot.

    Of those that still are it is the first slot, of the others the slot whose leaf is nearest to their point.
    """
    counts = dict.fromkeys((kind.type for kind in KINDS if EVERYWHERE[CODE[kind.type]]), 0)
    for queries in filter(len, batches):
        settled = np.flatnonzero(EVERYWHERE[queries.code] & ~is_everywhere(queries))
        mine = is_everywhere(queries) & (slot == 0)
        if version.nearest is not None:
            mine = is_everywhere(queries)
            mine[mine] = version.nearest.slots_of(queries.take(np.flatnonzero(mine))) == slot
        mine[settled] = version.mapping[version.index.nearest_leaves(queries.at[settled])] == slot
        for kind in counts:
            counts[kind] += int(np.count_nonzero(mine & (queries.code == CODE[kind])))
    return counts


def _tested(indexes: SlotIndexes) -> dict[str, int]:
    """With how many objects queries were compared, by id."""
    tested: Counter[str] = Counter()
    for _, index in indexes.continuous():
        tested.update(index.tested())
    return dict(tested)


def _objects_by_leaf(
    leaf: npt.NDArray[np.int32],
    home: npt.NDArray[np.bool_] | None,
    checked: npt.NDArray[np.int32],
    matched: npt.NDArray[np.int64],
) -> dict[str, list[int]]:
    leaves, position = np.unique(leaf, return_inverse=True)
    return {
        "leaves": leaves.tolist(),
        "leaf_objects": np.bincount(position, home).astype(np.int64).tolist(),
        "leaf_checked": np.bincount(position, checked).astype(np.int64).tolist(),
        "leaf_matches": np.bincount(position, matched).astype(np.int64).tolist(),
    }


def _queries_by_leaf(
    slot: int, batches: Sequence[QueryBatch], version: RoutingVersion
) -> dict[str, tuple[list[int], list[int]]]:
    """The number of queries that concern each leaf of the slot: type -> (leaves, counts), without zeros.

    A query concerns the leaves that its region meets, or at which it is registered; an SKQ the nearest one, which is
    asked first. A CKQ concerns the whole space and is on every slot whatever its leaves, so it is counted for none.
    """
    n = len(version.index.leaves)
    keys = [np.empty(0, np.int64)]
    for queries in filter(len, batches):
        nearest = np.flatnonzero(_NEAREST[queries.code])
        leaves = version.index.nearest_leaves(queries.at[nearest])
        keys.append(queries.code[nearest].astype(np.int64) * n + leaves)
        regional = np.flatnonzero(_REGIONAL[queries.code])
        if version.index.replicates:  # CRQs by their words too
            row, leaf = version.index.route_queries(queries.take(regional))
        else:
            row, leaf = version.index.route_regions(queries.regions.take(regional))
        keys.append(queries.code[regional[row]].astype(np.int64) * n + leaf)
    key, count = np.unique(np.concatenate(keys), return_counts=True)
    code, leaf = np.divmod(key, n)
    mine = version.mapping[leaf] == slot
    found = ((TYPES[each], mine & (code == each)) for each in np.unique(code[mine]).tolist())
    return {kind: (leaf[here].tolist(), count[here].tolist()) for kind, here in found}


# ----------------------------------------------------------------------------------------------------------- an epoch


def _apply(
    slot: int, rows: Sequence[Block], indexes: SlotIndexes, turn: Round, load: Load, storage: Storage
) -> Iterator[Block]:
    by_kind: dict[str, list[pa.RecordBatch]] = {}
    for _, kind, content in rows:
        by_kind.setdefault(kind, []).append(content)
    for kind in () if turn.known else (messages.REJECTED, messages.REPEATED):
        for content in by_kind.get(kind, []):
            yield slot, kind, content
    snapshots: tuple[QueryBatch, npt.NDArray[np.int64]] | None = None
    if registered := by_kind.get(messages.REGISTERED):
        number, queries = _in_order(registered)
        _register(indexes, queries, number)
        load.queries.append(queries)
        if not turn.known:
            snapshots = _among(queries, number, _SNAPSHOT)
        active = load_version(storage, turn.version)
        yield from _forward(slot == 0 or active.nearest is not None, slot, queries, number)
    if ended := by_kind.get(messages.ENDED):
        number, t = (np.concatenate([numbers(content, name) for content in ended]) for name in ("number", "t"))
        order = np.lexsort((t, number))
        number, t = number[order], t[order]
        _end(indexes, number, t)
        indexes.moves.remember(number, t)
        if slot == 0:
            yield slot, messages.ENDED, columns(number=number, t=t)
    parts = sorted(by_kind.get(messages.OBJECTS, []), key=lambda content: content.column("seq")[0].as_py())
    if parts:
        with load.spending("objects"):
            seq = np.concatenate([numbers(part, "seq") for part in parts])
            objects = ObjectBatch.concat([ObjectBatch.from_arrow(part.drop_columns(["seq", "leaf"])) for part in parts])
            leaf, delivery = leaves_of(parts), Delivery.of(slot, parts, storage)
            order = np.lexsort((seq, objects.t))
            if (np.diff(order) != 1).any():  # in a round late objects come after later ones
                objects, seq, leaf = objects.take(order), seq[order], leaf[order]
                delivery = None if delivery is None else delivery.take(order)
        settings = indexes.settings
        arrived = Arrived(objects, seq, settings.space, settings.mergers, turn.known, load, delivery)
        at_home = arrived.at_home()
        load.objects, load.leaf = len(at_home.objects), leaf
        if delivery is not None:
            load.copies = len(objects) - load.objects
            if delivery.for_ranges:
                load.home = delivery.home
            else:
                load.leaf = leaf[delivery.home]
        for query_kind, index in indexes.continuous():
            stage = CONTINUOUS[query_kind.type]
            for name, content in stage.match(index, arrived if _has_copies(query_kind, delivery) else at_home):
                yield slot, name, content
        if settings.stores:
            with load.spending("objects"):
                indexes.objects.append(at_home.objects)
    if snapshots is not None:
        queries, number = snapshots
        looked_at = reach(queries, indexes.settings.retention, indexes.watermark)
        found = answer(slot, indexes.objects, queries, number, looked_at, two_phase=turn.two_phase)
        yield from load.each("queries", found)
    for query_kind, index in indexes.continuous():
        for name, content in CONTINUOUS[query_kind.type].steps(index, turn.watermark):
            yield slot, name, content
    for _, index in indexes.continuous():
        index.expire(turn.watermark)


def _has_copies(kind: Kind, delivery: Delivery | None) -> bool:
    """Whether objects come as copies for queries of a kind."""
    if delivery is None:
        return False
    if EVERYWHERE[CODE[kind.type]]:
        return delivery.for_nearest
    return CONTINUOUS[kind.type].copied and delivery.for_ranges


def _in_order(registered: Sequence[pa.RecordBatch]) -> tuple[npt.NDArray[np.int64], QueryBatch]:
    """Numbers and queries of blocks, ascending: the numbers of different router partitions interleave."""
    number = np.concatenate([numbers(content, "number") for content in registered])
    queries = QueryBatch.concat([QueryBatch.from_arrow(content.drop_columns(["number"])) for content in registered])
    order = np.argsort(number)
    return (number, queries) if (np.diff(order) == 1).all() else (number[order], queries.take(order))


def _end(indexes: SlotIndexes, number: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
    for _, index in indexes.continuous():
        index.end_at(number, t)


def _among(
    queries: QueryBatch, number: npt.NDArray[np.int64], codes: npt.NDArray[np.bool_]
) -> tuple[QueryBatch, npt.NDArray[np.int64]]:
    """The queries of certain codes."""
    rows = np.flatnonzero(codes[queries.code])
    return queries.take(rows), number[rows]


def _register(indexes: SlotIndexes, queries: QueryBatch, number: npt.NDArray[np.int64]) -> None:
    queries = replace(queries, by=nobody(len(queries)))  # only MERGE needs it
    for kind, index in indexes.continuous():
        rows = np.flatnonzero(queries.code == CODE[kind.type])
        if len(rows):
            mine = queries.take(rows)
            index.register(number[rows], weighed(mine, indexes.objects.corpora) if kind.is_ranked else mine)


def _forward(nearest: bool, slot: int, queries: QueryBatch, number: npt.NDArray[np.int64]) -> Iterator[Block]:
    """The continuous queries, for MERGE, which recognizes a query from several slots by its number."""
    # where every slot has every CKQ, one of them forwards it
    known, known_number = _among(queries, number, IS_CONTINUOUS if nearest else IS_CONTINUOUS & ~EVERYWHERE)
    if len(known):
        known = replace(known, keywords=known.keywords.compact())
        yield slot, messages.REGISTERED, known.to_arrow().append_column("number", pa.array(known_number))


def _drop(indexes: SlotIndexes, name: str | None) -> None:
    """Drop the objects that no query later than the epoch before may see; with a name, archive them under it.

    This is done at the beginning of an epoch and not at the end of the one before: its queries may have a second phase.
    """
    settings = indexes.settings
    if settings.retention is None or indexes.watermark is None:
        return
    floor = indexes.watermark - settings.retention + 1
    if settings.archive is not None and name is not None:
        for part, objects in enumerate(indexes.objects.leaving(floor)):
            write_archive(objects, settings.space, settings.archive, f"{name}-{part:03d}")
    indexes.objects.drop_before(floor)

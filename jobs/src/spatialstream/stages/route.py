"""ROUTE: objects and queries of an epoch become blocks, one per slot and router partition.

Objects go to the slot of their leaf, and copies of them to the slots of other leaves, if the index delivers any
(:mod:`~spatialstream.stages.copies`). Queries are first admitted by the registry (is the id free? does the cancelled
query exist?), numbered, and then go to every slot that has a leaf which their region meets: by space only (paper,
section 4.2), except CRQs of an index that registers them by words. Every router partition ends the epoch with a marker
to every slot, so a slot knows that it has seen everything.

In a stream that serves subscriptions only, objects that no continuous query can match are dropped
(:mod:`~spatialstream.stages.words`); words are counted before that.

Objects are divided between router partitions by time, queries by hash of their ids
(:mod:`~spatialstream.stages.division`): whether an id is free depends only on earlier records with that id, so each
partition has a registry of its own. A query's number is its position among all queries of the epoch. So neither what is
admitted, nor its number, nor the order of dead letters depends on the number of partitions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.keys import block_key
from spatialstream.local.registry import QueryRegistry
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.kinds import CANCEL
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.records.rejected import rejected_line
from spatialstream.stages import messages
from spatialstream.stages.copies import routed_under
from spatialstream.stages.corpus import CorpusCounts, Tally, tables_of, write_parts
from spatialstream.stages.division import PER_EPOCH
from spatialstream.stages.learning import write_sample
from spatialstream.stages.messages import Block, numbers
from spatialstream.stages.routing import Routing
from spatialstream.stages.runs import (
    INPUT,
    ObjectShare,
    QueryShare,
    queries_of_all,
    queries_of_epoch,
    route_share,
    unpack_place,
)
from spatialstream.stages.state import OwnerState
from spatialstream.stages.turns import Epoch
from spatialstream.stages.words import WordFilter

__all__ = [
    "RouteFindings",
    "RouterState",
    "Share",
    "admit",
    "dead_letters",
    "parts_of",
    "queries_with_numbers",
    "registry_owner",
    "registry_state",
    "restored",
    "route",
    "route_epoch",
]

LARGEST_BLOCK = 6 << 20
"""Bytes beyond which a block is cut in two. What cannot be cut, a single record, is bounded by
:data:`~spatialstream.stages.ingest.LARGEST_RECORD`; the topic of blocks accepts larger messages than that."""


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one router partition in one epoch, and the corpus tables that the epoch writes."""

    epoch: int
    watermark: int
    partition: int
    partitions: int
    objects: ObjectShare | None
    queries: QueryShare | None
    tables: tuple[int, ...] = ()


@dataclass(slots=True)
class RouteFindings:
    """What a router partition finds out in an epoch besides its blocks.

    Attributes:
        dropped: number of objects that no continuous query can match.
        kept: the rows of the others; None: objects are not dropped.
        parts: what it has counted for the tables that the epoch writes.
    """

    dropped: int = 0
    kept: npt.NDArray[np.int64] | None = None
    parts: list[tuple[int, Tally]] = field(default_factory=list)


@dataclass(slots=True)
class RouterState:
    """The state of a router partition.

    Attributes:
        registry: admits its queries.
        counts: the words of its objects; None: they are not counted.
        words: says where objects are needed; None: wherever their leaves are.
    """

    registry: QueryRegistry
    counts: CorpusCounts | None = None
    words: WordFilter | None = None

    def count(self, objects: ObjectBatch | None, tables: Sequence[int]) -> list[tuple[int, Tally]]:
        """Count the objects of an epoch; returns what has been counted for each table that it writes."""
        if self.counts is None:
            return []
        if objects is not None:
            self.counts.add(objects)
        return [(at, self.counts.table(at).copy()) for at in tables]

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        counts = None if self.counts is None else self.counts.checkpoint(write)
        words = None if self.words is None else self.words.checkpoint(write)
        return {"registry": self.registry.checkpoint(write), "counts": counts, "words": words}


def route_epoch(
    epoch: Epoch, partition: int, storage: Storage, found: RouteFindings | None = None
) -> Iterator[tuple[int, bytes, pa.Buffer]]:
    """ROUTE for one router partition: blocks (slot, key, content).

    It writes a sample of its queries too; partition 0 also one of the objects that it sends.

    Args:
        epoch: the epoch.
        partition: number of the partition.
        storage: of the stream's state.
        found: what else it finds out, when all blocks have been consumed.
    """
    found = RouteFindings() if found is None else found
    queries = queries_of_epoch(epoch, partition, storage)
    objects = route_share(epoch, partition, storage)
    tables = tables_of(epoch, storage)
    share = Share(epoch.number, epoch.watermark, partition, epoch.partitions, objects, queries, tables)
    state = registry_state(epoch, partition, storage)
    sent: dict[int, int] = {}
    before, packed = None, list[pa.Buffer]()
    for slot, kind, content in route(share, epoch, state, storage, found):
        if content is not before:  # a block for all slots is packed once
            before, packed = content, [messages.pack(part) for part in parts_of(kind, content)]
        for data in packed:
            number = sent[slot] = sent.get(slot, -1) + 1
            yield slot, block_key(epoch.number, partition, number, kind, epoch.revision), data
    write_parts(epoch, partition, found.parts, storage)
    if epoch.measured:
        came = None if objects is None or partition else objects.objects
        if came is not None and found.kept is not None:
            came = came.take(found.kept)
        asked = None if queries is None else queries.queries
        write_sample(storage, epoch, partition, came, asked)


def registry_owner(partition: int) -> str:
    """The name of a router partition's registry as an owner of state."""
    return f"registry-{partition:04d}"


def registry_state(epoch: Epoch, partition: int, storage: Storage) -> OwnerState:
    """The state of a router partition's registry in an epoch."""
    return OwnerState.of(storage, registry_owner(partition), epoch)


def admit(epoch: Epoch, partition: int, storage: Storage) -> None:
    """Admit a router partition's queries of an epoch whose blocks have been sent, only for the registry's state.

    Raises:
        Lost: the state of the epoch before is not in memory any more.
    """
    share = queries_of_epoch(epoch, partition, storage)
    state = registry_state(epoch, partition, storage)
    router = state.begin(partial(restored, epoch))
    if share is not None:
        router.registry.admit(share.queries, share.number)
    if epoch.counted is not None or epoch.has_words:
        came = route_share(epoch, partition, storage)
        objects = None if came is None else came.objects
        router.count(objects, tables_of(epoch, storage))
        if router.words is not None:
            router.words.advance(epoch, epoch.routing(storage), objects, queries_of_all(epoch, storage), storage)
    state.end(router)


def restored(epoch: Epoch, manifest: Manifest | None, read: ReadFile) -> RouterState:
    """The state of a router partition at a checkpoint; without a manifest, an empty one.

    Args:
        epoch: one of the stream.
        manifest: of the checkpoint.
        read: reads its files.
    """
    state = RouterState(QueryRegistry() if manifest is None else QueryRegistry.restore(manifest["registry"], read))
    if epoch.counted is not None:
        given = epoch.counted.interval, epoch.counted.intervals
        state.counts = CorpusCounts(*given)
        if manifest is not None:
            state.counts = CorpusCounts.restore(*given, manifest["counts"], read)
    if epoch.has_words:
        state.words = WordFilter() if manifest is None else WordFilter.restore(manifest["words"], read)
    return state


def dead_letters(storage: Storage, names: Iterable[str]) -> Iterator[str]:
    """The dead letters in files of the input."""
    for name in names:
        for line in io.BytesIO(storage.get(INPUT + name)):
            yield line.decode().removesuffix("\n")


def parts_of(kind: str, content: pa.RecordBatch, largest: int = LARGEST_BLOCK) -> Iterator[pa.RecordBatch]:
    """Cut a block by rows into parts that fit into a message, each with a dictionary of its own terms.

    Args:
        kind: of the block, one of :mod:`~spatialstream.stages.messages`.
        content: of the block.
        largest: maximum bytes of a part, unless it is a single row.
    """
    if content.nbytes <= largest or content.num_rows < 2:
        yield content
        return
    half = content.num_rows // 2
    for piece in (content.slice(0, half), content.slice(half)):
        if kind == messages.OBJECTS:
            objects = ObjectBatch.from_arrow(piece.drop_columns(["seq", "leaf"]))
            own = replace(objects, terms=objects.terms.compact()).to_arrow()
            for name in ("seq", "leaf"):
                own = own.append_column(name, piece.column(name))
            yield from parts_of(kind, own.replace_schema_metadata(content.schema.metadata), largest)
        elif kind == messages.REGISTERED:
            queries = QueryBatch.from_arrow(piece.drop_columns(["number"]))
            yield from parts_of(kind, queries_with_numbers(queries, numbers(piece, "number")), largest)
        else:
            yield from parts_of(kind, piece, largest)


def route(share: Share, epoch: Epoch, state: OwnerState, storage: Storage, found: RouteFindings) -> Iterator[Block]:
    """Route one share.

    Args:
        share: objects and queries, each in stream order.
        epoch: the epoch.
        state: that of the partition at this epoch.
        storage: of the stream's state.
        found: is told what else there is to know.

    Raises:
        Lost: the partition's state after the epoch before is not in memory any more.
    """
    routing = epoch.routing(storage)
    router = state.begin(partial(restored, epoch))
    if share.queries is not None:
        yield from _route_queries(share.queries, routing, router.registry)
    objects = None if share.objects is None else share.objects.objects
    found.parts = router.count(objects, share.tables)
    if router.words is not None:
        router.words.advance(epoch, routing, objects, queries_of_all(epoch, storage), storage)
        if objects is not None and epoch.filtered:
            found.kept = router.words.kept(objects, routing.active.index)
            found.dropped = len(objects) - len(found.kept)
    state.end(router)
    if share.objects is not None:
        yield from _route_objects(share.objects, share.epoch, routing, found.kept, router.words)
    marker = messages.marker(share.epoch, share.watermark, share.partitions, share.tables)
    for slot in range(routing.slots):
        yield slot, messages.MARKER, marker


def _route_objects(
    share: ObjectShare,
    epoch: int,
    routing: Routing,
    kept: npt.NDArray[np.int64] | None,
    words: WordFilter | None,
) -> Iterator[Block]:
    """Route the objects of the rows ``kept`` (None: all), and copies of those that a CRQ or CKQ may match elsewhere."""
    objects, base = share.objects, epoch * PER_EPOCH + share.first
    seq = base + np.arange(len(objects))
    if kept is not None and len(kept) < len(objects):
        objects, seq = objects.take(kept), seq[kept]
    index, registered = routing.active.index, None
    if index.replicates and words is not None and kept is not None:
        registered = words.leaf_words(len(index.leaves))
    nearest = None if words is None or routing.active.nearest is None else words.slots_for(objects, routing.slots)
    row, leaf, slots = routing.active.deliver(objects, registered, nearest)
    copied = len(row) > len(objects)
    for slot in np.unique(slots).tolist():
        members = rows = np.flatnonzero(slots == slot)
        if copied:  # copies are among the others, in order
            members = members[np.argsort(row[members])]
            rows = row[members]
        mine = objects if len(rows) == len(objects) else objects.take(rows)
        block = replace(mine, terms=mine.terms.compact()).to_arrow()
        block = block.append_column("seq", pa.array(seq[rows])).append_column("leaf", pa.array(leaf[members]))
        yield slot, messages.OBJECTS, routed_under(block, routing.active)


def _route_queries(share: QueryShare, routing: Routing, registry: QueryRegistry) -> Iterator[Block]:
    queries = share.queries
    admission = registry.admit(queries, share.number)
    if admission.reasons:
        yield 0, messages.REJECTED, _rejections(share, admission.reasons)
    if admission.repeated:
        yield 0, messages.REPEATED, messages.columns(count=np.array([admission.repeated], np.int64))
    ended = np.flatnonzero((admission.number >= 0) & (queries.code == CANCEL))
    if len(ended):
        content = messages.columns(number=admission.number[ended], t=queries.t[ended])
        for slot in range(routing.slots):
            yield slot, messages.ENDED, content
    rows = np.flatnonzero((admission.number >= 0) & (queries.code != CANCEL))
    if len(rows):
        yield from _blocks_of_queries(queries.take(rows), admission.number[rows], routing)


def _blocks_of_queries(queries: QueryBatch, number: npt.NDArray[np.int64], routing: Routing) -> Iterator[Block]:
    row, slot = routing.route_queries(queries)
    for each in np.unique(slot).tolist():
        mine = np.sort(row[slot == each])
        yield each, messages.REGISTERED, queries_with_numbers(queries.take(mine), number[mine])


def queries_with_numbers(queries: QueryBatch, number: npt.NDArray[np.int64]) -> pa.RecordBatch:
    """The content of a :data:`~spatialstream.stages.messages.REGISTERED` block."""
    return replace(queries, keywords=queries.keywords.compact()).to_arrow().append_column("number", pa.array(number))


def _rejections(share: QueryShare, reasons: dict[int, str]) -> pa.RecordBatch:
    """Dead letters of queries that were not admitted; each echoes the record as it was parsed."""
    rows = sorted(reasons)
    lines = []
    for row in rows:
        place, offset = int(share.line[row]), None
        if share.packed:
            offset, place = unpack_place(place)
        record = json.dumps(share.queries[row].to_record(), ensure_ascii=False)
        lines.append(rejected_line(share.sources[int(share.source[row])], place, reasons[row], record, offset))
    return messages.columns(order=share.number[rows], line=pa.array(lines))

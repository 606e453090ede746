"""Copies of objects: what a block says of them, and what it costs where no index makes any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermLists
from spatialstream.stages import messages, route
from spatialstream.stages.copies import Delivery, leaves_of, routed_under
from spatialstream.stages.kinds.base import Arrived
from spatialstream.stages.load import Load
from spatialstream.stages.versions import save_version
from tests.unit.index.samples import PLANE, build_replicating, obj, replicating_kind

PLAIN = build(PLANE, ObjectBatch.of([]), QueryBatch.of([]), 4, 2)
OBJECTS = ObjectBatch.of([obj(f"o{i}", 0.5 + i % 4, 1.0, "abcdefgh"[i : i + 2], t=i) for i in range(7)])


def copying(number: int, slots: int = 3) -> RoutingVersion:
    made = build(PLANE, OBJECTS, QueryBatch.of([]), 9, slots, builder=build_replicating)
    return replace(made, number=number)


def block(version: RoutingVersion, leaf: list[int]) -> pa.RecordBatch:
    """A block of the first objects."""
    batch = OBJECTS.take(np.arange(len(leaf))).to_arrow().append_column("seq", pa.array(range(len(leaf))))
    return routed_under(batch.append_column("leaf", pa.array(leaf, pa.int32())), version)


def test_blocks_of_an_index_that_does_not_replicate_say_nothing_and_no_time_is_spent() -> None:
    plain = block(PLAIN, [1, 0, 3])
    assert not plain.schema.metadata
    assert Delivery.of(0, [plain, plain], MemoryStorage()) is None
    arrived = Arrived(OBJECTS, np.arange(7), PLANE, 1, False, Load())
    assert arrived.at_home() is arrived


def test_blocks_say_which_objects_are_copies_and_under_which_version_they_were_routed() -> None:
    storage = MemoryStorage()
    with replicating_kind():
        for number in (4, 5):
            save_version(storage, copying(number))
        blocks = [block(copying(4), [1, ~2, 0]), block(PLAIN, [3]), block(copying(5), [~0, 8])]
        sent = [messages.unpack(messages.pack(each)) for each in blocks]
        delivery = Delivery.of(2, sent, storage)
    assert delivery is not None
    assert leaves_of(sent).tolist() == [1, 2, 0, 3, 0, 8]
    assert delivery.home.tolist() == [True, False, True, True, False, True]
    assert delivery.under.tolist() == [4, 4, 4, -1, 5, 5]
    assert {number: version.number for number, version in delivery.versions.items()} == {4: 4, 5: 5}


def test_parts_of_a_block_say_it_too() -> None:
    whole = block(copying(4), [0, ~1, 2, ~3, 4])
    parts = list(route.parts_of(messages.OBJECTS, whole, 1))
    assert len(parts) == 5
    assert leaves_of(parts).tolist() == [0, 1, 2, 3, 4]
    assert {part.schema.metadata[b"version"] for part in parts} == {b"4"}


def test_one_slot_reports_a_match_whichever_version_the_object_came_under() -> None:
    """And of what came under a version that does not replicate, the slot that has it."""
    versions = {number: copying(number, slots) for number, slots in ((1, 2), (2, 3))}
    under = np.array([1, 2, -1, 1, 2, -1, 1])
    row = np.arange(7, dtype=np.int32)
    keywords = TermLists.of([[each] for each in "abcdefg"])
    mine = np.stack(
        [Delivery(slot, under != 0, under, versions).reported(OBJECTS, row, keywords, row) for slot in range(3)]
    )
    assert mine[:, under > 0].sum(axis=0).tolist() == [1] * 5
    assert mine[:, under < 0].all()
    for i in np.flatnonzero(under > 0).tolist():
        version = versions[int(under[i])]
        leaf = version.index.reporter(OBJECTS, row[i : i + 1], keywords, row[i : i + 1])
        assert mine[version.mapping[leaf[0]], i]


def test_what_is_stored_is_what_is_at_home() -> None:
    delivery = Delivery(0, np.array([True, False] * 3 + [True]), np.ones(7, np.int64), {})
    arrived = Arrived(OBJECTS, np.arange(10, 17), PLANE, 1, False, Load(), delivery).at_home()
    assert arrived.objects.ids.to_pylist() == ["o0", "o2", "o4", "o6"]
    assert arrived.seq.tolist() == [10, 12, 14, 16]

"""ROUTE: what the router partitions make of an epoch together does not depend on how many they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.keys import read_key
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import build
from spatialstream.model.errors import StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.stages import messages
from spatialstream.stages.division import BUCKETS, buckets_of, parts_of
from spatialstream.stages.messages import numbers
from spatialstream.stages.quarantine import QuarantinedRecord
from spatialstream.stages.route import route_epoch
from spatialstream.stages.runs import queries_of_epoch, records_of_share, route_share, write_run
from spatialstream.stages.turns import LAST_TURN, NEVER, Epoch, Run, next_turn
from spatialstream.stages.versions import save_version
from tests.harness import forget
from tests.streams import random_stream

SLOTS = 3


def stored(storage: Storage, number: int = 0, runs: int = 3) -> Epoch:
    """An epoch of some objects and queries, in several runs."""
    stream = random_stream(5, 120, 40, WGS84)
    objects, queries = ObjectBatch.of(stream.objects), QueryBatch.of(stream.queries)
    save_version(storage, build(WGS84, objects, queries, 16, SLOTS))
    made = []
    for batch, kind in ((objects, "objects"), (queries, "queries")):
        for i in range(runs):
            rows = np.arange(i, len(batch), runs)
            name = f"{number:09d}-{kind}-{i}.arrow"
            times = write_run(storage.put, name, batch.take(rows), rows)
            made.append(Run(name, kind, len(rows), f"{kind}/{i}", times))
    return Epoch(number, 1, NEVER, 10**15, 0, None, (), tuple(made), ())


def column(epoch: Epoch, storage: Storage, kind: str, name: str) -> list[int]:
    """What all router partitions send of a kind, as the numbers in a column, a slot at a time."""
    forget()
    found: list[list[int]] = [[] for _ in range(SLOTS)]
    for partition in range(epoch.partitions):
        for slot, key, content in route_epoch(epoch, partition, storage):
            place = read_key(key)
            assert place is not None
            if place[1] == kind:
                found[slot] += numbers(messages.unpack(content), name).tolist()
    return [number for slot in found for number in sorted(slot)]


@pytest.mark.parametrize("number", [0, 2**23, LAST_TURN])
def test_numbers_of_objects_do_not_depend_on_partitions_and_are_there_for_every_epoch(number: int) -> None:
    storage = MemoryStorage()
    epoch = stored(storage, number)
    seq = column(epoch, storage, messages.OBJECTS, "seq")
    assert sorted(seq) == list(range(number << 32, (number << 32) + 120))
    for partitions in (2, 5, 300):
        assert column(replace(epoch, partitions=partitions), storage, messages.OBJECTS, "seq") == seq


def test_objects_that_are_left_out_change_the_numbers_of_no_other_partition() -> None:
    storage = MemoryStorage()
    epoch = replace(stored(storage), partitions=2)
    run = next(run for run in epoch.runs if run.kind == "objects")
    whole, rest = (
        column(each, storage, messages.OBJECTS, "seq")
        for each in (epoch, replace(epoch, quarantined=(QuarantinedRecord(run.name, 0),)))
    )
    assert set(whole) - set(rest) == {59}, "the first of partition 0 is gone, so its last number"


def test_numbers_of_queries_do_not_depend_on_partitions_and_bear_buckets() -> None:
    storage = MemoryStorage()
    epoch = stored(storage, LAST_TURN)
    for kind in (messages.REGISTERED, messages.ENDED):
        one = column(epoch, storage, kind, "number")
        assert one
        for partitions in (2, 3, 7, 100):
            assert column(replace(epoch, partitions=partitions), storage, kind, "number") == one
    shares = [queries_of_epoch(replace(epoch, partitions=7), partition, storage) for partition in range(7)]
    for partition, share in enumerate(shares):
        assert share is not None
        assert set(parts_of(share.number, 7).tolist()) == {partition}
        assert (share.number % BUCKETS == buckets_of(share.queries.ids)).all()


def test_each_partition_has_the_records_of_its_share_and_together_they_have_all() -> None:
    storage = MemoryStorage()
    epoch = replace(stored(storage), partitions=3)
    found = []
    for partition in range(3):
        records = list(records_of_share(epoch, partition, storage))
        share, objects = queries_of_epoch(epoch, partition, storage), route_share(epoch, partition, storage)
        assert share is not None
        assert objects is not None
        assert len(records) == len(share.queries) + len(objects.objects)
        found += [(run.name, row) for run, row, _ in records]
    assert sorted(found) == sorted((run.name, row) for run in epoch.runs for row in range(run.rows))


def test_after_the_last_turn_there_is_none() -> None:
    assert next_turn(LAST_TURN - 1) == LAST_TURN
    with pytest.raises(StateError, match="has reached the maximum of 1000000000 turns; remove it"):
        next_turn(LAST_TURN)


def test_what_all_slots_are_told_is_made_once() -> None:
    """With a thousand slots an epoch's markers are most of what a router partition sends."""
    forget()
    storage = MemoryStorage()
    told: dict[str, list[tuple[int, int]]] = {messages.MARKER: [], messages.ENDED: []}
    for slot, key, content in route_epoch(stored(storage), 0, storage):
        place = read_key(key)
        assert place is not None
        if place[1] in told:
            told[place[1]].append((slot, content.address))
    for kind in told:
        assert [slot for slot, _ in told[kind]] == list(range(SLOTS))
        assert len({address for _, address in told[kind]}) == 1

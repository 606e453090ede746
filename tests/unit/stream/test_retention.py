"""Objects dropped by retention are in the archive, once; an answer that would need them says so."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

from spatialstream.connectors.folder import Folder
from spatialstream.model.kinds import TYPES, QueryType
from spatialstream.model.queries import Query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.stages.state import get_value
from spatialstream.stages.work import slot_objects
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import RoundRecord
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream

RETENTION, INTERVAL = 600_000, 60_000
SNAPSHOTS = (QueryType.SRQ, QueryType.SKQ, QueryType.STQ)


@pytest.mark.parametrize("seed", range(examples(2, 12)))
def test_answers_reach_as_far_back_as_retention_and_say_so(tmp_path: Path, seed: int) -> None:
    drawn = random_stream(seed, 1_500, 40, WGS84, types=TYPES)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    setup = StreamSettings(
        *("s", 3, WGS84), idle=IDLE, retention=RETENTION, interval=INTERVAL, epoch_records=200, rule=drawn.rule
    )
    simulation = Simulation(tmp_path, WGS84, objects, queries, setup, seed, chaos=0.003)
    simulation.run(rebalances=0.4)

    asked = {query.id: query for query in queries if isinstance(query, Query)}
    rows = simulation.rows()
    noted = {row["query"]: row["complete_after"] for row in rows if "complete_after" in row}
    expected, _ = answers(objects, queries, WGS84, RETENTION, INTERVAL)
    assert [str(each) for each in check(rows, expected, 5)] == []
    snapshots = {name: query for name, query in asked.items() if not query.lifetime.continuous}
    too_far = {name: query for name, query in snapshots.items() if query.lifetime.duration > RETENTION}
    assert noted == {name: query.t - RETENTION for name, query in too_far.items()}
    assert 0 < len(too_far) < len(snapshots)

    archived = ds.dataset(tmp_path / "archive", partitioning="hive").to_table()["id"].to_pylist()
    assert len(set(archived)) == len(archived)
    assert simulation.worker is not None
    assert simulation.worker.last is not None
    last = simulation.worker.last.round
    before = get_value(Folder(tmp_path), simulation.worker.last.previous, RoundRecord)
    dropped = before.round.watermark  # a round drops what the one before allows
    held: list[str] = []
    for slot in range(setup.slots):
        store = slot_objects(slot, last, Folder(tmp_path))
        held += [name for part in store.leaving(2**62) for name in part.ids.to_pylist()]
    assert sorted(archived + held) == sorted(each.id for each in objects)
    assert not {each.id for each in objects if each.t > dropped - RETENTION} & set(archived)
    assert len(archived) > 100

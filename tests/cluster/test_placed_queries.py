"""A stream in which each CKQ is on one slot (``--nearest dkm``), on real servers: its rows are the oracle's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spatialstream.balance.settings import DKM
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.cluster.test_exact import rebalance
from tests.streams import random_stream


def publish_moved(stream: LiveStream) -> int:
    """Publish a version in which every CKQ is on another slot; its number."""
    state = stream.store.state()
    active = stream.store.load(state.active.number)
    assert active.nearest is not None
    nearest = active.nearest.moved((active.nearest.slot + 1) % active.slots)
    number = state.last + 1
    stream.store.publish(replace(active, number=number, nearest=nearest), active.number, f"p{number}", {})
    return number


@pytest.mark.timeout(2400)
def test_rows_are_the_oracles_while_queries_move_and_the_worker_dies(servers: Servers, tmp_path: Path) -> None:
    drawn = random_stream(11, 5_000, 40, WGS84, types=["CKQ", "CRQ", "SKQ"], cancelled=0.2)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    with LiveStream(servers, "placed", tmp_path, WGS84, 3, "--nearest", DKM) as stream:
        sending = stream.send(objects, queries, rate=100.0, lasting=True)
        stream.await_rows(20)
        number = publish_moved(stream)
        stream.worker.kill()
        stream.worker.start(timeout=PATIENCE)
        assert await_condition(lambda: stream.store.state().active.number == number, PATIENCE)
        assert await_condition(lambda: rebalance(stream, "rebuild"), PATIENCE)
        assert await_condition(lambda: stream.store.state().active.number > number, PATIENCE)
        stream.router.kill()
        stream.router.start(timeout=PATIENCE)
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        assert differences(stream, objects, queries) == []
        state = stream.store.state()
        assert stream.store.load(state.active.number).nearest is not None

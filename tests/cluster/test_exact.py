"""All six kinds of query over Kafka, merged in two parts, while every strategy there is changes the index: every row is
the oracle's."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from spatialstream.balance.proposal import propose
from spatialstream.balance.rebuild import ENOUGH
from spatialstream.balance.settings import BalanceSettings
from spatialstream.client.results import bounds
from spatialstream.model.errors import Conflict, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from spatialstream.store.reports import read_load, read_sample
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.streams import random_stream


def rebalance(stream: LiveStream, strategy: str, kind: str | None = None) -> bool:
    """Publish a proposal by the strategy, if there can be one now; a rebuild makes an index of the kind."""
    store = stream.store
    state = store.state()
    if state.pending is not None:
        return False
    try:
        load = read_load(store)
    except StateError:
        return False
    sample = read_sample(store)
    if sample is None or len(sample.objects) < ENOUGH or load.version != state.active.number:
        return False
    version = store.load(load.version)
    given = version, load.counts, sample.statistics(), BalanceSettings()
    proposal = propose(*given, strategy, state.last + 1, sample, kind)
    if proposal is None or (strategy == "CM" and not len(proposal.moves)):  # as long as nothing has been counted
        return False
    try:
        store.publish(proposal.version, load.version, proposal.id, proposal.to_record())
    except Conflict:
        return False
    return True


def adopt(stream: LiveStream, strategy: str, kind: str | None = None) -> None:
    """Wait until there is a proposal by the strategy, and until the stream goes by it."""
    before = stream.store.state().active.number
    assert await_condition(lambda: rebalance(stream, strategy, kind), PATIENCE)
    assert await_condition(lambda: stream.store.state().active.number > before, PATIENCE)


@pytest.mark.gate
@pytest.mark.timeout(2400)
def test_all_types_while_rebalancing(servers: Servers, tmp_path: Path) -> None:
    drawn = random_stream(5, 9_000, 40, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    strategies = ["FG", "PM", "rebuild", "FM"]
    with LiveStream(servers, "exact", tmp_path, WGS84, 3, "--mergers", "2") as stream:
        sending = stream.send(objects, queries, rate=100.0, lasting=True)
        for strategy in strategies:
            adopt(stream, strategy)
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        assert differences(stream, objects, queries) == []
        assert [binding.number for binding in stream.store.state().bindings] == list(range(len(strategies) + 1))
        assert stream.results.repeated == 0
        with closing(stream.connection.consumer("exact-ends")) as consumer:
            ends = bounds(consumer, stream.connection.topics("exact").results)
        assert len(ends) == 2
        assert all(end > 0 for _, end in ends.values())


@pytest.mark.timeout(2400)
def test_all_types_while_kinds_of_index_follow_each_other(servers: Servers, tmp_path: Path) -> None:
    """A QT-tree becomes an A-Grid, which is adjusted by SM and SH; then the planner chooses."""
    drawn = random_stream(6, 6_000, 40, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    kinds = ["qt-tree"]
    with LiveStream(servers, "kinds", tmp_path, WGS84, 3) as stream:
        sending = stream.send(objects, queries, rate=100.0, lasting=True)
        for strategy, kind in (("rebuild", "a-grid"), ("SM", None), ("SH", None), ("rebuild", "auto")):
            adopt(stream, strategy, kind)
            kinds.append(stream.store.state().kind)
        assert kinds[:4] == ["qt-tree", "a-grid", "a-grid", "a-grid"]
        state = stream.store.state()
        assert stream.store.load(state.active.number).index.kind == state.kind
        assert "the slowest slot of" in state.reason
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        assert differences(stream, objects, queries) == []
        assert stream.results.repeated == 0


@pytest.mark.timeout(2400)
def test_all_types_while_cells_migrate(servers: Servers, tmp_path: Path) -> None:
    """A QT-tree becomes a kd^t-tree, of which CM moves cells to other slots, with what they have."""
    drawn = random_stream(7, 6_000, 40, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    with LiveStream(servers, "cells", tmp_path, WGS84, 3) as stream:
        sending = stream.send(objects, queries, rate=100.0, lasting=True)
        adopt(stream, "rebuild", "kd-t")
        adopt(stream, "CM")
        rebuilt, migrated = (stream.store.load(number) for number in (1, 2))
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        assert differences(stream, objects, queries) == []
        assert stream.results.repeated == 0
    assert (rebuilt.index.kind, migrated.index.kind) == ("kd-t", "kd-t")
    before, after = (version.route_objects(ObjectBatch.of(objects)) for version in (rebuilt, migrated))
    assert (before != after).sum() > 10

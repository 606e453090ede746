"""A stream that serves subscriptions only, on real servers: its rows are the oracle's, and it keeps no objects."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream import NotServed, connect
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from tests.cluster.stream import LiveStream, Servers, differences
from tests.streams import random_stream

SRQ = {"type": "SRQ", "region": {"box": [0, 0, 1, 1]}, "duration": "1h"}


@pytest.mark.timeout(2400)
def test_rows_are_the_oracles_while_the_router_dies(servers: Servers, tmp_path: Path) -> None:
    drawn = random_stream(9, 4_000, 15, WGS84, types=["CRQ", "CKQ", "CTQ", "SRQ"], cancelled=0.3)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    chosen = [each for each in drawn.queries if isinstance(each, Cancellation) or all(each.predicate.expression.groups)]
    queries = sorted(chosen, key=lambda each: each.t)
    taken = [each for each in queries if isinstance(each, Cancellation) or each.lifetime.continuous]
    with LiveStream(servers, "subscriptions", tmp_path, WGS84, 3, "--serves", "subscriptions") as stream:
        sending = stream.send(objects, queries, 200.0)
        stream.await_rows(50)
        stream.router.kill()
        stream.router.start(timeout=240.0)
        stream.await_progress()
        stream.worker.kill()
        stream.worker.start(timeout=240.0)
        sending.join()
        assert differences(stream, objects, taken) == []
        refused = {each.id for each in queries if isinstance(each, Query) and not each.lifetime.continuous}

        def told() -> set[str]:
            return {each["record"]["id"] for each in stream.rejected() if "serves subscriptions" in each["reason"]}

        assert refused
        assert await_condition(lambda: told() == refused, 60.0)
        with connect(stream.name, stream.servers.zookeeper.hosts, stream.connection) as made:
            assert made.describe()["serves"] == "subscriptions"
            with pytest.raises(NotServed, match="serves subscriptions and stores no objects; register a CRQ"):
                made.ask(SRQ)
            held = [slot["objects"] for slot in made.describe()["slots"]]
        assert sum(held) == 0

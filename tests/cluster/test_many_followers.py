"""Two hundred clients of a gateway that is killed, which follow a thousand queries between them."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path

import pytest

from spatialstream.client import Connection, RecordWriter
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, LiveStream, Servers
from tests.cluster.test_gateway import TOKEN, Follower, GatewayServer, by_query
from tests.lengths import AT_LENGTH
from tests.streams import random_stream
from tests.unit.gateway.http import Client

CLIENTS, QUERIES, OF_EACH = 200, 1_000, 20


def rows_of(followers: list[Follower]) -> int:
    """How many rows have come to all of them."""
    return sum(len(each.rows) for each in followers)


@pytest.mark.skipif(not AT_LENGTH, reason="at length: with every change test_gateway.py has four clients")
@pytest.mark.timeout(2400)
def test_all_resume_and_have_every_row_once(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(15)
    objects = sorted(random_stream(15, 8_000, 0, WGS84).objects, key=lambda each: each.t)
    begin, end = objects[0].t, objects[-1].t
    asked = []
    for number in range(QUERIES):
        west, south = chance.uniform(-180.0, 150.0), chance.uniform(-90.0, 75.0)
        region = {"box": [west, south, west + 30.0, south + 15.0]}
        asked.append({"id": f"q{number}", "type": "CRQ", "t": begin, "region": region, "duration": end - begin + 1})
    names = [str(each["id"]) for each in asked]
    with (
        LiveStream(servers, "many", tmp_path, WGS84, 3, "--mergers", "2") as stream,
        GatewayServer(tmp_path / "gateway", stream) as server,
    ):
        RecordWriter(Connection(servers.kafka.bootstrap), "many").queries(*asked)
        client = Client(server.port, TOKEN)
        # each query is followed by four of them
        parts = [[names[(i * OF_EACH + j) % QUERIES] for j in range(OF_EACH)] for i in range(CLIENTS)]
        followers = [
            Follower(client, part, "", random.Random(seed), stream="many", longest=600.0)
            for seed, part in enumerate(parts)
        ]
        threads = [threading.Thread(target=each.run, daemon=True) for each in followers]
        for thread in threads:
            thread.start()
        assert await_condition(lambda: all(each.resumed >= 0 for each in followers), PATIENCE)
        sending = stream.send(objects, [], rate=100.0, lasting=True)
        for _ in range(2):
            had = rows_of(followers)
            assert await_condition(lambda then=had: rows_of(followers) > then + 1_000, PATIENCE)
            assert sending.is_alive()
            for each in followers:
                each.resumed = 0
            server.kill()
            server.start(timeout=120.0)
            assert await_condition(lambda: all(each.resumed for each in followers), PATIENCE), "all come again"
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        expected = defaultdict[str, list[bytes]](list)

        def all_there() -> bool:
            expected.clear()
            expected.update(by_query(list(stream.lines)))
            return all(len(each.rows) >= sum(len(expected[name]) for name in each.queries) for each in followers)

        matches = sum(
            each.t >= begin and box[0] <= each.x <= box[2] and box[1] <= each.y <= box[3]
            for query in asked
            for box in [query["region"]["box"]]
            for each in objects
        )
        stream.await_rows(matches)
        assert await_condition(all_there, PATIENCE)
        for each in followers:
            each.over.set()
        server.kill()
        for thread in threads:
            thread.join(40.0)
        for each in followers:
            assert by_query(each.rows) == {name: expected[name] for name in each.queries if expected[name]}
            assert {status for status, _ in each.failed} <= {503}
        with capsys.disabled():
            print(f"\n{matches} rows of {QUERIES} queries; {rows_of(followers)} to {CLIENTS} clients")

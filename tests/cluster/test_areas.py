"""Areas of a stream with a real broker, ZooKeeper and both jobs: loaded, asked, registered, changed and refreshed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spatialstream.cli import main
from spatialstream.client import CLOCK, Stream, connect
from spatialstream.model.errors import SettingError
from spatialstream.model.typed_queries import CRQ, SRQ, Area
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, Servers
from tests.cluster.test_query import Asked

WEST = {"type": "Polygon", "coordinates": [[[0, 0], [25, 0], [25, 100], [0, 100], [0, 0]]]}
EAST = {"type": "Polygon", "coordinates": [[[25.5, 0], [100, 0], [100, 100], [25.5, 0]]]}
ALL = {"type": "Polygon", "coordinates": [[[0, 0], [100, 0], [100, 100], [0, 100], [0, 0]]]}


@pytest.fixture(scope="module")
def stream(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with Asked(servers, "areas", tmp_path_factory.mktemp("areas")) as made:
        for x in (10.0, 20.0, 30.0):
            made.put(x, "flood")
        yield made


@pytest.fixture
def client(stream: Asked) -> Iterator[Stream]:
    with connect(stream.name, stream.servers.zookeeper.hosts, stream.connection) as made:
        assert await_condition(lambda: made.as_of(PATIENCE) is not None, PATIENCE)
        yield made


def file_of(folder: Path, **shapes: Any) -> str:
    features = [{"type": "Feature", "properties": {"name": n}, "geometry": shape} for n, shape in shapes.items()]
    path = folder / "areas.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return str(path)


def command(stream: Asked, *words: str, store: bool = False) -> int:
    where = ["--stream", stream.name, "--bootstrap", stream.servers.kafka.bootstrap]
    return main([*words, *where, *(["--zookeeper", stream.servers.zookeeper.hosts] if store else [])])


@pytest.mark.timeout(900)
def test_areas_from_the_file_to_the_rows(
    stream: Asked, client: Stream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = f"--space={stream.space}"
    assert command(stream, "areas", "load", file_of(tmp_path, west=WEST, east=EAST), "--id", "name", space) == 0
    assert "new: west, east" in capsys.readouterr().err
    assert command(stream, "areas", "list", "--json", space) == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == ["east", "west"]
    topic = stream.connection.topics(stream.name).areas
    assert [key for key, _ in stream.messages(topic)] == [b"west", b"east"]

    def found(area: str) -> list[str]:
        answer = client.ask(SRQ(region=Area(area), duration="1h"), timeout=PATIENCE)
        return [each["id"] for each in answer["objects"]]

    assert await_condition(lambda: found("west") == ["o10", "o20"], PATIENCE)
    where = ["--stream", stream.name, "--zookeeper", stream.servers.zookeeper.hosts]
    where += ["--bootstrap", stream.servers.kafka.bootstrap]
    asked = ["query", *where, "--type", "SRQ", "--area", "west", "--duration", "1h", "--timeout", "4m"]
    assert main(asked) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["objects"]] == ["o10", "o20"]
    asked[asked.index("west")] = "wset"
    assert main(asked) == 2
    assert "region.area: 'wset' is not an area of the stream; did you mean west?" in capsys.readouterr().err
    with pytest.raises(SettingError, match=r"query: region\.area: 'weste' is not an area .*; did you mean west"):
        client.register(CRQ(id="no", region=Area("weste")))

    before = client.register(CRQ(id="continuous", region=Area("west"), by="somebody"), timeout=PATIENCE)
    assert before["region"]["area"] == "west"
    assert command(stream, "areas", "load", file_of(tmp_path, west=ALL), "--id", "name", space) == 0
    assert "changed: west" in capsys.readouterr().err
    assert command(stream, "queries", "list", "--outdated", "--json", store=True) == 0
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert told == {"query": "continuous", "type": "CRQ", "area": "west", "geometry": "outdated", "by": "somebody"}
    assert command(stream, "status", store=True) == 0
    assert "1 queries have another geometry than their area has now" in capsys.readouterr().out

    with client.watch("continuous", timeout=PATIENCE, patience=PATIENCE) as rows:
        stream.put(40.0, "beyond the border as it was")
        stream.put(15.0, "within both")
        assert next(rows)["object"]["id"] == "o15"
        assert command(stream, "queries", "refresh", "--area", "west", "--timeout", "4m", store=True) == 0
        assert "registered anew: 1 queries of west" in capsys.readouterr().err
        (now,) = client.query("continuous", PATIENCE).queries
        assert (now["by"], now["region"]["area"]) == ("somebody", "west")
        assert now["region"]["polygon"] == client.areas.get("west").polygon.to_geojson()
        stream.put(41.0, "within what it is now")
        assert next(rows)["object"]["id"] == "o41"
    assert command(stream, "queries", "list", "--outdated", store=True) == 0
    assert capsys.readouterr().out == ""

    assert command(stream, "areas", "delete", "west", space) == 0
    assert [(each.id, each.geometry.value) for each in client.area_queries()] == [("continuous", "deleted")]
    client.cancel("continuous", timeout=PATIENCE)


@pytest.mark.timeout(900)
def test_a_record_that_names_an_area_itself_becomes_a_dead_letter(stream: Asked, client: Stream) -> None:
    record = {"id": "raw", "type": "CRQ", "t": 1, "region": {"area": "west"}, "duration": 1}
    producer = stream.connection.producer()
    producer.produce(stream.connection.topics(stream.name).queries, json.dumps(record).encode())
    assert producer.flush(30.0) == 0

    def letters() -> list[str]:
        found = stream.messages(stream.connection.topics(stream.name).rejected)
        return [json.loads(value or b"")["reason"] for key, value in found if key != CLOCK]

    wanted = "region.area: 'west' has not been looked up"
    assert await_condition(lambda: any(each.startswith(wanted) for each in letters()), PATIENCE)

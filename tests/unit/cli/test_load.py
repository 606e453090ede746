"""``spatialstream load``: what it sends of files, and what it says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import pytest

import spatialstream.client
from spatialstream.cli import live, load, main
from spatialstream.client import Latencies, topic_ends
from spatialstream.model.errors import Unavailable
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.store.memory import MemoryStore
from tests.unit.client.test_sending import Topic, query

CRQ = {"id": "q", "type": "CRQ", "t": 1_795_880_000_000, "region": {"box": [0, 0, 1, 1]}}
OBJECT = {"id": "o", "t": 1_795_880_000_001, "lon": 0.5, "lat": 0.5, "text": "flood"}


class Watched:
    """Stands for the results of a stream: rows of others come."""

    def __init__(self, connection: Any, stream: str, latencies: Latencies) -> None:
        self.latencies = latencies

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def settle(self, patience: float) -> None:
        for name, kind in (("probe-1", "SRQ"), ("else", "CRQ"), ("q", "CRQ")):
            self.latencies.take(b'{"query": "%s", "type": "%s", "t": 5}' % (name.encode(), kind.encode()), 6.0)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    topic = Topic()
    monkeypatch.setattr(live, "connection", lambda options: topic)
    monkeypatch.setattr(spatialstream.client, "Watch", Watched, raising=False)
    monkeypatch.setattr(topic_ends, "reached", lambda connection, stream: None)
    monkeypatch.setattr(topic_ends, "latest_objects", lambda connection, stream, space: ObjectBatch.of([]))
    return topic


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ZooKeeper knows the stream."""
    monkeypatch.setattr(live, "store", lambda options, timeout=None: MemoryStore())


def written(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("\n".join(map(json.dumps, records)))
    return str(path)


def sent(topic: Topic, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for at, value, _ in topic.messages if at.topic == name for line in value.split(b"\n")]


def test_queries_alone_are_sent_and_move_no_clock_of_objects(topic: Topic, tmp_path: Path) -> None:
    queries = written(tmp_path / "q.jsonl", CRQ)
    assert main(["load", "--stream", "s", "--queries", queries]) == 0
    asked, watermark = sent(topic, "s.queries")
    assert (asked["id"], asked["t"], watermark) == ("q", CRQ["t"], {"clock": 1_795_880_000_001})
    assert sent(topic, "s.objects") == []


def test_fields_have_other_names(topic: Topic, tmp_path: Path) -> None:
    objects = tmp_path / "o.csv"
    objects.write_text("code,t,lon,lat,body\no7,1795880000001,1,2,Flood\n")
    assert main(["load", "--stream", "s", "--objects", str(objects), "--columns", "id=code,text=body"]) == 0
    assert sent(topic, "s.objects")[0]["id"] == "o7"


def test_only_rows_of_its_own_queries_are_counted(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["load", "--stream", "s", "--objects", written(tmp_path / "o.jsonl", OBJECT)]
    assert main([*words, "--queries", written(tmp_path / "q.jsonl", CRQ)]) == 0
    assert "results   1 CRQ\n" in capsys.readouterr().out
    assert main(words) == 0
    assert "results   2 CRQ\n" in capsys.readouterr().out  # of whoever: its objects may have made them


def test_rows_of_a_query_that_is_asked_again_and_again_are_its_own() -> None:
    own = load.own_rows(QueryBatch.of([query("SRQ")]))
    name = query("SRQ").id
    assert own(name, "SRQ")
    assert own(f"{name}#17", "SRQ")
    assert not own("probe-5", "SRQ")


def test_times_that_look_like_seconds_are_not_sent_without_a_word(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["load", "--stream", "s", "--objects", written(tmp_path / "o.jsonl", OBJECT | {"t": 1_795_880_000})]
    assert main(words) == 2
    assert "objects: as milliseconds, nearly all times lie in January 1970" in capsys.readouterr().err
    assert not topic.messages
    for unit, t in (("s", 1_795_880_000_000), ("ms", 1_795_880_000), ("us", 1_795_880)):
        topic.messages.clear()
        assert main([*words, "--time-unit", unit]) == 0
        assert sent(topic, "s.objects")[0]["t"] == t


def test_history_sent_into_a_live_stream_is_told(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = written(tmp_path / "o.jsonl", OBJECT, OBJECT | {"t": 1_795_880_000_005})
    words = ["load", "--stream", "s", "--objects", objects, "--queries", written(tmp_path / "q.jsonl", CRQ)]
    assert main([*words, "--json", str(tmp_path / "report")]) == 0
    assert "late" not in capsys.readouterr().out
    monkeypatch.setattr(topic_ends, "reached", lambda connection, stream: OBJECT["t"])
    assert main([*words, "--json", str(tmp_path / "report")]) == 0
    assert "late      1 objects and 1 queries: the stream's clock was at 2026-11-28T" in capsys.readouterr().out
    late = json.loads((tmp_path / "report").read_text())["late"]
    assert late == {"objects": 1, "queries": 1, "watermark": OBJECT["t"]}

    def away(connection: Any, stream: str) -> int:
        raise Unavailable("nobody may read")

    monkeypatch.setattr(topic_ends, "reached", away)
    assert main(words) == 0
    assert "late records cannot be counted: nobody may read" in capsys.readouterr().err


@pytest.mark.parametrize(("lon", "lat", "told"), [(52.5, 13.4, True), (13.4, 52.5, False), (77.0, 28.0, False)])
def test_exchanged_coordinates_are_told(
    lon: float,
    lat: float,
    told: bool,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = [parse_object(OBJECT | {"lon": x, "lat": y}, WGS84) for x, y in ((5.9, 47.3), (15.0, 55.0))]
    monkeypatch.setattr(topic_ends, "latest_objects", lambda connection, stream, space: ObjectBatch.of(here))
    objects = written(tmp_path / "o.jsonl", OBJECT | {"lon": lon, "lat": lat})
    assert main(["load", "--stream", "s", "--objects", objects]) == 0
    assert ("longitude and latitude look exchanged" in capsys.readouterr().err) is told


def test_there_has_to_be_something_to_send(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--stream", "s"]) == 2
    assert "give a file, or --queries, or --now for a generated stream" in capsys.readouterr().err


def test_a_file_of_which_everything_is_rejected_is_not_sent(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = written(tmp_path / "o.jsonl", OBJECT), [CRQ | {"id": f"q{i}", "type": "CRX"} for i in range(3)]
    words = ["load", "--stream", "s", "--quiet", "--objects", good]
    assert main([*words, "--queries", written(tmp_path / "q.jsonl", *bad, CRQ | {"region": 7})]) == 4
    first, *reasons = capsys.readouterr().err.splitlines()
    assert first == "spatialstream: every query was rejected, and nothing is sent"
    assert [each[:31] for each in reasons] == ["  3 such as: type: 'CRX' is not", '  1 such as: region: must be {"']
    assert not topic.messages


@pytest.mark.parametrize("bad", [1, 3])
def test_what_of_a_file_is_rejected_is_told_with_the_reasons_if_it_is_much(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: int
) -> None:
    objects = [OBJECT | {"id": f"o{i}"} | ({"lat": 91.5 + i} if i < bad else {}) for i in range(10)]
    words = ["load", "--stream", "s", "--objects", written(tmp_path / "o.jsonl", *objects)]
    assert main([*words, "--json", str(tmp_path / "report")]) == 0
    out, err = capsys.readouterr()
    assert f"{bad} of 10 objects are rejected, and not sent" in err
    assert (f"  {bad} such as: lat: 91.5 is out of range" in err) == (bad > 1)
    assert f"rejected  {bad} objects\n" in out
    assert json.loads((tmp_path / "report").read_text())["rejected"] == {"objects": bad}

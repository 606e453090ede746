"""What a live stream knows, commands that send to it take from ZooKeeper: `load`, `areas` and `query`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.cli import live, main, stored_settings
from spatialstream.model.errors import SettingError
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import TermRule
from spatialstream.store.memory import MemoryStore
from tests.unit.cli.test_load import CRQ, OBJECT, sent, topic, written
from tests.unit.client.area_log import AreaLog
from tests.unit.client.test_sending import Topic

__all__ = ["topic"]

PROPERTIES = Properties.parse(["country:keyword", "priority:number"])
RULE = TermRule(frozenset({"the"}), 2, ranking=True, properties=PROPERTIES, fields=("text", "priority"))
PLANE = Space.planar(0.0, 0.0, 9.0, 9.0)
ELSEWHERE = ["--stream", "s", "--bootstrap", "elsewhere:1"]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A routing store in which no worker has said anything yet."""
    made = MemoryStore()
    monkeypatch.setattr(live, "store", lambda options, timeout=None: made)
    monkeypatch.setattr(stored_settings, "PATIENCE", 0.0)
    return made


def tell(store: MemoryStore, space: Space = WGS84, rule: TermRule = RULE) -> None:
    """What a worker does when it starts."""
    QueryEndpoint.of({"address": "a:1", "secret": "s", "certificate": None}, space, rule).save(store)


def test_load_reads_files_as_the_stream_does(
    store: MemoryStore, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(store)
    objects = written(tmp_path / "o.jsonl", OBJECT | {"country": "de", "priority": 3, "other": 1})
    queries = written(
        tmp_path / "q.jsonl",
        CRQ | {"where": "priority >= 3", "fields": ["text"]},
        CRQ | {"id": "no", "where": "prio >= 3"},
        CRQ | {"id": "nor", "fields": ["country"]},
    )
    assert main(["load", "--stream", "s", "--objects", objects, "--queries", queries]) == 0
    record = sent(topic, "s.objects")[0]
    assert (record["country"], record["priority"]) == ("de", 3)
    assert [each["id"] for each in sent(topic, "s.queries") if "id" in each] == ["q"]
    told = capsys.readouterr().err
    assert "'prio' is not a property of the stream; did you mean 'priority'?" in told
    assert "fields that are not read: 'other' in 1 objects" in told


def test_options_that_say_the_same_are_fine(store: MemoryStore, topic: Topic, tmp_path: Path) -> None:
    tell(store)
    (tmp_path / "stop").write_text("The\n")
    same = ["--space=wgs84", "--property", "priority:number", "--property", "country:keyword", "--ranking"]
    same += ["--fields", "priority,text", "--min-term-length", "2", "--stop-words", str(tmp_path / "stop")]
    objects = written(tmp_path / "o.jsonl", OBJECT | {"country": "de"})
    assert main(["load", "--stream", "s", "--objects", objects, *same]) == 0
    assert sent(topic, "s.objects")[0]["country"] == "de"


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--space=planar:0,0,9,9"], "space: planar:0.0,0.0,9.0,9.0 is given, and the stream s has wgs84;"),
        (
            ["--property", "country:number"],
            "property: country:number is given, and the stream s has country:keyword, priority:number;",
        ),
        (["--fields", "text"], "fields: text is given, and the stream s has priority, text;"),
        (["--fields", ""], "fields: none is given, and the stream s has priority, text;"),
        (["--min-term-length", "3"], "min-term-length: 3 is given, and the stream s has 2;"),
        (["--query-words", "7"], "query-words: 7 is given, and the stream s has 256;"),
        (["--polygon-vertices", "7"], "polygon-vertices: 7 is given, and the stream s has 10000;"),
    ],
)
def test_an_option_that_contradicts_the_stream_is_refused_with_both(
    store: MemoryStore,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    option: list[str],
    told: str,
) -> None:
    tell(store)
    assert main(["load", "--stream", "s", "--objects", written(tmp_path / "o.jsonl", OBJECT), *option]) == 2
    assert f"{told} leave the option out" in capsys.readouterr().err
    assert not topic.messages


def test_ranking_of_a_stream_that_counts_no_words_is_refused(
    store: MemoryStore, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(store, rule=TermRule())
    objects = written(tmp_path / "o.jsonl", OBJECT)
    assert main(["load", "--stream", "s", "--objects", objects, "--ranking"]) == 2
    assert "ranking: counted words is given, and the stream s has no counted words" in capsys.readouterr().err


def test_occurrences_of_a_stream_that_does_not_count_them_are_refused(
    store: MemoryStore, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(store)
    objects = written(tmp_path / "o.jsonl", OBJECT)
    assert main(["load", "--stream", "s", "--objects", objects, "--term-counts", "--ranking"]) == 2
    told = "term-counts: counted occurrences is given, and the stream s has no counted occurrences"
    assert told in capsys.readouterr().err


def test_without_the_streams_own_settings_those_of_the_options_apply(
    store: MemoryStore, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = written(tmp_path / "o.jsonl", OBJECT | {"country": "de"})
    words = ["load", "--stream", "s", "--objects", objects, "--property", "country:keyword"]
    assert main(words) == 0
    assert "without the stream's own settings those of the options apply" in capsys.readouterr().err
    assert sent(topic, "s.objects")[0]["country"] == "de"
    assert main([*words, "--zookeeper", "given:1"]) == 0

    tell(store, rule=TermRule())  # a broker elsewhere has its ZooKeeper elsewhere: this one is not asked
    assert main([*words, "--bootstrap", "elsewhere:1"]) == 0


def test_a_zookeeper_that_is_given_has_to_answer_if_nothing_else_is(
    store: MemoryStore, topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = written(tmp_path / "o.jsonl", OBJECT | {"country": "de"})
    assert main(["load", "--stream", "s", "--objects", objects, "--zookeeper", "given:1"]) == 2
    assert "no worker of the stream has run yet" in capsys.readouterr().err
    assert not topic.messages


@pytest.mark.parametrize(("words", "status"), [([], 0), (["--zookeeper", "given:1"], 2)])
def test_a_zookeeper_that_gives_no_access_matters_only_if_it_is_given(
    store: MemoryStore,
    topic: Topic,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    status: int,
) -> None:
    def denied(name: str) -> Any:
        raise SettingError("zookeeper", "the credentials do not give access to this stream")

    monkeypatch.setattr(store, "load_statistics", denied)
    objects = written(tmp_path / "o.jsonl", OBJECT | {"country": "de"})
    asked = ["load", "--stream", "s", "--objects", objects, "--property", "country:keyword", *words]
    assert main(asked) == status
    assert "the credentials do not give access" in capsys.readouterr().err
    assert bool(topic.messages) == (status == 0)


def test_areas_are_read_in_the_streams_own_space(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(store, Space.planar(0.0, 0.0, 900.0, 900.0), TermRule(polygon_vertices=4))
    log = AreaLog()
    log.stand_for_the_broker(monkeypatch)

    def load(*corners: list[int]) -> int:
        ring = [*corners, corners[0]]
        (tmp_path / "a.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
        return main(["areas", "load", str(tmp_path / "a.geojson"), "--name", "a", *ELSEWHERE, "--zookeeper", "z:1"])

    assert load([300, 300], [400, 300], [400, 400], [300, 400]) == 0  # beyond any longitude
    assert load([300, 300], [400, 300], [400, 400], [350, 500], [300, 400]) == 2
    assert "more than 4 vertices" in capsys.readouterr().err
    assert main(["areas", "show", "a", *ELSEWHERE, "--zookeeper", "z:1"]) == 0
    assert "400" in capsys.readouterr().out
    assert main(["areas", "list", *ELSEWHERE, "--zookeeper", "z:1", "--space=wgs84"]) == 2
    assert "space: wgs84 is given, and the stream s has planar:" in capsys.readouterr().err


def test_a_query_through_the_stream_is_checked_as_the_stream_does(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(store, PLANE)

    def told(*words: str) -> Any:
        asked = ["query", "--type", "CRQ", "--box", "0,0,9,9", "--duration", "1h", "--zookeeper", "z:1"]
        assert main([*asked, *ELSEWHERE, *words]) == 2
        return capsys.readouterr().err

    assert "'prio' is not a property of the stream; did you mean 'priority'?" in told("--where", "prio > 1")
    assert "'country' is not kept by the stream" in told("--fields", "country")
    assert "space: wgs84 is given, and the stream s has planar:0.0,0.0,9.0,9.0" in told("--space=wgs84")

"""A stream's areas, with a topic in memory: what is written, read on, and refused; see also tests/cluster."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spatialstream.client.areas import Areas, Loaded
from spatialstream.connectors.kafka import Connection
from spatialstream.model.areas import read_areas
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.model.space import Space
from tests.unit.client.area_log import AreaLog

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
OTHER = {"type": "Polygon", "coordinates": [[[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]]]}
CROSSED = {"type": "Polygon", "coordinates": [[[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]]}


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> AreaLog:
    made = AreaLog()
    made.stand_for_the_broker(monkeypatch)
    return made


def collection(**shapes: Any) -> dict[str, Any]:
    features = [{"type": "Feature", "id": name, "properties": {}, "geometry": shape} for name, shape in shapes.items()]
    return {"type": "FeatureCollection", "features": features}


def areas(**more: Any) -> Areas:
    return Areas(Connection("nowhere:1"), "s", **more)


def test_what_one_client_loads_another_reads(log: AreaLog) -> None:
    writer, reader = areas(), areas()
    assert reader.table().names == []
    assert writer.load(collection(mitte=SQUARE, pankow=OTHER)) == Loaded(new=("mitte", "pankow"))
    assert reader.table().names == ["mitte", "pankow"]
    assert reader.get("mitte").polygon.to_geojson() == writer.get("mitte").polygon.to_geojson()
    assert [json.loads(value or b"")["digest"] for _, value in log.messages] == [
        each.polygon.digest for each in reader.table()
    ]


def test_only_what_has_changed_is_written_and_what_is_new_is_read(log: AreaLog) -> None:
    mine = areas()
    mine.load(collection(mitte=SQUARE, pankow=OTHER))
    backwards = {"type": "Polygon", "coordinates": [SQUARE["coordinates"][0][::-1]]}  # type: ignore[index]
    loaded = mine.load(collection(mitte=backwards, pankow=SQUARE, spandau=OTHER))
    assert loaded == Loaded(new=("spandau",), changed=("pankow",), same=("mitte",))
    assert [key for key, _ in log.messages[2:]] == [b"pankow", b"spandau"]
    assert [each.revision for each in mine.table()] == [0, 2, 3]
    assert log.reads == [(0, 2), (2, 4)]


def test_what_would_change_is_told_without_a_change(log: AreaLog) -> None:
    mine = areas()
    mine.load(collection(mitte=SQUARE, pankow=OTHER))
    given = collection(mitte=SQUARE, pankow=SQUARE, spandau=OTHER)
    assert mine.load(given, dry_run=True) == Loaded(new=("spandau",), changed=("pankow",), same=("mitte",))
    assert len(log.messages) == 2


def test_all_or_none_are_taken(log: AreaLog) -> None:
    with pytest.raises(SettingError, match=r"areas: feature 2 \(pankow\): coordinates\[0\]: crosses or touches itself"):
        areas().load(collection(mitte=SQUARE, pankow=CROSSED))
    assert log.messages == []


def test_deleted_ones_are_gone_and_names_that_nobody_knows_delete_nothing(log: AreaLog) -> None:
    mine = areas()
    mine.load(collection(mitte=SQUARE, pankow=OTHER))
    with pytest.raises(SettingError, match="area: 'pankov' is not an area of the stream; did you mean pankow"):
        mine.delete("mitte", "pankov")
    assert mine.table().names == ["mitte", "pankow"]
    mine.delete("mitte")
    assert log.messages[-1] == (b"mitte", None)
    assert mine.table().names == areas().table().names == ["pankow"]
    with pytest.raises(SettingError, match="area: 'mitte' is not an area"):
        mine.get("mitte")
    assert mine.load(collection(mitte=SQUARE)).new == ("mitte",)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{", "is not JSON"),
        (b"7", "is not a JSON object"),
        (b"{}", "geojson: must be a GeoJSON"),
        (json.dumps({"geometry": CROSSED}).encode(), "crosses or touches itself"),
    ],
)
def test_messages_of_others_that_are_no_areas_do_not_hide_those_that_are(log: AreaLog, value: bytes, told: str) -> None:
    mine = areas()
    mine.load(collection(mitte=SQUARE, pankow=OTHER))
    log.messages.append((b"mitte", value))
    table = mine.table()
    assert table.names == ["pankow"]
    assert told in table.unusable["mitte"]
    with pytest.raises(SettingError, match="area: 'mitte' has no usable geometry"):
        mine.get("mitte")
    mine.delete("mitte")
    assert mine.table().unusable == {}


def test_a_topic_that_is_not_there_or_was_made_anew(log: AreaLog) -> None:
    mine = areas(space=Space.planar(0.0, 0.0, 1e3, 1e3))
    mine.load(collection(mitte=SQUARE, pankow=OTHER))
    log.messages = log.messages[:1]
    assert mine.table().names == ["mitte"], "what a topic had that is gone is forgotten"
    log.there = False
    with pytest.raises(Unavailable, match=r"the broker has no topic s\.areas; the router creates it"):
        mine.table()


def test_what_a_resource_keeps_is_its_own_unless_it_is_taken_over(log: AreaLog) -> None:
    mine, owner = areas(), "sa/geo/mitte"
    shape = read_areas(SQUARE, name="mitte")
    assert mine.put(shape, owner) == Loaded(new=("mitte",))
    assert mine.put(shape, owner) == Loaded(same=("mitte",))
    assert [(each.name, each.by) for each in areas().table()] == [("mitte", owner)]
    kept = r"area: 'mitte' is kept by the SpatialArea geo/mitte; change that resource"
    with pytest.raises(SettingError, match=kept):
        mine.load(collection(pankow=SQUARE, mitte=OTHER))
    with pytest.raises(SettingError, match=kept):
        mine.delete("mitte")
    assert len(log.messages) == 1, "all or none"
    assert mine.load(collection(mitte=SQUARE), force=True).same == ("mitte",)
    assert mine.get("mitte").by == ""
    with pytest.raises(SettingError, match="is an area that somebody has loaded"):
        mine.put(shape, owner)
    mine.delete("mitte")
    mine.put(shape, owner)
    mine.delete("mitte", force=True)
    assert mine.table().names == []


def test_a_message_whose_owner_is_no_name_is_not_usable(log: AreaLog) -> None:
    log.messages.append((b"mitte", json.dumps({"geometry": SQUARE, "by": 7}).encode()))
    assert areas().table().unusable == {"mitte": "by: 7 is not a string"}


def test_a_stream_has_areas_of_so_many_vertices_and_not_more(log: AreaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spatialstream.client.areas.MOST_VERTICES", 12)
    kept = areas()
    kept.load(collection(a=SQUARE, b=SQUARE, c=SQUARE))
    with pytest.raises(SettingError, match="would have 16 vertices in all; the most is 12: simplify their borders"):
        kept.load(collection(c=OTHER, d=SQUARE))
    assert kept.load(collection(c=OTHER)).changed == ("c",), "one in place of another is as many"
    kept.delete("a")
    assert kept.load(collection(d=SQUARE)).new == ("d",)

"""Small streams whose right answers are known by hand: words of many scripts, and places that have several names."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from spatialstream.model.objects import parse_object
from spatialstream.model.queries import parse_query
from spatialstream.model.space import WGS84
from spatialstream.oracle import answers, check
from spatialstream.records.decode import decode_objects
from tests.harness import Shape, run_stream

Record = dict[str, Any]

SHAPES = [Shape(), Shape(slots=3, leaves=16, partitions=2, epoch_records=3, blocks=2)]
BOX = {"box": [-1, -1, 1, 1]}

TEXTS = {
    "hindi": "शहर में बाढ़",
    "cat": "बिल्ली ढूँढो",
    "capital": "İzmir'de sel",
    "small": "izmir flood",
    "soft": "Über\u00adschwemmung",
    "thai": "น้ำท่วม หนัก",
    "tamil": "வெள்ளம்",
    "arabic": "فَيَضَان",
    "hebrew": "שִׁטָּפוֹן",
    "persian": "می\u200cخواهم",
    "emoji": "🔥 here",
    "fire": "Fire\ufe0f here",
}
FOUND = {
    "बाढ़": "hindi",
    "ढ": "",
    "ब": "",
    "İzmir": "capital",
    "izmir": "small",
    "zmir": "",
    "ÜBERSCHWEMMUNG": "soft",
    "น้ำท่วม": "thai",
    "வெள்ளம்": "tamil",
    "فَيَضَان": "arabic",
    "فيضان": "",
    "שִׁטָּפוֹן": "hebrew",
    "میخواهم": "persian",
    "fire": "fire",
    "here": "emoji fire",
}


def found(objects: list[Record], queries: list[Record], shape: Shape, folder: Path) -> dict[str, Record]:
    """The rows of the engine, by query, which are also the oracle's."""
    parsed = [parse_object(each, WGS84) for each in objects]
    asked = [parse_query(each, WGS84) for each in queries]
    rows = run_stream(folder, WGS84, parsed, asked, shape).rows
    assert [str(each) for each in check(rows, answers(parsed, asked, WGS84)[0], 5)] == []
    return {row["query"]: row for row in rows}


def names(row: Record) -> list[str]:
    return [each["id"] for each in row["objects"]]


def snapshot(name: str, kind: str = "SRQ", **fields: Any) -> Record:
    return {"id": name, "type": kind, "t": 9000, "duration": "1h", **fields}


def texts() -> list[Record]:
    return [
        {"id": name, "t": 1000 + i, "lon": 0, "lat": 0, "text": text} for i, (name, text) in enumerate(TEXTS.items())
    ]


def test_lines_have_the_terms_of_the_reference() -> None:
    lines = b"".join(json.dumps(each, ensure_ascii=i % 2 == 0).encode() + b"\n" for i, each in enumerate(texts()))
    batch = decode_objects(lines, 1, WGS84).batch
    assert [batch.terms[i] for i in range(len(batch))] == [list(parse_object(each, WGS84).terms) for each in texts()]


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_terms_of_any_script_are_found_and_nothing_else(shape: Shape, tmp_path: Path) -> None:
    queries = [snapshot(word, region=BOX, keywords=[word]) for word in FOUND]
    queries += [snapshot(f"not {word}", region=BOX, none=[word]) for word in FOUND]
    queries.append(snapshot("trend", "STQ", region=BOX, k=4, any=[["बाढ़"], ["izmir"]]))
    rows = found(texts(), queries, shape, tmp_path)
    assert {word: " ".join(names(rows[word])) for word in FOUND} == FOUND
    for word, has in FOUND.items():
        assert names(rows[f"not {word}"]) == [name for name in TEXTS if name not in has.split()]
    assert [each["term"] for each in rows["trend"]["terms"]] == ["flood", "izmir", "बाढ\u093c", "में"]


PLACES = {
    "east": (180.0, 12.5),
    "west": (-180.0, 12.5),
    "pole": (17.0, 90.0),
    "same": (-123.4, 90.0),
    "south": (5.0, -90.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_one_place_is_at_distance_0_of_itself_whatever_it_is_called(shape: Shape, tmp_path: Path) -> None:
    objects = [
        {"id": name, "t": 1000 + i, "lon": x, "lat": y, "text": "x"} for i, (name, (x, y)) in enumerate(PLACES.items())
    ]
    objects.append({"id": "near", "t": 3000, "lon": 179.999, "lat": 12.5, "text": "x"})
    centres = {
        "east west": [(180, 12.5), (-180, 12.5)],
        "pole same": [(0, 90), (17, 90), (180, 90), (-180, 90)],
        "south": [(-180, -90), (77.7, -90)],
    }
    queries = []
    for i, (has, (x, y)) in enumerate((has, at) for has, places in centres.items() for at in places):
        queries.append(snapshot(f"circle {i} {has}", region={"circle": [x, y, 0]}))
        queries.append(snapshot(f"nearest {i} {has}", "SKQ", at=[x, y], k=len(has.split())))
        continuous = {"id": f"continuous {i} {has}", "t": 0, "duration": "1h"}
        queries.append({**continuous, "type": "CKQ", "at": [x, y], "k": len(has.split())})
        queries.append({**continuous, "id": f"each {i} {has}", "type": "CRQ", "region": {"circle": [x, y, 0]}})
    rows = found(objects, queries, shape, tmp_path)
    for query, row in rows.items():
        kind, _, *has = query.split()
        if kind == "circle":
            assert names(row) == has
        elif kind in ("nearest", "continuous"):
            assert names(row) == has[::-1]  # a tie: the later first
            assert {each["distance_m"] for each in row["objects"]} == {0.0}
        else:
            assert row["object"]["id"] == has[-1]


@pytest.mark.parametrize("shape", SHAPES)
def test_places_of_one_name_or_another_are_equally_far_from_any_other(shape: Shape, tmp_path: Path) -> None:
    objects = [
        {"id": name, "t": 1000 + i, "lon": x, "lat": y, "text": "x"} for i, (name, (x, y)) in enumerate(PLACES.items())
    ]
    grid = list(product((-179.37, -0.1, 33.3, 170.123), (-71.7, 0.0, 5.5, 89.3)))
    queries = [snapshot(f"{x} {y}", "SKQ", at=[x, y], k=5) for x, y in grid]
    for row in found(objects, queries, shape, tmp_path).values():
        far = {each["id"]: each["distance_m"] for each in row["objects"]}
        assert far["east"] == far["west"]
        assert far["pole"] == far["same"]
        assert names(row).index("west") == names(row).index("east") - 1
        assert names(row).index("same") == names(row).index("pole") - 1

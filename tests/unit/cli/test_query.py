"""``spatialstream query``: what options and JSON ask, what is refused before it is sent, and what is waited for."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given

from spatialstream.cli import main, parser
from spatialstream.cli.query import from_options, read
from spatialstream.client.query_session import check_queries
from spatialstream.model.kinds import TYPES
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import ANY_WORDS
from tests.streams import PLANE, Stream, streams
from tests.unit.cli.kubectl import Kubectl, driver, items, stream

TRIANGLE = {"type": "Polygon", "coordinates": [[[13, 52], [14, 52], [13.5, 53], [13, 52]]]}
FEATURE = {"type": "Feature", "properties": {"name": "a"}, "geometry": TRIANGLE}
SRQ = {"type": "SRQ", "region": {"box": [-2, -2, 2, 2]}, "duration": "1h"}
FAR = """
import sys
from spatialstream.cli.pod_session import attach
attach()
print(sys.argv[1:])
print(sys.stdin.read(), end="")
"""


def options_of(text: str) -> Any:
    return parser().parse_args(["query", "--stream", "s", *shlex.split(text)])


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The line that a query is refused with; nothing listens at the broker's port, so none was sent."""
    assert main(["query", "--stream", "s", "--bootstrap", "127.0.0.1:1", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1, told.err
    return told.err


@pytest.mark.parametrize(
    ("text", "record"),
    [
        (
            "--type SRQ --box -125 32 -114.5 49 --keywords flood,fire --duration 1h --id a",
            {"id": "a", "type": "SRQ", "region": {"box": [-125, 32, -114.5, 49]}, "keywords": ["flood", "fire"]}
            | {"duration": "1h"},
        ),
        (
            "--type SKQ --point=-57.5,-29.7 --k 10 --duration 5000 --time 2026-11-21T12:00:00Z",
            {"type": "SKQ", "at": [-57.5, -29.7], "k": 10, "duration": 5000, "t": "2026-11-21T12:00:00Z"},
        ),
        (
            "--type CTQ --circle -149.9 61.22 300000 --k 5 --window 1h --step 5m --duration 1d --time 12",
            {"type": "CTQ", "region": {"circle": [-149.9, 61.22, 300000]}, "k": 5, "window": "1h", "step": "5m"}
            | {"duration": "1d", "t": "12"},
        ),
        (
            "--type CRQ --box=0,0,1,1 --keywords 'New York, snow' --keywords storm --duration 1h",
            {"type": "CRQ", "region": {"box": [0, 0, 1, 1]}, "keywords": ["New York", "snow", "storm"]}
            | {"duration": "1h"},
        ),
        (
            "--type CRQ --box=0,0,1,1 --any 'flood river' --any fire --none drill,test",
            {"type": "CRQ", "region": {"box": [0, 0, 1, 1]}, "any": [["flood", "river"], ["fire"]]}
            | {"none": ["drill", "test"]},
        ),
        (
            "--type SBQ --point=-0.1,51.5 --k 5 --words 'flood river' --radius 20000 --half-life 6h --weights 0.3",
            {"type": "SBQ", "at": [-0.1, 51.5], "k": 5, "words": ["flood river"], "radius": 20_000.0}
            | {"halfLife": "6h", "weights": {"space": 0.3}},
        ),
        (
            "--type SBQ --point 1 2 --k 5 --words a --words b --radius 2 --between 0 2026-11-21 --weights .5,.25,.25",
            {"type": "SBQ", "at": [1, 2], "k": 5, "words": ["a", "b"], "radius": 2.0, "between": [0, "2026-11-21"]}
            | {"weights": {"space": 0.5, "time": 0.25, "text": 0.25}},
        ),
        (
            "--type SBQ --point 1 2 --k 5 --words a --radius 2 --half-life 60000 --expansions 2 --weighting static",
            {"type": "SBQ", "at": [1, 2], "k": 5, "words": ["a"], "radius": 2.0, "halfLife": 60_000}
            | {"expansions": 2, "weighting": "static"},
        ),
        ("--type CANCEL --id a", {"id": "a", "type": "CANCEL"}),
    ],
)
def test_options_are_a_query(text: str, record: dict[str, Any]) -> None:
    assert from_options(options_of(text)) == record


@pytest.mark.parametrize(
    ("value", "geometry"),
    [
        (TRIANGLE, TRIANGLE),
        ({"type": "Feature", "geometry": TRIANGLE}, {"type": "Feature", "geometry": TRIANGLE}),
        ({"type": "FeatureCollection", "features": [FEATURE]}, FEATURE),
    ],
)
def test_a_polygon_is_read_from_a_file(value: Any, geometry: Any, tmp_path: Path) -> None:
    file = tmp_path / "area.geojson"
    file.write_text(json.dumps(value))
    record = from_options(options_of(f"--type CRQ --polygon {file}"))
    assert record == {"type": "CRQ", "region": {"polygon": geometry}}
    assert check_queries([("query", record | {"id": "a", "t": 0})], WGS84)


def test_a_region_has_a_margin(tmp_path: Path) -> None:
    file = tmp_path / "road.geojson"
    road = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
    file.write_text(json.dumps(road))
    record = from_options(options_of(f"--type CRQ --polygon {file} --within 250.5"))
    assert record == {"type": "CRQ", "region": {"polygon": road, "within": 250.5}}
    assert check_queries([("query", record | {"id": "a", "t": 0})], WGS84)
    named = from_options(options_of("--type CRQ --area mitte --within 500"))
    assert named["region"] == {"area": "mitte", "within": 500}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "area.geojson: is not JSON"),
        ('{"type": "FeatureCollection", "features": [1, 2]}', "polygon: {} has 2 features; give a file with one"),
        ('{"type": "FeatureCollection"}', "polygon: {} has no features; give a file with one"),
        ('{"type": "Point", "coordinates": [1, 2]}', "region.polygon.type: 'Point' is not a polygon"),
        (json.dumps({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 1]]]}), "coordinates[0]: is not closed"),
    ],
)
def test_a_file_without_a_polygon_is_told(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "area.geojson"
    file.write_text(text)
    arguments = ["--type", "SRQ", "--duration", "1h", "--polygon", str(file), "--space=wgs84"]
    assert said.format(file) in refused(arguments, capsys)
    missing = refused([*arguments[:4], "--polygon", str(tmp_path / "none")], capsys)
    assert "polygon: " in missing
    assert "cannot be read" in missing


def as_options(record: dict[str, Any], folder: Path) -> list[str]:
    """The options that ask a record; a polygon is in a file of the folder."""
    words = []
    for name, value in record.items():
        match name, value:
            case "region", dict():
                (shape, numbers), *margin = value.items()
                words += [f"--{name}={distance!r}" for name, distance in margin]
                if shape == "polygon":
                    file = folder / f"{record['id']}.geojson"
                    file.write_text(json.dumps(numbers))
                    words.append(f"--polygon={file}")
                    continue
                words.append(f"--{shape}={','.join(map(repr, numbers))}")
            case "at", list():
                words.append(f"--point={','.join(map(repr, value))}")
            case "keywords" | "none", list():
                words.append(f"--{name}={','.join(value)}")
            case "any", list():
                words += [f"--any={' '.join(group)}" for group in value]
            case "t", _:
                words.append(f"--time={value}")
            case "words", list():
                words += [f"--words={word}" for word in value]
            case "between", list():
                words += ["--between", *map(str, value)]
            case "weights", dict():
                words.append(f"--weights={','.join(map(repr, value.values()))}")
            case "halfLife", _:
                words.append(f"--half-life={value}")
            case _:
                words.append(f"--{name}={value}")
    return words


@given(drawn=streams(types=TYPES))
def test_any_query_can_be_asked_with_options(drawn: Stream) -> None:
    for query in drawn.queries:
        if isinstance(query, Query):
            with TemporaryDirectory() as folder:
                options = parser().parse_args(["query", "--stream", "s", *as_options(query.to_record(), Path(folder))])
                asked = read(options)
            (record,) = check_queries(asked, drawn.space, ANY_WORDS)
            assert parse_query(record, drawn.space, ANY_WORDS) == query


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"type": "SRQ"', "query: is not JSON"),
        ("[1]", "query: is not a JSON object"),
        (json.dumps(SRQ | {"type": "XYZ"}), "query: type: 'XYZ' is not one of SRQ, SKQ"),
        (json.dumps(SRQ | {"region": {"box": [0, 0, 1, 200]}}), "region.box: 200 is out of range"),
        (json.dumps(SRQ | {"k": 3}), "k: SRQ takes no k; remove it"),
        (json.dumps(SRQ | {"keywords": ["?!"]}), "keywords: '?!' has no term"),
        (json.dumps(SRQ | {"duration": "-1h"}), "duration: '-1h' is not a duration"),
        (json.dumps(SRQ | {"t": "yesterday"}), "t: 'yesterday' is not a time"),
        (json.dumps(SRQ | {"id": 5.5}), "id: 5.5 is neither a string nor a whole number"),
        (json.dumps(SRQ | {"id": "\ud800"}), "id: holds half of a surrogate pair"),
        ('{"type": "CANCEL"}', "id: is required"),
        ("[" * 100_000, "query: is not JSON"),
    ],
)
def test_a_query_that_would_be_rejected_is_told_before_anything_is_sent(
    given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused([given, "--space=wgs84"], capsys)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give one of: a query as JSON, --file with queries, or --type"),
        (["{}", "--k", "3"], "give one of"),
        (["{}", "--file", "x"], "give one of"),
        (["--file", "nowhere.jsonl"], "nowhere.jsonl cannot be read"),
        (["--box", "a", "b"], "box: 'a b' are not numbers"),
        (
            ["--type", "SRQ", "--box", "0", "0", "1", "1", "--circle", "0", "0", "1"],
            "give a box, a circle, a polygon or an area, not several",
        ),
        (["--type", "SRQ", "--box", "0", "0", "1", "--duration", "1h"], "region.box: must be a list of 4 numbers"),
        (["--type", "SRQ", "--box", "0", "0", "1", "1", "--within", "5"], "region.within: is a margin around"),
        (["--type", "SRQ", "--within", "5", "--duration", "1h"], "region.within: is a margin around"),
        (["--type", "SKQ", "--point", "0", "0", "--duration", "1h"], "k: SKQ requires k"),
        (["--box", "0", "0", "1", "1"], "type: is required"),
        (
            ["--type", "SKQ", "--point=5,0", "--k", "1", "--duration", "1h", "--space", "planar:0,0,1,1"],
            "at: 5 is out of range; it must lie in [0, 1]",
        ),
    ],
)
def test_unusable_options_are_told(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(arguments, capsys)


def test_a_line_of_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text(json.dumps(SRQ) + "\n\n" + json.dumps(SRQ | {"duration": "soon"}) + "\n")

    assert f"{file} line 3: duration: 'soon'" in refused(["--file", str(file)], capsys)


def test_one_id_for_two_queries_and_an_empty_file_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text((json.dumps(SRQ | {"id": "a"}) + "\n") * 2)
    assert "line 2: another query has the same id 'a'" in refused(["--file", str(file)], capsys)

    file.write_text("\n \n")
    assert "contains no query" in refused(["--file", str(file)], capsys)


def test_on_kubernetes_queries_travel_as_they_are_and_without_a_time(
    kubectl: Kubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("spatialstreams.spatialstream.dev", out=stream(spec={"space": "planar:0,0,900,900"}))
    kubectl.answer("pods", out=items(driver("quakes-router")))
    kubectl.in_pod(FAR)
    asked = {"id": "a", "type": "SRQ", "region": {"box": [0, 0, 500, 500]}, "duration": "1h", "keywords": ["Zürich"]}

    common = ["query", "--stream", "quakes", "--namespace", "geo"]
    assert main([*common, json.dumps(asked), "--timeout", "5s", "--count", "2", "--keep"]) == 0

    out = capfd.readouterr().out.splitlines()
    arguments = ["--file", "-", "--space=planar:0.0,0.0,900.0,900.0", "--timeout", "5000", "--count", "2", "--keep"]
    assert out[0] == str(["spatialstream", "--attached", "query", *arguments])
    assert [json.loads(line) for line in out[1:]] == [asked]


def test_on_kubernetes_the_streams_own_space_and_terms_decide(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"space": "planar:0,0,9,9", "terms": {"stopWords": ["the"], "minLength": 2}}
    kubectl.answer("spatialstreams.spatialstream.dev", out=stream(spec=spec))
    common = ["query", "--stream", "quakes", "--context", "east", "--type", "SKQ", "--k", "1", "--duration", "1h"]

    assert main([*common, "--point", "10", "5"]) == 2
    assert "at: 10 is out of range; it must lie in [0, 9]" in capsys.readouterr().err
    for keyword in ("The", "x"):
        assert main([*common, "--point", "1", "5", "--keywords", keyword]) == 2
        assert f"keywords: '{keyword}' has no term" in capsys.readouterr().err


def test_space_of_a_plane_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    options = options_of("--type SKQ --point 5 5 --k 1 --duration 1h --space planar:-8,-8,8,8")

    assert options.space == PLANE == Space.parse(str(PLANE))
    assert check_queries(read(options), options.space)[0]["at"] == [5.0, 5.0]

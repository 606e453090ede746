"""``spatialstream areas`` and ``queries``: files that cannot be used, and streams on Kubernetes."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from spatialstream.cli import main
from spatialstream.cli.queries import area_lines
from spatialstream.client.areas import Areas
from spatialstream.connectors.kafka import Connection
from spatialstream.model.areas import read_areas
from tests.unit.cli.kubectl import Kubectl, driver, items, stream
from tests.unit.cli.test_query import FAR
from tests.unit.client.area_log import AreaLog

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    made = Kubectl.install(tmp_path / "kubectl", monkeypatch)
    spec = {"space": "planar:0,0,9,9", "terms": {"polygonVertices": 50}}
    made.answer("spatialstreams.spatialstream.dev", out=stream(spec=spec))
    made.answer("pods", out=items(driver("quakes-router"), driver("quakes-worker")))
    made.in_pod(FAR)
    return made


def far(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """What runs in the pod, and its standard input."""
    assert main([*words, "--stream", "quakes", "--context", "east", "--quiet"]) == 0
    command, stdin = capsys.readouterr().out.split("\n", 1)
    arguments: list[str] = ast.literal_eval(command)
    return arguments[arguments.index("--attached") + 1 :], stdin


def test_on_kubernetes_areas_travel_from_the_file_with_the_streams_own_space(
    kubectl: Kubectl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "areas.geojson"
    path.write_text(json.dumps(SQUARE))
    of_stream = ["--space=planar:0.0,0.0,9.0,9.0", "--polygon-vertices=50"]

    command, stdin = far(["areas", "load", str(path), "--name", "mitte"], capsys)
    assert command == ["areas", "load", *of_stream, "-", "--name", "mitte", "--quiet"]
    assert json.loads(stdin) == SQUARE
    for words, sent in (
        (["show", "a", "b"], ["show", *of_stream, "a", "b"]),
        (["show"], ["show", *of_stream]),
        (["delete", "a"], ["delete", *of_stream, "a"]),
        (["delete", "a", "--force"], ["delete", *of_stream, "a", "--force"]),
        (["list", "--json"], ["list", *of_stream, "--json"]),
    ):
        assert far(["areas", *words], capsys)[0] == ["areas", *sent, "--quiet"]
    command, _ = far(["queries", "refresh", "--area", "mitte"], capsys)
    assert command == ["queries", "refresh", "--area", "mitte", "--timeout", "60000", "--quiet"]
    assert far(["queries", "list", "--outdated"], capsys)[0] == ["queries", "list", "--outdated", "--quiet"]


def test_on_kubernetes_a_dry_run_is_one_there_too(
    kubectl: Kubectl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "areas.geojsonl"
    features = [{"type": "Feature", "id": name, "properties": {}, "geometry": SQUARE} for name in "ab"]
    path.write_text("".join(json.dumps(each) + "\n" for each in features))
    command, stdin = far(["areas", "load", str(path), "--dry-run", "--force"], capsys)
    assert command[-4:] == ["-", "--force", "--dry-run", "--quiet"]
    assert json.loads(stdin) == {"type": "FeatureCollection", "features": features}


def test_areas_are_loaded_listed_shown_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AreaLog()
    log.stand_for_the_broker(monkeypatch)
    (tmp_path / "areas.geojson").write_text(json.dumps(SQUARE))

    def told(*words: str, status: int = 0) -> tuple[str, str]:
        assert main(["areas", *words, "--stream", "s", "--bootstrap", "nowhere:1"]) == status
        return capsys.readouterr()

    file = str(tmp_path / "areas.geojson")
    _, said = told("load", file, "--name", "mitte", "--dry-run")
    assert "new: mitte" in said
    assert "nothing has been loaded" in said
    assert log.messages == []
    told("load", file, "--name", "mitte")
    table, _ = told("list")
    assert [line.split() for line in table.splitlines()] == [
        ["area", "vertices", "revision", "west", "south", "east", "north"],
        ["mitte", "4", "0", "0", "0", "8", "8"],
    ]
    Areas(Connection("nowhere:1"), "s").put(read_areas(SQUARE, name="pankow"), "sa/geo/pankow")
    table, _ = told("list")
    assert [line.split()[-1] for line in table.splitlines()] == ["by", "8", "sa/geo/pankow"]
    shown, _ = told("show")
    assert shown == "".join(told("show", name)[0] for name in ("mitte", "pankow"))
    (tmp_path / "again.geojsonl").write_text(shown)
    assert "unchanged: mitte" in told("load", str(tmp_path / "again.geojsonl"), "--force")[1]
    Areas(Connection("nowhere:1"), "s").put(read_areas(SQUARE, name="spandau"), "sa/geo/spandau")
    _, said = told("delete", "spandau", "mitte", status=2)
    assert "area: 'spandau' is kept by the SpatialArea geo/spandau; change that resource" in said
    told("delete", "spandau", "mitte", "--force")
    assert [line.split()[0] for line in told("list")[0].splitlines()[1:]] == ["pankow"]


def test_on_kubernetes_a_query_travels_with_the_name_of_its_area(
    kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["query", "--type", "SRQ", "--area", "mitte", "--duration", "1h"]
    _, stdin = far(asked, capsys)
    assert json.loads(stdin)["region"] == {"area": "mitte"}


@pytest.mark.parametrize(
    ("content", "told"),
    [("{", "areas.geojson is not JSON"), (None, "areas.geojson cannot be read")],
)
def test_a_file_that_cannot_be_used_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, told: str
) -> None:
    path = tmp_path / "areas.geojson"
    if content is not None:
        path.write_text(content)
    assert main(["areas", "load", str(path), "--stream", "s", "--bootstrap", "127.0.0.1:1"]) == 2
    assert told in capsys.readouterr().err


def test_what_status_says_of_queries_of_areas_that_have_changed() -> None:
    found: list[dict[str, Any]] = [{"query": f"q{i}", "area": "mitte", "geometry": "outdated"} for i in range(30)]
    lines = area_lines(found)
    assert lines[0] == "30 queries have another geometry than their area has now:"
    assert "q19" in lines[-3]
    assert lines[-2].startswith("and 10 more, see ")
    assert lines[-1].endswith("queries refresh --area AREA registers them anew")
    assert area_lines([]) == []

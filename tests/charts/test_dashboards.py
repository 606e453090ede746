"""Dashboards are as Grafana wants them; they and the alerts speak only of series that there are."""

import json
import re

import pytest
import yaml

from spatialstream.cli.metrics import RouterMetrics, WorkerMetrics
from spatialstream_operator.decisions.rebalancing_state import Phase
from spatialstream_operator.metrics import CONDITIONS, OperatorMetrics
from tests.charts.render import OPERATOR, of_kind, promtool, render

pytestmark = pytest.mark.gate

BOARDS = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted((OPERATOR / "dashboards").glob("*.json"))}
ALERTS = yaml.safe_load((OPERATOR / "files" / "alerts.yaml").read_text("utf-8"))
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}


@pytest.fixture(scope="module")
def series():
    """The names of all series, as Prometheus stores them."""
    return {
        family.name + suffix
        for metrics in (
            RouterMetrics(),
            WorkerMetrics(slots=4),
            OperatorMetrics(),
        )
        for family in metrics.registry.collect()
        for suffix in SUFFIXES.get(family.type, [""])
    }


def expressions(board):
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_dashboards_name_series_that_there_are(series):
    for name, board in BOARDS.items():
        texts = [*expressions(board), *(json.dumps(each) for each in board["templating"]["list"])]
        named = set(re.findall(r"\bspatialstream_\w+", " ".join(texts)))
        assert named, name
        assert named <= series, name


def test_alerts_name_series_that_there_are(series):
    for alert in ALERTS:
        named = set(re.findall(r"\bspatialstream_\w+", alert["expr"]))
        assert named, alert["alert"]
        assert named <= series, alert["alert"]


def test_phases_and_conditions_are_those_of_the_operator():
    text = " ".join(
        [*(alert["expr"] for alert in ALERTS), *(each for board in BOARDS.values() for each in expressions(board))]
    )
    phases = {phase for group in re.findall(r'phase=~?"([^"]+)"', text) for phase in group.split("|")}
    conditions = set(re.findall(r'condition="([^"]+)"', text))

    assert phases
    assert phases <= {phase.value for phase in Phase}
    assert conditions
    assert conditions <= set(CONDITIONS)


def test_expressions_are_promql(tmp_path):
    rules = [
        {"record": f"panel:{name.replace('-', '_')}:{number}", "expr": expression}
        for name, board in BOARDS.items()
        for number, expression in enumerate(expressions(board))
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), "utf-8")

    assert f"{len(rules)} rules found" in promtool("check", "rules", path)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_variables_are_declared_and_used(board):
    declared = {each["name"] for each in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(board)))

    assert used == declared


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_have_their_place_and_the_chosen_prometheus(board):
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells), panel["title"]
        taken |= cells
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])


def test_each_dashboard_is_in_a_config_map_that_grafana_finds():
    maps = [each for each in of_kind(render(OPERATOR, {}), "ConfigMap") if "dashboard" in each["metadata"]["name"]]

    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in maps)
    rendered = {name: json.loads(text) for each in maps for name, text in each["data"].items()}
    assert rendered == {f"spatialstream-{name}.json": board for name, board in BOARDS.items()}
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)

"""Alerts: Prometheus accepts them, each fires when it should and only then, and each has its page."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.charts.render import OPERATOR, ROOT, SERVICES, named, promtool, render

pytestmark = pytest.mark.gate

TESTS = Path(__file__).with_name("alerts_test.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks"
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


@pytest.fixture(scope="module")
def text():
    return named(render(OPERATOR, {}), "ConfigMap", "spatialstream-alerts")["data"]["spatialstream.yml"]


@pytest.fixture(scope="module")
def rules(text):
    (group,) = yaml.safe_load(text)["groups"]
    return group["rules"]


@pytest.fixture(scope="module")
def rule_file(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("rules") / "spatialstream.yml"
    path.write_text(text, "utf-8")
    return path


def test_prometheus_accepts_the_rules(rule_file, rules):
    assert f"{len(rules)} rules found" in promtool("check", "rules", rule_file)


def test_alerts_fire_when_they_should_and_only_then(rule_file, tmp_path):
    tests = yaml.safe_load(TESTS.read_text("utf-8"))
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({**tests, "rule_files": [str(rule_file)]}), "utf-8")

    assert "SUCCESS" in promtool("test", "rules", path)


def test_each_alert_is_seen_to_fire_and_not_to_fire(rules):
    expected = {}
    for test in yaml.safe_load(TESTS.read_text("utf-8"))["tests"]:
        for each in test["alert_rule_test"]:
            expected.setdefault(each["alertname"], set()).add(bool(each["exp_alerts"]))

    assert expected == {rule["alert"]: {True, False} for rule in rules}


def test_a_lower_threshold_is_one_that_fires_earlier(rule_file, tmp_path):
    rules = {"SpatialStreamLagging": {"above": 0.5, "for": "0s"}, "SpatialStreamRebalanceStuck": {"above": 30}}
    text = named(render(OPERATOR, {"alerts": {"rules": rules}}), "ConfigMap", "spatialstream-alerts")["data"]
    path = tmp_path / "rules.yml"
    path.write_text(text["spatialstream.yml"], "utf-8")
    test = {
        "interval": "1m",
        "input_series": [
            {
                "series": 'spatialstream_router_lag_messages{namespace="n", pod="s-router", kind="objects"}',
                "values": "1",
            }
        ],
        "promql_expr_test": [
            {
                "expr": 'count(ALERTS{alertname="SpatialStreamLagging", alertstate="firing"})',
                "eval_time": "0m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    tests = tmp_path / "tests.yml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(path)], "evaluation_interval": "1m", "tests": [test]}), "utf-8")

    promtool("test", "rules", tests)
    assert "offset 30s" in path.read_text("utf-8")


def test_alerts_say_how_bad_and_what_to_read(rules):
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}, rule["alert"]
        assert (ROOT / rule["annotations"]["runbook_url"]).is_file(), rule["alert"]
        assert "$above" not in rule["expr"], rule["alert"]
        assert "$operator" not in rule["expr"], rule["alert"]
        assert "$gateway" not in rule["expr"], rule["alert"]


def test_each_alert_has_its_page_and_each_page_its_alert(rules):
    pages = {path.stem: path.read_text("utf-8") for path in RUNBOOKS.glob("*.md")}

    assert pages.keys() == {rule["alert"].lower() for rule in rules}
    for rule in rules:
        page = pages[rule["alert"].lower()]
        assert page.startswith(f"# {rule['alert']}\n"), rule["alert"]
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS, rule["alert"]
        assert "```console\n$ " in page, rule["alert"]


def test_the_table_of_alerts_is_that_of_the_chart(rules):
    rows = re.findall(
        r"^\| \[(\w+)\]\(runbooks/(\w+)\.md\) \| (\w+) \| (\w+) \|",
        (ROOT / "docs" / "alerts.md").read_text("utf-8"),
        re.MULTILINE,
    )

    assert rows == [(rule["alert"], rule["alert"].lower(), rule["labels"]["severity"], rule["for"]) for rule in rules]


def test_the_schemas_know_the_alerts(rules):
    for chart in (OPERATOR, SERVICES):
        schema = json.loads((chart / "values.schema.json").read_text("utf-8"))
        names = schema["definitions"]["alerts"]["properties"]["rules"]["propertyNames"]["enum"]
        assert sorted(names) == sorted(rule["alert"] for rule in rules)


def test_without_a_gateway_nobody_is_told_that_it_is_down(rules):
    text = named(render(OPERATOR, {"gateway": {"enabled": False}}), "ConfigMap", "spatialstream-alerts")["data"]
    (group,) = yaml.safe_load(text["spatialstream.yml"])["groups"]

    assert group["rules"] == [rule for rule in rules if rule["alert"] != "SpatialStreamGatewayDown"]


def test_prometheus_of_the_services_has_the_same_rules(rules, tmp_path):
    values = {"prometheus": {"namespaces": ["geo", "spatialstream-system"]}}
    data = named(render(SERVICES, values), "ConfigMap", "spatialstream-prometheus")["data"]
    (group,) = yaml.safe_load(data["alerts.yml"])["groups"]
    here = re.compile(r'\{namespace="spatialstream-system", pod=~"spatialstream(-gateway)?-.*?\}')

    def anywhere(found):
        return '{pod=~".+-gateway-[^-]+-....."}' if found[1] else "{}"

    assert group["rules"] == [{**rule, "expr": here.sub(anywhere, rule["expr"])} for rule in rules]
    (tmp_path / "alerts.yml").write_text(data["alerts.yml"], "utf-8")
    promtool("check", "rules", str(tmp_path / "alerts.yml"))


def test_prometheus_of_the_services_accepts_its_configuration(tmp_path):
    config = tmp_path / "prometheus.yml"
    data = named(render(SERVICES, {"prometheus": {"scrapeInterval": "2s"}}), "ConfigMap", "spatialstream-prometheus")[
        "data"
    ]
    config.write_text(data["prometheus.yml"], "utf-8")

    promtool("check", "config", "--syntax-only", config)
    settings = yaml.safe_load(data["prometheus.yml"])
    assert settings["global"] == {"scrape_interval": "2s", "evaluation_interval": "2s"}
    (job,) = settings["scrape_configs"]
    assert job["honor_labels"] is True

"""The charts as the quick start installs them."""

import json
import re
import shlex

import pytest
import yaml

from tests.charts.render import OPERATOR, ROOT, SERVICES, named, of_kind, render
from tests.quickstart import steps

pytestmark = pytest.mark.gate


@pytest.fixture(scope="module")
def installed():
    """chart -> (namespace, objects), in the order of the page."""
    made, found = {"default"}, {}
    for step in steps():
        words = shlex.split(step.line)
        if words[:3] == ["kubectl", "create", "namespace"]:
            made.add(words[3])
        if words[:2] == ["helm", "install"]:
            release, chart, *options = words[2:]
            namespace = options[options.index("--namespace") + 1]
            made |= {namespace} if "--create-namespace" in options else set()
            settings = [word for at, word in enumerate(options) if word == "--set" or options[at - 1] == "--set"]
            objects = render(ROOT / chart, {}, release, namespace, *settings)
            assert {each["metadata"].get("namespace", namespace) for each in objects} <= made, "no such namespace yet"
            found[ROOT / chart] = (namespace, objects)
    return found


def test_both_charts_are_installed(installed):
    assert set(installed) == {OPERATOR, SERVICES}


def test_prometheus_scrapes_the_stream_and_the_operator(installed):
    namespace, objects = installed[SERVICES]
    (prometheus,) = [each for each in of_kind(objects, "StatefulSet") if each["metadata"]["name"] == "dev-prometheus"]
    (discover,) = [each for each in prometheus["spec"]["template"]["spec"]["containers"] if each["name"] == "discover"]

    scraped = {namespace, installed[OPERATOR][0]}
    assert set(discover["command"][4:]) == scraped
    assert {each["metadata"]["namespace"] for each in of_kind(objects, "RoleBinding")} == scraped
    for each in of_kind(installed[OPERATOR][1], "Deployment"):
        assert each["spec"]["template"]["metadata"]["annotations"]["prometheus.io/scrape"] == "true"


def test_operator_and_stream_find_prometheus_kafka_and_zookeeper(installed):
    namespace, objects = installed[SERVICES]
    services = {each["metadata"]["name"] for each in of_kind(objects, "Service")}
    operator = named(installed[OPERATOR][1], "Deployment", "spatialstream")
    variables = {
        each["name"]: each.get("value") for each in operator["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    stream = yaml.safe_load((ROOT / "examples" / "minimal.yaml").read_text("utf-8"))

    assert variables["SPATIALSTREAM_OPERATOR_PROMETHEUS_URL"] == f"http://dev-prometheus.{namespace}.svc:9090"
    named_there = set(re.findall(r"dev-[a-z]+", json.dumps(stream))) - {"dev-checkpoints"}
    assert named_there == {"dev-kafka", "dev-zookeeper", "dev-prometheus"} <= services
    assert named(objects, "PersistentVolumeClaim", stream["spec"]["checkpoint"]["claimName"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, False),
        ({"prometheus": {"namespaces": ["geo", "spatialstream-system"]}}, True),
        ({"alerts": {"rules": {"SpatialStreamOperatorDown": {"enabled": True}}}}, True),
        (
            {
                "prometheus": {"namespaces": ["geo", "spatialstream-system"]},
                "alerts": {"rules": {"SpatialStreamOperatorDown": {"enabled": False}}},
            },
            False,
        ),
    ],
    ids=["own-namespace", "both-namespaces", "asked-for", "switched-off"],
)
def test_that_the_operator_is_down_is_an_alert_where_it_is_scraped(values, expected):
    text = named(render(SERVICES, values, "dev", "geo"), "ConfigMap", "dev-prometheus")["data"]["alerts.yml"]
    (group,) = yaml.safe_load(text)["groups"]

    alerts = {rule["alert"] for rule in group["rules"]}

    assert ("SpatialStreamOperatorDown" in alerts) == expected
    assert ("SpatialStreamGatewayDown" in alerts) == ("prometheus" in values)
    assert len(alerts - {"SpatialStreamOperatorDown", "SpatialStreamGatewayDown"}) == 14

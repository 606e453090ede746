"""Values: what the schema refuses, and that each has its comment."""

import json

import pytest
import yaml

from tests.charts.render import OPERATOR, SERVICES, ChartError, render

pytestmark = pytest.mark.gate

WRONG = [
    (OPERATOR, {"replicas": 2}, "replicas"),
    (OPERATOR, {"image": {"tag": "latest"}}, "tag"),
    (OPERATOR, {"image": {"tag": 1.5}}, "tag"),
    (OPERATOR, {"image": {"digest": "abc"}}, "digest"),
    (OPERATOR, {"image": {"repository": ""}}, "repository"),
    (OPERATOR, {"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    (OPERATOR, {"imagePullSecrets": ["pull"]}, "imagePullSecrets"),
    (OPERATOR, {"watch": {"namespaces": "geo"}}, "namespaces"),
    (OPERATOR, {"watch": {"namespaces": ["geo", "geo"]}}, "namespaces"),
    (OPERATOR, {"watch": {"namespaces": ["Geo"]}}, "namespaces"),
    (OPERATOR, {"watch": {"namespaces": ["geo"], "all": True}}, "exclude each other"),
    (OPERATOR, {"watch": {"namespace": "geo"}}, "namespace"),
    (OPERATOR, {"prometheus": {"url": "prometheus:9090"}}, "url"),
    (OPERATOR, {"executors": {"graceSeconds": 0}}, "graceSeconds"),
    (OPERATOR, {"executors": {"graceSeconds": "5m"}}, "graceSeconds"),
    (OPERATOR, {"log": {"level": "loud"}}, "level"),
    (OPERATOR, {"rbac": {"secrets": True}}, "secrets"),
    (OPERATOR, {"resources": {"requests": {"memory": "lots"}}}, "memory"),
    (OPERATOR, {"resources": {"request": {"cpu": 1}}}, "request"),
    (OPERATOR, {"podLabels": {"a": 1}}, "podLabels"),
    (OPERATOR, {"extraEnv": [{"name": "SPATIALSTREAM_OPERATOR_IMAGE", "value": "x"}]}, "extraEnv"),
    (OPERATOR, {"podDisruptionBudget": {"maxUnavailable": 2}}, "maxUnavailable"),
    (OPERATOR, {"monitoring": {"prometheusOperator": "yes"}}, "prometheusOperator"),
    (OPERATOR, {"alerts": {"rules": {"SpatialStreamLaging": {"above": 1}}}}, "SpatialStreamLaging"),
    (OPERATOR, {"alerts": {"rules": {"SpatialStreamLagging": {"over": 1}}}}, "over"),
    (OPERATOR, {"alerts": {"rules": {"SpatialStreamLagging": {"for": "soon"}}}}, "for"),
    (OPERATOR, {"alerts": {"rules": {"SpatialStreamNotReady": {"above": 1}}}}, "no threshold"),
    (OPERATOR, {"alerts": {"runbookUrl": "https://example.com/"}}, "runbookUrl"),
    (OPERATOR, {"networkPolicy": {"egressPorts": [2181]}}, "egressPorts"),
    (OPERATOR, {"networkPolicy": {"egress": {"kafka": ["broker"]}}}, "kafka"),
    (OPERATOR, {"streams": {"podTemplate": {"allow": ["spec.volumes.secret"]}}}, "allow"),
    (OPERATOR, {"streams": {"options": "all"}}, "options"),
    (OPERATOR, {"streams": {"images": ["a b"]}}, "images"),
    (OPERATOR, {"streams": {"secrets": [""]}}, "secrets"),
    (OPERATOR, {"networkPolicy": {"clientsFrom": ["gateway"]}}, "clientsFrom"),
    (OPERATOR, {"gateway": {"replicas": -1}}, "replicas"),
    (OPERATOR, {"gateway": {"image": {}}}, "image"),
    (OPERATOR, {"gateway": {"url": "streams.example.org"}}, "url"),
    (OPERATOR, {"gateway": {"access": {"tokenReview": False}}}, "anyone could connect"),
    (OPERATOR, {"gateway": {"access": {"tokens": "x"}}}, "tokens"),
    (OPERATOR, {"gateway": {"secrets": "kafka"}}, "secrets"),
    (OPERATOR, {"gateway": {"limits": {"rate": -1}}}, "rate"),
    (OPERATOR, {"gateway": {"limits": {"connections": 0}}}, "connections"),
    (OPERATOR, {"gateway": {"limits": {"body": 16777216}}}, "body"),
    (OPERATOR, {"gateway": {"limits": {"answer": 0}}}, "answer"),
    (OPERATOR, {"gateway": {"limits": {"memory": "256Mi"}}}, "memory"),
    (OPERATOR, {"gateway": {"allowOrigins": ["*"]}}, "allowOrigins"),
    (OPERATOR, {"gateway": {"trustedProxies": ["ingress"]}}, "trustedProxies"),
    (OPERATOR, {"gateway": {"tls": {"issuer": {"name": "internal", "kind": "Vault"}}}}, "kind"),
    (OPERATOR, {"gateway": {"tls": {"issuer": "internal"}}}, "issuer"),
    (OPERATOR, {"gateway": {"service": {"port": 0}}}, "port"),
    (OPERATOR, {"gateway": {"topologySpreadConstraints": {"maxSkew": 1}}}, "topologySpreadConstraints"),
    (OPERATOR, {"gateway": {"topologySpreadConstraints": [{"maxSkew": 1}]}}, "topologyKey"),
    (OPERATOR, {"gateway": {"ingress": {"enabled": True}}}, "name the host"),
    (OPERATOR, {"gateway": {"httpRoute": {"enabled": True}}}, "name the Gateway"),
    (OPERATOR, {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 7}}}, "at most maxReplicas"),
    (OPERATOR, {"gateway": {"autoscaling": {"targetUtilisation": 0}}}, "targetUtilisation"),
    (OPERATOR, {"gateway": {"podDisruptionBudget": {"maxUnavailable": "many"}}}, "maxUnavailable"),
    (SERVICES, {"image": {"tag": "latest"}}, "tag"),
    (SERVICES, {"prometheus": {"scrapeInterval": 5}}, "scrapeInterval"),
    (SERVICES, {"storage": {"hostPath": "var/tmp"}}, "hostPath"),
    (SERVICES, {"storage": {"accessMode": "ReadOnlyMany"}}, "accessMode"),
    (SERVICES, {"storage": {"size": "big"}}, "size"),
    (SERVICES, {"redis": {}}, "redis"),
]


@pytest.mark.parametrize(("chart", "values", "about"), WRONG, ids=lambda each: each if isinstance(each, str) else "")
def test_wrong_values_are_refused_by_name(chart, values, about):
    with pytest.raises(ChartError, match=about):
        render(chart, values)


@pytest.mark.parametrize("chart", [OPERATOR, SERVICES], ids=lambda chart: chart.name)
def test_the_schema_has_the_values_that_there_are(chart):
    schema = json.loads((chart / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load((chart / "values.yaml").read_text("utf-8"))

    assert schema["properties"].keys() - {"global"} == values.keys()


@pytest.mark.parametrize("chart", [OPERATOR, SERVICES], ids=lambda chart: chart.name)
def test_every_paragraph_of_values_has_a_comment(chart):
    paragraphs = (chart / "values.yaml").read_text("utf-8").split("\n\n")

    assert [paragraph for paragraph in paragraphs if "#" not in paragraph] == []

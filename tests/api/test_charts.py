"""The API server accepts what the charts render: every field is known to it, and nothing is worth a warning."""

import pytest

from tests.api.client import RefusalError, path_of
from tests.charts.configurations import CONFIGURATIONS
from tests.charts.render import named, render

RELEASE_NAMESPACE = "spatialstream-system"
# their definitions come with the Prometheus operator, and with the Gateway API
FOREIGN = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "HTTPRoute", "Certificate"}


@pytest.mark.gate
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_all_that_a_chart_renders_is_accepted(api, server, namespace, name):
    chart, values = CONFIGURATIONS[name]
    objects = [each for each in render(chart, values) if each["kind"] not in FOREIGN]
    for each in {RELEASE_NAMESPACE} | {each["metadata"].get("namespace", RELEASE_NAMESPACE) for each in objects}:
        namespace(each)
    for each in objects:
        if each["kind"] == "Pod":  # only a pod's account is looked up when the pod is made
            account = {"name": each["spec"]["serviceAccountName"], "namespace": RELEASE_NAMESPACE}
            api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    client = server.as_admin()

    for each in objects:
        applied = client.apply(each, "&dryRun=All")
        assert applied["metadata"]["name"] == each["metadata"]["name"]

    assert objects
    assert client.warnings == []


def test_an_unknown_field_would_be_noticed(api, server, namespace):
    client = server.as_admin()
    deployment = named(render("spatialstream", {}), "Deployment", "spatialstream")
    namespace(deployment["metadata"]["namespace"])
    deployment["spec"]["template"]["spec"]["unheardOf"] = True

    with pytest.raises(RefusalError, match="unheardOf"):
        client.apply(deployment, "&dryRun=All")


def test_a_pod_that_is_not_restricted_would_be_noticed(api, server, namespace):
    client = server.as_admin()
    deployment = named(render("spatialstream", {}), "Deployment", "spatialstream")
    namespace(deployment["metadata"]["namespace"])
    deployment["spec"]["template"]["spec"]["hostNetwork"] = True

    client.apply(deployment, "&dryRun=All")

    assert "hostNetwork" in "".join(client.warnings)


def test_objects_are_found_by_their_paths():
    assert path_of({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}) == "/api/v1/namespaces/a"
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "a", "namespace": "b"},
    }
    assert path_of(policy) == "/apis/networking.k8s.io/v1/namespaces/b/networkpolicies/a"

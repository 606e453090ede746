"""Namespaces, rights and the custom resource come and go; the operator stays, and looks after what is left.

The controller of namespaces does not run here: the tests do what it would, in the order that is the worst.
"""

import re

import pytest

from tests.api.client import RefusalError, eventually
from tests.api.installation import install
from tests.api.operators import OperatorProcess
from tests.api.play import first_version

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SERVED = "spatialstream_operator_namespace_served"
GOING, STAYING = "going-geo", "staying-geo"


@pytest.fixture(scope="module")
def bounded(tmp_path_factory, server, api, namespace, process):
    """An operator of two namespaces, as the chart installs it; the one of all namespaces does not run meanwhile."""
    process.kill()
    values = {"watch": {"namespaces": [GOING, STAYING]}, "crds": {"install": False}, "rbac": {"aggregate": False}}
    installed = install(api, namespace, "two", "two-system", values)
    folder = tmp_path_factory.mktemp("two")
    namespaces = ",".join((GOING, STAYING))
    with OperatorProcess(folder, server, installed.token(api), installed.namespace, NAMESPACES=namespaces) as started:
        eventually(lambda: started.ready, "the operator is at work")
        yield started


def lines(operator, pattern):
    """The lines of its log that fit a pattern."""
    return [each for each in operator.log.read_text().splitlines() if re.search(pattern, each)]


def lose_rights(api, space):
    """The roles of the operator, and their bindings, go."""
    for kind in ("rolebindings", "roles"):
        api.delete(f"{RBAC}/namespaces/{space}/{kind}/two-spatialstream")


def test_a_stream_says_that_rights_are_missing_and_goes_on_with_them(bounded, api, played):
    stream = played("other", within=STAYING).start()
    paths = {kind: f"{RBAC}/namespaces/{STAYING}/{kind}" for kind in ("roles", "rolebindings")}
    roles = {kind: api.get(f"{path}/two-spatialstream") for kind, path in paths.items()}
    reconciliations = bounded.reconciliations(stream)
    eventually(
        lambda: bounded.reconciliations(stream) > reconciliations,
        "a reconciliation has just ended, and the next one meets the loss at once",
    )
    lose_rights(api, STAYING)

    said = stream.says("Degraded", "True", "Refused")

    assert said["message"].startswith("The operator lacks a permission: ")
    for kind, role in roles.items():
        del role["metadata"]["resourceVersion"], role["metadata"]["uid"]
        api.post(paths[kind], role)
    stream.says("Degraded", "False")
    assert len(lines(bounded, f"{STAYING}/other: ApiError")) == 1


def test_a_namespace_with_a_live_stream_goes_although_the_rights_go_first(bounded, api, played):
    stream, other = played("quakes", within=GOING), played("third", within=STAYING)
    with stream.store() as store:
        store.create(first_version())
        stream.start()
        api.delete(f"/api/v1/namespaces/{GOING}")
        lose_rights(api, GOING)
        for job in ("router", "worker", "worker-exec-1"):
            stream.vanishes(job)
        api.delete(stream.path)

        stream.gone(60)

        assert store.versions() == ()
    assert stream.pod("remover") is None
    (line,) = lines(bounded, "no pod can remove the stream's external state")
    assert f"{GOING}/quakes: " in line
    assert "The routing state in ZooKeeper is removed" in line
    other.runs("router")


def test_the_custom_resource_can_be_removed_and_installed_again(bounded, api, definition, played):
    stream = played("another", within=STAYING)
    stream.runs("router")
    stream.annotate(skip_cleanup="true")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/spatialstreams.spatialstream.dev"
    api.delete(path)
    eventually(lambda: api.find(path) is None, "the definition is gone, and all streams with it")
    eventually(
        lambda: bounded.metric(SERVED, namespace=STAYING, kind="SpatialStream") == 0.0, "the operator has seen that"
    )
    assert bounded.running

    api.apply(definition)

    def there():
        try:
            return api.find(stream.path.rpartition("/")[0])
        except RefusalError:
            return None

    eventually(there, "the definition is there")
    again = played("again", within=STAYING)
    again.runs("router")
    assert bounded.metric(SERVED, namespace=STAYING, kind="SpatialStream") == 1.0
    assert len(lines(bounded, f"{STAYING}: spatialstreams cannot be listed")) == 1


def test_all_of_it_has_left_no_mistake_behind(bounded):
    """Runs last of this module: all that the operator has said."""
    log = bounded.log.read_text()

    assert "Traceback" not in log
    assert "never retrieved" not in log
    assert bounded.ready

"""What the accounts may do and, above all, may not, as the API server itself answers it."""

import pytest

from spatialstream_operator import manifests
from spatialstream_operator.names import StreamNames
from tests.api.installation import install
from tests.api.resources import stream, streams

pytestmark = pytest.mark.gate

OWN = "spatialstream.dev"
RBAC = "rbac.authorization.k8s.io"


def may(api, user, verb, resource, namespace="", group="", name="", subresource=""):
    """Whether a user may do something, as the authorizer says."""
    attributes = {
        "verb": verb,
        "resource": resource,
        "namespace": namespace,
        "group": group,
        "name": name,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups(user), "resourceAttributes": attributes},
    }
    status = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]
    assert not status.get("evaluationError")
    return status["allowed"]


def groups(user):
    if not user.startswith("system:serviceaccount:"):
        return ["system:authenticated"]
    return ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]


# verb, resource, group, subresource
NOBODY_NEEDS = [
    ("list", "secrets", "", ""),
    ("watch", "secrets", "", ""),
    ("create", "secrets", "", ""),
    ("delete", "secrets", "", ""),
    ("create", "pods", "", "exec"),
    ("create", "pods", "", "attach"),
    ("create", "pods", "", "portforward"),
    ("get", "pods", "", "log"),
    ("create", "pods", "", "ephemeralcontainers"),
    ("create", "serviceaccounts", "", "token"),
    ("impersonate", "users", "", ""),
    ("impersonate", "serviceaccounts", "", ""),
    ("create", "clusterroles", RBAC, ""),
    ("patch", "clusterroles", RBAC, ""),
    ("create", "clusterrolebindings", RBAC, ""),
    ("bind", "clusterroles", RBAC, ""),
    ("escalate", "roles", RBAC, ""),
    ("bind", "roles", RBAC, ""),
    ("create", "deployments", "apps", ""),
    ("patch", "deployments", "apps", ""),
    ("create", "daemonsets", "apps", ""),
    ("create", "jobs", "batch", ""),
    ("get", "nodes", "", ""),
    ("list", "nodes", "", ""),
    ("get", "nodes", "", "proxy"),
    ("get", "persistentvolumes", "", ""),
    ("delete", "persistentvolumeclaims", "", ""),
    ("create", "namespaces", "", ""),
    ("delete", "namespaces", "", ""),
    ("create", "mutatingwebhookconfigurations", "admissionregistration.k8s.io", ""),
    ("create", "customresourcedefinitions", "apiextensions.k8s.io", ""),
    ("delete", "customresourcedefinitions", "apiextensions.k8s.io", ""),
    ("delete", "spatialstreams", OWN, ""),
    ("create", "spatialstreams", OWN, ""),
    ("delete", "spatialqueries", OWN, ""),
    ("create", "spatialqueries", OWN, ""),
    ("delete", "spatialareas", OWN, ""),
    ("create", "spatialareas", OWN, ""),
    ("create", "certificatesigningrequests", "certificates.k8s.io", ""),
]
OPERATOR_NEEDS = [
    ("watch", "spatialstreams", OWN, ""),
    ("patch", "spatialstreams", OWN, ""),
    ("patch", "spatialstreams", OWN, "status"),
    ("write", "spatialstreams", OWN, ""),
    ("watch", "spatialqueries", OWN, ""),
    ("patch", "spatialqueries", OWN, ""),
    ("patch", "spatialqueries", OWN, "status"),
    ("watch", "spatialareas", OWN, ""),
    ("patch", "spatialareas", OWN, ""),
    ("patch", "spatialareas", OWN, "status"),
    ("create", "pods", "", ""),
    ("delete", "pods", "", ""),
    ("create", "roles", RBAC, ""),
    ("create", "events", "events.k8s.io", ""),
    ("list", "events", "events.k8s.io", ""),
    ("get", "secrets", "", ""),
]


EVERYWHERE = {
    ("watch", "spatialstreams", ""),
    ("patch", "spatialstreams", ""),
    ("patch", "spatialstreams", "status"),
    ("watch", "spatialqueries", ""),
    ("patch", "spatialqueries", ""),
    ("patch", "spatialqueries", "status"),
    ("watch", "spatialareas", ""),
    ("patch", "spatialareas", ""),
    ("patch", "spatialareas", "status"),
}
"""Without them a namespace that is deleted would wait for ever: its roles go before its streams."""


@pytest.fixture(scope="module")
def usual(api, namespace):
    """An operator as the chart installs it."""
    return install(api, namespace, "usual", "rights-usual", {})


@pytest.fixture(scope="module")
def everywhere(api, namespace):
    """An operator of the whole cluster."""
    return install(api, namespace, "wide", "rights-wide", {"watch": {"all": True}})


@pytest.fixture(scope="module")
def bounded(api, namespace):
    """An operator of one namespace, which is not its own."""
    return install(api, namespace, "bounded", "rights-bounded", {"watch": {"namespaces": ["rights-watched"]}})


@pytest.fixture(scope="module")
def driver(api, namespace):
    """The account of a stream's drivers."""
    space = namespace("rights-stream")
    body = api.post(streams(space), stream(space, "quakes"))
    names = StreamNames(space, "quakes")
    uid = body["metadata"]["uid"]
    for make in (manifests.service_account, manifests.executor_account):
        api.apply(make(names, uid, {}))
    for make in (manifests.role, manifests.role_binding):
        api.apply(make(names, uid))
    yield f"system:serviceaccount:{space}:{names.account}"
    api.delete(streams(space, "quakes"))


@pytest.mark.parametrize("right", OPERATOR_NEEDS, ids=" ".join)
def test_the_operator_may_what_it_needs(api, everywhere, bounded, right):
    verb, resource, group, subresource = right

    for user, space in ((everywhere.user, "default"), (bounded.user, "rights-watched")):
        assert may(api, user, verb, resource, space, group, subresource=subresource)


@pytest.mark.parametrize("right", NOBODY_NEEDS, ids=" ".join)
def test_the_operator_may_not_what_it_does_not_need(api, everywhere, bounded, right):
    verb, resource, group, subresource = right

    for user, own in ((everywhere.user, "rights-wide"), (bounded.user, "rights-bounded")):
        for space in ("", "default", "kube-system", "rights-watched", own):
            assert not may(api, user, verb, resource, space, group, subresource=subresource), space


def test_the_operator_of_a_namespace_may_only_let_go_of_streams_elsewhere(api, bounded):
    for verb, resource, group, subresource in OPERATOR_NEEDS:
        for space in ("", "default", "kube-system", "rights-wide", bounded.namespace):
            found = may(api, bounded.user, verb, resource, space, group, subresource=subresource)
            assert found is ((verb, resource, subresource) in EVERYWHERE), (verb, resource, space)
    assert may(api, bounded.user, "get", "namespaces", "elsewhere")
    assert not may(api, bounded.user, "list", "namespaces")


def test_by_default_the_operator_may_something_where_it_is_installed_and_nowhere_else(api, usual):
    for verb, resource, group, subresource in OPERATOR_NEEDS:
        assert may(api, usual.user, verb, resource, usual.namespace, group, subresource=subresource)
    for space in ("", "default", "kube-system"):
        for verb, resource in (("get", "secrets"), ("create", "pods"), ("create", "serviceaccounts"), ("get", "pods")):
            assert not may(api, usual.user, verb, resource, space), (verb, resource, space)


def test_leases_are_the_operators_only_where_it_lives(api, everywhere):
    assert may(api, everywhere.user, "update", "leases", everywhere.namespace, "coordination.k8s.io")
    for space in ("", "default", "kube-system", "kube-node-lease"):
        assert not may(api, everywhere.user, "update", "leases", space, "coordination.k8s.io"), space


def test_secrets_that_are_named_are_the_only_ones(api, namespace):
    values = {"rbac": {"secrets": {"names": ["kafka"]}}, "watch": {"namespaces": ["rights-watched"]}}
    named = install(api, namespace, "named", "rights-named", values)

    assert may(api, named.user, "get", "secrets", "rights-watched", name="kafka")
    assert not may(api, named.user, "get", "secrets", "rights-watched", name="other")


def test_a_driver_may_have_executors(api, driver):
    for verb in ("get", "list", "watch", "create", "delete", "deletecollection"):
        assert may(api, driver, verb, "pods", "rights-stream"), verb


@pytest.mark.parametrize("right", NOBODY_NEEDS, ids=" ".join)
def test_a_driver_may_nothing_that_nobody_needs(api, driver, right):
    verb, resource, group, subresource = right

    assert not may(api, driver, verb, resource, "rights-stream", group, subresource=subresource)


def test_a_driver_may_nothing_else(api, driver):
    for verb in ("get", "list", "create", "patch", "update", "delete"):
        for resource, group in (
            ("secrets", ""),
            ("configmaps", ""),
            ("services", ""),
            ("serviceaccounts", ""),
            ("events", ""),
            ("roles", RBAC),
            ("rolebindings", RBAC),
            ("spatialstreams", OWN),
            ("leases", "coordination.k8s.io"),
        ):
            assert not may(api, driver, verb, resource, "rights-stream", group), (verb, resource)
    for verb in ("patch", "update"):
        assert not may(api, driver, verb, "pods", "rights-stream")


def test_a_driver_may_nothing_in_other_namespaces(api, driver):
    for space in ("", "default", "rights-watched", "kube-system"):
        for verb in ("get", "list", "create", "delete"):
            assert not may(api, driver, verb, "pods", space), (verb, space)


def test_an_executor_may_nothing(api, driver):
    executor = driver.replace("-driver", "-executor")
    for verb, resource in (
        ("get", "pods"),
        ("create", "pods"),
        ("delete", "pods"),
        ("get", "secrets"),
        ("get", "configmaps"),
    ):
        assert not may(api, executor, verb, resource, "rights-stream"), (verb, resource)


def test_the_roles_of_users_reach_streams(api, everywhere):
    """The controller that aggregates roles does not run here: the labels it goes by are tested with the charts."""
    bound = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "viewer", "namespace": "rights-wide"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "wide-spatialstream-view"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "eva"}],
    }
    api.apply(bound)

    assert may(api, "eva", "list", "spatialstreams", "rights-wide", OWN)
    assert not may(api, "eva", "patch", "spatialstreams", "rights-wide", OWN)
    assert not may(api, "eva", "list", "spatialstreams", "default", OWN)

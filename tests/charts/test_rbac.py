"""The rights of operator and gateway are these, and no others."""

import pytest

from spatialstream_operator.manifests.access import DRIVER_VERBS
from tests.charts.configurations import EVERYTHING
from tests.charts.render import OPERATOR, SERVICES, of_kind, render

pytestmark = pytest.mark.gate

OWN = "spatialstream.dev"
RBAC = "rbac.authorization.k8s.io"
CHANGE = {"get", "create", "patch"}
# (group, resource) -> verbs: why
OWN_RESOURCE = {
    (OWN, "spatialstreams"): {"get", "list", "watch", "patch"},  # patch: finalizer, annotations
    (OWN, "spatialstreams/status"): {"patch"},
    (OWN, "spatialqueries"): {"get", "list", "watch", "patch"},
    (OWN, "spatialqueries/status"): {"patch"},
    (OWN, "spatialareas"): {"get", "list", "watch", "patch"},
    (OWN, "spatialareas/status"): {"patch"},
}
WRITE = {(OWN, "spatialstreams"): {"get", "list", "watch", "patch", "write"}}  # to register queries by the gateway
STREAMS = {
    **OWN_RESOURCE,
    **WRITE,
    (OWN, "spatialstreams/finalizers"): {"update"},  # to own objects with blockOwnerDeletion
    ("", "pods"): {"get", "list", "watch", "create", "delete", "deletecollection"},
    ("", "services"): CHANGE,
    ("", "configmaps"): CHANGE,
    ("", "serviceaccounts"): CHANGE,
    (RBAC, "roles"): CHANGE,
    (RBAC, "rolebindings"): CHANGE,
    ("networking.k8s.io", "networkpolicies"): CHANGE,
    ("events.k8s.io", "events"): {"create", "list"},  # list: why a pod does not start
}
SECRETS = {("", "secrets"): {"get"}}  # credentials of ZooKeeper
MONITORS = {("monitoring.coreos.com", "podmonitors"): CHANGE}
NAMESPACES = {("", "namespaces"): {"get"}}  # whether one is being deleted
EVERYWHERE = OWN_RESOURCE | NAMESPACES  # roles of a namespace that is being deleted go before its streams
ALL = STREAMS | SECRETS | NAMESPACES
LEASE = {("coordination.k8s.io", "leases"): {"get", "create", "update"}}
LIST = {(OWN, "spatialstreams"): {"list"}}  # all that the gateway needs to know which streams there are
REVIEWS = "system:auth-delegator"
"""The cluster's own role for whoever has it review tokens and rights; it may read nothing."""


def rights(role):
    """(group, resource) -> verbs of a role."""
    found = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                assert (group, resource) not in found
                found[group, resource] = set(rule["verbs"])
    return found


def granted(values, account="spatialstream"):
    """What an account may do: namespace (None: everywhere) -> rights; a role of the cluster's own by its name."""
    objects = render(OPERATOR, values)
    roles = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for each in of_kind(objects, "Role", "ClusterRole")
    }
    found = {}
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        if subject["name"] != account:
            continue
        namespace = binding["metadata"].get("namespace")
        reference = binding["roleRef"]
        if reference["name"] == REVIEWS:
            assert reference["kind"] == "ClusterRole"
            found.setdefault(namespace, {})[REVIEWS] = set()
            continue
        role = roles[reference["kind"], namespace if reference["kind"] == "Role" else None, reference["name"]]
        assert not found.get(namespace, {}).keys() & rights(role).keys()
        found.setdefault(namespace, {}).update(rights(role))
    return found


SYSTEM = "spatialstream-system"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {None: EVERYWHERE, SYSTEM: STREAMS | SECRETS | LEASE}),
        ({"rbac": {"secrets": {"get": False}}}, {None: EVERYWHERE, SYSTEM: STREAMS | LEASE}),
        (
            {"monitoring": {"prometheusOperator": True}},
            {None: EVERYWHERE, SYSTEM: STREAMS | SECRETS | LEASE | MONITORS},
        ),
        (
            {"watch": {"namespaces": ["geo", "weather"]}},
            {None: EVERYWHERE, "geo": STREAMS | SECRETS, "weather": STREAMS | SECRETS, SYSTEM: LEASE},
        ),
        (
            {"watch": {"namespaces": ["geo"]}, "rbac": {"namespaceDeletion": False}},
            {"geo": STREAMS | SECRETS, SYSTEM: LEASE},
        ),
        ({"watch": {"all": True}}, {None: ALL, SYSTEM: LEASE}),
        (
            {"gateway": {"enabled": False}, "rbac": {"namespaceDeletion": False}},
            {SYSTEM: STREAMS | OWN_RESOURCE | SECRETS | LEASE},
        ),
        ({"rbac": {"create": False}}, {}),
    ],
    ids=[
        *("as it is", "without-secrets", "monitored", "namespaces", "nothing-in-the-cluster", "everywhere"),
        *("without-gateway", "none"),
    ],
)
def test_operator_has_these_rights_and_no_more(values, expected):
    assert granted(values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {None: {REVIEWS: set()}, SYSTEM: LIST}),
        ({"watch": {"namespaces": ["geo", "weather"]}}, {None: {REVIEWS: set()}, "geo": LIST, "weather": LIST}),
        ({"watch": {"all": True}}, {None: {REVIEWS: set()} | LIST}),
        ({"gateway": {"secrets": ["kafka"]}}, {None: {REVIEWS: set()}, SYSTEM: LIST | SECRETS}),
        ({"gateway": {"access": {"tokenReview": False, "tokensSecret": "tokens"}}}, {SYSTEM: LIST}),
        ({"gateway": {"enabled": False}}, {}),
        ({"rbac": {"create": False}}, {}),
    ],
    ids=["as it is", "namespaces", "everywhere", "a secret", "tokens of a file", "without it", "none"],
)
def test_gateway_has_these_rights_and_no_more(values, expected):
    assert granted(values, "spatialstream-gateway") == expected


def test_without_policies_it_may_not_touch_any():
    policies = ("networking.k8s.io", "networkpolicies")
    for values, allowed in (({}, True), ({"networkPolicy": {"enabled": False}}, False)):
        assert (policies in granted(values)[SYSTEM]) == allowed


def test_operator_holds_exactly_the_rights_to_pods_that_it_gives_to_drivers():
    assert set(DRIVER_VERBS) == STREAMS["", "pods"]


def test_no_wildcards():
    for values in ({}, EVERYTHING):
        for role in of_kind(render(OPERATOR, values), "Role", "ClusterRole"):
            for rule in role["rules"]:
                assert not any("*" in entry for entries in rule.values() for entry in entries)
                assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])


def test_secrets_can_be_named():
    for role in of_kind(render(OPERATOR, EVERYTHING), "Role"):
        for rule in role["rules"]:
            if "secrets" in rule["resources"]:
                assert rule["resourceNames"] == ["kafka", "zookeeper"]
            else:
                assert "resourceNames" not in rule


def test_an_installation_for_namespaces_can_do_without_rights_in_the_cluster():
    rbac = {"aggregate": False, "namespaceDeletion": False}
    access = {"access": {"tokenReview": False, "tokensSecret": "tokens"}}
    values = {"watch": {"namespaces": ["geo"]}, "crds": {"install": False}, "rbac": rbac, "gateway": access}

    assert not of_kind(render(OPERATOR, values), "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")


def test_users_see_and_change_streams_by_the_roles_that_they_have():
    objects = {each["metadata"]["name"]: each for each in of_kind(render(OPERATOR, {}), "ClusterRole")}
    view, edit = objects["spatialstream-view"], objects["spatialstream-edit"]

    assert rights(view) == {
        (OWN, "spatialstreams"): {"get", "list", "watch", "ask"},
        (OWN, "spatialstreams/status"): {"get"},
        (OWN, "spatialstreams/scale"): {"get"},
        (OWN, "spatialqueries"): {"get", "list", "watch"},
        (OWN, "spatialqueries/status"): {"get"},
        (OWN, "spatialareas"): {"get", "list", "watch"},
        (OWN, "spatialareas/status"): {"get"},
    }
    change = {"create", "update", "patch", "delete", "deletecollection", "write"}
    assert rights(edit) == {
        (OWN, "spatialstreams"): change,
        (OWN, "spatialstreams/scale"): {"update", "patch"},
        (OWN, "spatialqueries"): change - {"write"},
        (OWN, "spatialareas"): change - {"write"},
    }
    aggregate = f"{RBAC}/aggregate-to-"
    for role, into in ((view, {"view", "edit", "admin"}), (edit, {"edit", "admin"})):
        labels = role["metadata"]["labels"]
        assert {label.removeprefix(aggregate) for label in labels if label.startswith(aggregate)} == into


def test_the_prometheus_of_the_services_may_list_pods_and_nothing_else():
    objects = render(SERVICES, {"prometheus": {"namespaces": ["geo", "weather"]}})

    roles = of_kind(objects, "Role", "ClusterRole")
    assert {role["metadata"]["namespace"] for role in roles} == {"geo", "weather"}
    assert [rights(role) for role in roles] == [{("", "pods"): {"list"}}] * 2

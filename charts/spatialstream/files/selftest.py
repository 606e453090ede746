"""Checks an installation from within, as the operator's service account; run by `helm test`.

It checks that the operator is ready, that the API server serves the custom resources, and that the account has the
permissions that the operator needs, and none that it must not have. It prints every result, and exits with status 1 if
one is wrong.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GROUP = "spatialstream.dev"
NEEDED = [
    (GROUP, "spatialstreams", "watch"),
    (GROUP, "spatialstreams/status", "patch"),
    (GROUP, "spatialqueries", "watch"),
    (GROUP, "spatialqueries/status", "patch"),
    (GROUP, "spatialareas", "watch"),
    (GROUP, "spatialareas/status", "patch"),
    ("", "pods", "create"),
    ("", "pods", "deletecollection"),
    ("", "services", "patch"),
    ("", "configmaps", "create"),
    ("rbac.authorization.k8s.io", "rolebindings", "create"),
]
FORBIDDEN = [
    ("", "secrets", "list"),
    ("", "pods/exec", "create"),
    ("", "nodes", "list"),
    ("rbac.authorization.k8s.io", "clusterroles", "create"),
    (GROUP, "spatialstreams", "delete"),
]


def ask(path, body=None):
    """The response of the API server to a GET, or to a POST of a body."""
    request = urllib.request.Request(
        f"https://kubernetes.default.svc{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return json.load(answer)


def allowed(namespace, group, resource, verb):
    """Whether this account has a permission."""
    resource, _, subresource = resource.partition("/")
    attributes = {
        "namespace": namespace,
        "group": group,
        "resource": resource,
        "subresource": subresource,
        "verb": verb,
    }
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return ask(path, {**kind, "spec": {"resourceAttributes": attributes}})["status"]["allowed"]


def ready():
    """Whether the operator's readiness probe succeeds."""
    with urllib.request.urlopen(os.environ["READY_URL"], timeout=10) as answer:
        return answer.status == 200


def served():
    """Whether the API server serves the custom resources."""
    return {"spatialstreams", "spatialqueries", "spatialareas"} <= {
        each["name"] for each in ask(f"/apis/{GROUP}/v1alpha1")["resources"]
    }


def checks():
    """The checks: description, function and expected result."""
    yield "the operator is ready", ready, True
    yield "the API server serves SpatialStreams, SpatialQueries and SpatialAreas", served, True
    for namespace in os.environ["NAMESPACES"].split(","):
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        for right, table in ((True, NEEDED), (False, FORBIDDEN)):
            for group, resource, verb in table:
                text = f"the operator may {verb} {resource} {where}"
                yield text, lambda each=(namespace, group, resource, verb): allowed(*each), right


def main():
    """Run all checks, print their results, and exit with status 1 if one is wrong."""
    wrong = 0
    for text, answer, right in checks():
        try:
            found = answer()
        except (OSError, KeyError, ValueError) as error:
            found = error
        wrong += found is not right
        sys.stdout.write(f"{'ok   ' if found is right else 'WRONG'} {text}: {found}\n")
    sys.exit(1 if wrong else 0)


main()

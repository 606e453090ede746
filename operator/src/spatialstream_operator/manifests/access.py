"""The accounts of a stream's pods: what a driver may do is to have executors; executors may do nothing.

What Spark 4.2 asks the API server for in client mode, by its source: it reads the driver's own pod and waits until it
is ready (get, list, watch), makes executors (create), follows them (list, watch), and deletes them one by one (delete)
or by their labels (deletecollection). It patches pods only to label executors that are being decommissioned, which is
not configured. ConfigMaps, persistent volume claims and services it would touch only with settings that
:mod:`spatialstream_operator.commands` switches off.
"""

from __future__ import annotations

from collections.abc import Mapping

from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.names import StreamNames

__all__ = ["DRIVER_VERBS", "executor_account", "role", "role_binding", "service_account"]

DRIVER_VERBS = ("get", "list", "watch", "create", "delete", "deletecollection")
"""What the drivers' role allows, on pods."""

_RBAC = "rbac.authorization.k8s.io"


def service_account(names: StreamNames, uid: str, annotations: Mapping[str, str]) -> Manifest:
    """The account of the drivers. Pods get its token only where they ask for it.

    Args:
        names: of the stream.
        uid: of the SpatialStream.
        annotations: by which a cloud gives the account's pods an identity.
    """
    return _account(names, names.account, uid, annotations)


def executor_account(names: StreamNames, uid: str, annotations: Mapping[str, str]) -> Manifest:
    """The account of the executors, which no role is bound to; the arguments are as above."""
    return _account(names, names.executor_account, uid, annotations)


def _account(names: StreamNames, name: str, uid: str, annotations: Mapping[str, str]) -> Manifest:
    about = metadata(names, name, uid)
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {**about, "annotations": dict(annotations)} if annotations else about,
        "automountServiceAccountToken": False,
    }


def role(names: StreamNames, uid: str) -> Manifest:
    """What the account may do."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": metadata(names, names.account, uid),
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(DRIVER_VERBS)}],
    }


def role_binding(names: StreamNames, uid: str) -> Manifest:
    """The account has the role."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(names, names.account, uid),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": names.account},
        "subjects": [{"kind": "ServiceAccount", "name": names.account, "namespace": names.namespace}],
    }

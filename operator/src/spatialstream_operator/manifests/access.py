"""The service accounts of a stream's pods: drivers may manage executor pods; executors have no permissions.

The requests of Spark 4.2 to the API server in client mode, from its source: it reads the driver's own pod and waits
until it is ready (get, list, watch), creates executors (create), follows them (list, watch), and deletes them one by
one (delete) or by label (deletecollection). It patches pods only to label executors that are being decommissioned,
which is not configured. It would access ConfigMaps, persistent volume claims and services only with settings that
:mod:`spatialstream_operator.commands` turns off.
"""

from __future__ import annotations

from collections.abc import Mapping

from spatialstream_operator.manifests.metadata import Manifest, metadata
from spatialstream_operator.names import StreamNames

__all__ = ["DRIVER_VERBS", "executor_account", "role", "role_binding", "service_account"]

DRIVER_VERBS = ("get", "list", "watch", "create", "delete", "deletecollection")
"""Verbs on pods that the drivers' role allows."""

_RBAC = "rbac.authorization.k8s.io"


def service_account(names: StreamNames, uid: str, annotations: Mapping[str, str]) -> Manifest:
    """The service account of the drivers. Its token is mounted only in pods that request it.

    Args:
        names: names of the stream.
        uid: uid of the SpatialStream.
        annotations: annotations by which a cloud provider assigns an identity to the pods.
    """
    return _account(names, names.account, uid, annotations)


def executor_account(names: StreamNames, uid: str, annotations: Mapping[str, str]) -> Manifest:
    """The service account of the executors, which has no role; arguments as for :func:`service_account`."""
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
    """The role of the drivers' service account."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": metadata(names, names.account, uid),
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": list(DRIVER_VERBS)}],
    }


def role_binding(names: StreamNames, uid: str) -> Manifest:
    """The binding of the role to the drivers' service account."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(names, names.account, uid),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": names.account},
        "subjects": [{"kind": "ServiceAccount", "name": names.account, "namespace": names.namespace}],
    }

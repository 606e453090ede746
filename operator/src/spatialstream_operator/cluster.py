"""The Kubernetes API, in the few ways in which the operator uses it. Objects are plain dicts, as in their manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from httpx2 import HTTPError as ClusterError
from httpx2 import HTTPStatusError
from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.types import CascadeType, PatchType

__all__ = ["MANAGER", "ApiError", "Cluster", "ClusterError", "Object", "code", "is_hindered", "is_refusal"]

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""

MANAGER = "spatialstream-operator"
"""Under this name the operator owns fields that it applies."""

_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409
_REFUSALS = frozenset({400, 403, 413, 422})
_INTERNAL = 500

_RESOURCES: Mapping[str, Any] = {
    kind: create_namespaced_resource(group, version, kind, plural, verbs=None)
    for group, version, kind, plural in (
        ("", "v1", "Pod", "pods"),
        ("", "v1", "Service", "services"),
        ("", "v1", "ConfigMap", "configmaps"),
        ("", "v1", "Secret", "secrets"),
        ("", "v1", "ServiceAccount", "serviceaccounts"),
        ("events.k8s.io", "v1", "Event", "events"),
        ("coordination.k8s.io", "v1", "Lease", "leases"),
        ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
        ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
        ("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"),
        ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
        ("spatialstream.dev", "v1alpha1", "SpatialStream", "spatialstreams"),
    )
}

_NAMESPACE: Any = create_global_resource("", "v1", "Namespace", "namespaces", verbs=None)


def code(error: Exception) -> int:
    """The HTTP status of the API server's answer; 0 if there was none.

    Where it does not know a path at all, as after the removal of a custom resource, its answer has no body that the
    client would make an :class:`ApiError` of.
    """
    if isinstance(error, ApiError):
        return int(error.status.code or 0)
    return error.response.status_code if isinstance(error, HTTPStatusError) else 0


def is_refusal(error: ApiError) -> bool:
    """Whether the same request would be refused again: it is wrong, or forbidden."""
    return error.status.code in _REFUSALS


def is_hindered(error: ApiError) -> bool:
    """Whether an object cannot be made for now: it is refused, or nobody can say whether to admit it.

    The API server answers with 500 if an admission webhook does not answer, or answers what it does not understand.
    """
    return is_refusal(error) or error.status.code == _INTERNAL


class Cluster:
    """A client of one cluster, with the credentials of the pod it runs in, or of the user's kubeconfig.

    Every method raises :class:`ClusterError` if there is no answer, and :class:`ApiError`, which is one, if the answer
    is a refusal.
    """

    def __init__(self) -> None:
        self._client: Any = AsyncClient(field_manager=MANAGER)  # its overloads do not know resources made at run time

    async def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """An object; None if there is none."""
        try:
            return dict(await self._client.get(_RESOURCES[kind], name, namespace=namespace))
        except ApiError as error:
            if error.status.code == _NOT_FOUND:
                return None
            raise

    async def is_terminating(self, namespace: str) -> bool:
        """Whether a namespace is on its way out, as far as the operator may know."""
        try:
            found = dict(await self._client.get(_NAMESPACE, namespace))
        except ApiError as error:
            if error.status.code in (_FORBIDDEN, _NOT_FOUND):
                return error.status.code == _NOT_FOUND
            raise
        return bool(found["metadata"].get("deletionTimestamp"))

    async def list(
        self,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Object]:
        """Objects of a namespace (None: of all) that have these labels, and these values in fields."""
        found = self._client.list(
            _RESOURCES[kind], namespace=namespace or "*", labels=dict(labels or {}), fields=dict(fields or {})
        )
        return [dict(each) async for each in found]

    async def apply(self, wanted: Object) -> Object:
        """Create an object or make it as it is wanted; fields that others own stay."""
        kind = _RESOURCES[wanted["kind"]]
        metadata = wanted["metadata"]
        done = await self._client.apply(
            kind(wanted), metadata["name"], namespace=metadata["namespace"], field_manager=MANAGER, force=True
        )
        return dict(done)

    async def create(self, wanted: Object, trial: bool = False) -> Object | None:
        """Create an object; None if there is one of this name.

        Args:
            wanted: the object.
            trial: whether only to see if it would be admitted; nothing is made then.
        """
        kind = _RESOURCES[wanted["kind"]]
        try:
            namespace = wanted["metadata"]["namespace"]
            return dict(await self._client.create(kind(wanted), namespace=namespace, dry_run=trial))
        except ApiError as error:
            if error.status.code == _CONFLICT:
                return None
            raise

    async def check(self, wanted: Object) -> None:
        """Have an object looked at as if it were to be created, with every field known; nothing is made."""
        kind = _RESOURCES[wanted["kind"]]
        # the client's own `create` has no way to ask for strict validation
        strictly = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": MANAGER}
        send = self._client._client.request
        await send("post", obj=kind(wanted), namespace=wanted["metadata"]["namespace"], params=strictly)

    async def replace(self, wanted: Object) -> bool:
        """Replace an object by a newer form of itself; False if it has been changed by others meanwhile, or is gone."""
        kind, metadata = _RESOURCES[wanted["kind"]], wanted["metadata"]
        try:
            await self._client.replace(kind(wanted), metadata["name"], namespace=metadata["namespace"])
        except ApiError as error:
            if error.status.code in (_CONFLICT, _NOT_FOUND):
                return False
            raise
        return True

    async def delete(self, kind: str, name: str, namespace: str) -> bool:
        """Ask for an object's end; False if there is none."""
        try:
            await self._client.delete(_RESOURCES[kind], name, namespace=namespace, cascade=CascadeType.BACKGROUND)
        except ApiError as error:
            if error.status.code == _NOT_FOUND:
                return False
            raise
        return True

    async def patch(self, kind: str, name: str, namespace: str, change: Object, subresource: str = "") -> None:
        """Merge a change into an object; nothing happens if there is none.

        Args:
            kind: of the object.
            name: of the object.
            namespace: of the object.
            change: a JSON merge patch.
            subresource: ``status`` or ``scale``; "" for the object itself.
        """
        resource = _RESOURCES[kind]
        try:
            await self._client.patch(
                resource.Status if subresource == "status" else resource.Scale if subresource == "scale" else resource,
                name,
                change,
                namespace=namespace,
                patch_type=PatchType.MERGE,
            )
        except ApiError as error:
            if error.status.code != _NOT_FOUND:
                raise

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

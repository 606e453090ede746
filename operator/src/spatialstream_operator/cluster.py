"""A thin asynchronous client of the Kubernetes API. Objects are plain dicts, as in their manifests.

Only this module uses the client library. Its calls block, so they run in a thread pool, never on the event loop. When a
caller is cancelled, its request still runs to completion; :meth:`Cluster.close` waits for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Container, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import OpenApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError

__all__ = ["MANAGER", "ApiError", "Cluster", "ClusterError", "Object"]

Object = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

MANAGER = "spatialstream-operator"
"""Field manager of the fields that the operator applies."""

_THREADS = 32
"""Maximum number of concurrent requests; others are queued."""
_TIMEOUT = 10.0
"""Timeout in seconds: for connecting, for the first byte of a response, and between two reads."""
_PAGE = 500
"""Maximum number of objects per page of a list."""

_JSON, _MERGE, _APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

_RESOURCES: Mapping[str, tuple[str, str]] = {
    "Namespace": ("api/v1", "namespaces"),
    "Pod": ("api/v1", "pods"),
    "Service": ("api/v1", "services"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Event": ("apis/events.k8s.io/v1", "events"),
    "Lease": ("apis/coordination.k8s.io/v1", "leases"),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "PodMonitor": ("apis/monitoring.coreos.com/v1", "podmonitors"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "SpatialStream": ("apis/spatialstream.dev/v1alpha1", "spatialstreams"),
    "SpatialQuery": ("apis/spatialstream.dev/v1alpha1", "spatialqueries"),
    "SpatialArea": ("apis/spatialstream.dev/v1alpha1", "spatialareas"),
}
"""By kind: the API path of its group and version, and its plural name. Static, so no discovery requests are needed."""


class ClusterError(Exception):
    """A request failed: there was no response, or one that did not come from the API itself.

    Args:
        message: what happened, on one line that is the same each time it happens.
        code: the HTTP status of the response; 0 if there was none.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class ApiError(ClusterError):
    """The API server rejected a request; the message is the server's own.

    For a path that it does not serve at all (after a custom resource definition was removed, or while it starts) the
    server returns a bare 404 without a ``Status``. That is not an :class:`ApiError`, because it does not mean that the
    object does not exist.
    """

    @property
    def is_forbidden(self) -> bool:
        """Whether a permission is missing."""
        return self.code == HTTPStatus.FORBIDDEN

    @property
    def is_refusal(self) -> bool:
        """Whether the same request would be rejected again: it is invalid, or forbidden."""
        return self.code in (400, 403, 413, 422)

    @property
    def is_hindered(self) -> bool:
        """Whether an object cannot be created for now: it is rejected, or admission cannot be decided.

        The API server returns 500 if an admission webhook does not respond, or responds with something invalid.
        """
        return self.is_refusal or self.code == HTTPStatus.INTERNAL_SERVER_ERROR


class Cluster:
    """A client of one cluster, using the credentials of its own pod, or else the user's kubeconfig.

    Every method raises :class:`ClusterError` if there is no response, and its subclass :class:`ApiError` if the API
    server rejects the request.

    Args:
        threads: maximum number of concurrent requests, each on its own connection.
        timeout: in seconds: for connecting, for the first byte of a response, and between two reads.
    """

    def __init__(self, threads: int = _THREADS, timeout: float = _TIMEOUT) -> None:
        configuration = Configuration()
        try:
            load_incluster_config(configuration)
        except ConfigException:
            load_kube_config(client_configuration=configuration)
        configuration.connection_pool_maxsize = threads
        configuration.retries = False  # a failed reconciliation is retried as a whole
        self._client = ApiClient(configuration)
        self._client.user_agent = MANAGER
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kubernetes")
        self._timeout = timeout

    async def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """An object; None if it does not exist."""
        return await _unless({HTTPStatus.NOT_FOUND}, self._ask("GET", _path(kind, namespace, name)))

    async def labels(self, kind: str, name: str, namespace: str) -> Mapping[str, str] | None:
        """An object's labels, without the rest of it being sent; None if there is no such object."""
        asked = self._ask("GET", _path(kind, namespace, name), accept=_METADATA)
        found = await _unless({HTTPStatus.NOT_FOUND}, asked)
        return None if found is None else found["metadata"].get("labels") or {}

    async def is_terminating(self, namespace: str) -> bool:
        """Whether a namespace is being deleted or gone; False if the operator may not read namespaces."""
        try:
            answer = await self._ask("GET", _path("Namespace", None, namespace))
        except ApiError as error:
            if error.code in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                return error.code == HTTPStatus.NOT_FOUND
            raise
        return bool(answer["metadata"].get("deletionTimestamp"))

    async def list(
        self,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> list[Object]:
        """Objects of a namespace (None: of all namespaces) that match these labels and fields."""
        path = _path(kind, namespace)
        selected = {"labelSelector": _selector(labels), "fieldSelector": _selector(fields)}
        try:
            return [each async for each in self._pages(path, {**selected, "limit": str(_PAGE)})]
        except ApiError as error:
            if error.code != HTTPStatus.GONE:
                raise
            return [each async for each in self._pages(path, selected)]  # the continue token has expired

    async def verbs(self, kind: str) -> frozenset[str]:
        """The verbs that a kind outside the core group supports, by API discovery.

        Discovery lags behind: controllers of the API server update it. For a moment after a custom resource definition
        was created its objects can be listed although discovery shows no verbs; while the definition is being deleted
        objects can still be patched although discovery denies it.
        """
        version, plural = _RESOURCES[kind]
        groups = (await self._ask("GET", "/apis"))["groups"]
        if not any(version == f"apis/{each['groupVersion']}" for group in groups for each in group["versions"]):
            return frozenset()
        try:
            resources = (await self._ask("GET", f"/{version}"))["resources"]
        except ClusterError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return frozenset()
        return frozenset(verb for each in resources if each["name"] == plural for verb in each["verbs"])

    async def apply(self, wanted: Object) -> None:
        """Create or update an object by server-side apply; fields that others own are kept."""
        owned = {"fieldManager": MANAGER, "force": "true"}
        await self._ask("PATCH", _path_of(wanted), wanted, _APPLY, owned)

    async def create(self, wanted: Object, trial: bool = False) -> bool:
        """Create an object; False if one with this name exists.

        Args:
            wanted: the object.
            trial: dry run: only check whether the object would be admitted.
        """
        query = {"fieldManager": MANAGER, **({"dryRun": "All"} if trial else {})}
        made = self._ask("POST", _home_of(wanted), wanted, query=query)
        return await _unless({HTTPStatus.CONFLICT}, made) is not None

    async def check(self, wanted: Object) -> None:
        """Validate an object by a dry-run creation that rejects unknown fields."""
        strictly = {"fieldManager": MANAGER, "dryRun": "All", "fieldValidation": "Strict"}
        await self._ask("POST", _home_of(wanted), wanted, query=strictly)

    async def replace(self, wanted: Object) -> bool:
        """Replace an object; False if it was changed concurrently, or is gone."""
        done = self._ask("PUT", _path_of(wanted), wanted, query={"fieldManager": MANAGER})
        return await _unless({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}, done) is not None

    async def delete(self, kind: str, name: str, namespace: str) -> bool:
        """Delete an object in the background; False if it does not exist."""
        done = self._ask("DELETE", _path(kind, namespace, name), query={"propagationPolicy": "Background"})
        return await _unless({HTTPStatus.NOT_FOUND}, done) is not None

    async def force_delete(self, pod: Object) -> bool:
        """Delete a pod without waiting for its node; False if it is gone, or another pod has its name."""
        metadata = pod["metadata"]
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
        done = self._ask("DELETE", _path("Pod", metadata["namespace"], metadata["name"]), body)
        return await _unless({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}, done) is not None

    async def release(self, record: Object, finalizer: str) -> None:
        """Remove a finalizer from an object, unless it was changed concurrently, or is gone."""
        metadata = record["metadata"]
        kept = [each for each in metadata.get("finalizers", []) if each != finalizer]
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept}}
        done = self._ask("PATCH", _path_of(record), change, _MERGE, {"fieldManager": MANAGER})
        await _unless({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}, done)

    async def patch_status(self, kind: str, name: str, namespace: str, change: Object) -> None:
        """Apply a JSON merge patch to an object's status; does nothing if the object does not exist."""
        path, body = _path(kind, namespace, name, "status"), {"status": change}
        await _unless({HTTPStatus.NOT_FOUND}, self._ask("PATCH", path, body, _MERGE, {"fieldManager": MANAGER}))

    async def close(self) -> None:
        """Wait for requests in flight, then close the connections."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._client.close()

    async def _pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """The objects of a list, page by page."""
        token: str | None = ""
        while token is not None:
            page = await self._ask("GET", path, query={**query, "continue": token})
            for each in page["items"]:
                yield each
            token = page["metadata"].get("continue") or None

    async def _ask(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        form: str = _JSON,
        query: Mapping[str, str] = {},
        accept: str = _JSON,
    ) -> Object:
        headers = {"Accept": accept, "Content-Type": form}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, method, path, body, headers, query)

    def _send(
        self, method: str, path: str, body: Object | None, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> Object:
        """Send a request and wait for the response (blocking)."""
        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=[(name, value) for name, value in query.items() if value],
                header_params=dict(headers),
                body=body,
                auth_settings=["BearerToken"],
            )
            if not all(value.isascii() and value.isprintable() for value in request[2].values()):
                # otherwise the library would raise an error that contains the token
                raise ClusterError("cannot query the API server: the token is not one line of printable ASCII")
            answer = self._client.call_api(*request, _request_timeout=self._timeout)
            content = answer.read()
        except (HTTPError, OpenApiException, ConfigException, OSError) as error:
            raise ClusterError(f"cannot query the API server: {self._cause(error)}") from error
        return _understood(answer.status, content)

    def _cause(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
            return f"no response within {self._timeout:g} s"
        return " ".join(str(getattr(error, "reason", None) or error).split())


def _understood(status: int, content: bytes) -> Object:
    """The object in a response.

    Raises:
        ApiError: the API server rejected the request.
        ClusterError: the response is neither an object nor a ``Status``.
    """
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        if 200 <= status < 300:
            return answer
        if answer.get("kind") == "Status":
            raise ApiError(str(answer.get("message", "")), status)
    said = content[:200].decode(errors="replace").strip()
    raise ClusterError(f"the API server returned {status}: {said}", status)


async def _unless(refusals: Container[int], answer: Awaitable[Object]) -> Object | None:
    """The response; None if it is an error with one of these codes."""
    try:
        return await answer
    except ApiError as error:
        if error.code in refusals:
            return None
        raise


def _path(kind: str, namespace: str | None, *rest: str) -> str:
    """The path of the objects of a kind in a namespace (None: in all), or, with more parts, of one object."""
    version, plural = _RESOURCES[kind]
    place = [] if namespace is None else ["namespaces", namespace]
    return "/".join(["", version, *(quote(part, safe="") for part in (*place, plural, *rest))])


def _home_of(wanted: Object) -> str:
    return _path(wanted["kind"], wanted["metadata"]["namespace"])


def _path_of(wanted: Object) -> str:
    return _path(wanted["kind"], wanted["metadata"]["namespace"], wanted["metadata"]["name"])


def _selector(values: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in (values or {}).items())

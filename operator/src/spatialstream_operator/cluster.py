"""The Kubernetes API, in the few ways in which the operator uses it. Objects are plain dicts, as in their manifests.

This module alone knows the client library, whose calls block: they run in threads of their own, never on the event
loop. A caller that is cancelled leaves its request to end by itself, which :meth:`Cluster.close` waits for.
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
"""A Kubernetes object as JSON has it."""

MANAGER = "spatialstream-operator"
"""Under this name the operator owns fields that it applies."""

_THREADS = 32
"""Requests at a time; the others wait for their turn."""
_TIMEOUT = 10.0
"""Seconds for a connection and the beginning of an answer, and between two parts of one."""
_PAGE = 500
"""Objects in one answer to a list."""

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
}
"""By kind: where its group and version are, and its name in paths. Nothing has to be asked for what is known."""


class ClusterError(Exception):
    """What was asked for has not been given: there is no answer, or not one of the API's own.

    Args:
        message: what has happened, in a line that is the same each time it happens.
        code: the HTTP status of the answer; 0 if there is none.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class ApiError(ClusterError):
    """The API server has refused a request, and the message is its own sentence.

    Where it does not know a path at all, as after the removal of a custom resource, or while it starts, it says 404
    without one. That is no :class:`ApiError`, for it does not say that there is no such object.
    """

    @property
    def is_forbidden(self) -> bool:
        """Whether a right is missing."""
        return self.code == HTTPStatus.FORBIDDEN

    @property
    def is_refusal(self) -> bool:
        """Whether the same request would be refused again: it is wrong, or forbidden."""
        return self.code in (400, 403, 413, 422)

    @property
    def is_hindered(self) -> bool:
        """Whether an object cannot be made for now: it is refused, or nobody can say whether to admit it.

        The API server answers with 500 if an admission webhook does not answer, or answers what it does not understand.
        """
        return self.is_refusal or self.code == HTTPStatus.INTERNAL_SERVER_ERROR


class Cluster:
    """A client of one cluster, with the credentials of the pod it runs in, or of the user's kubeconfig.

    Every method raises :class:`ClusterError` if there is no answer, and :class:`ApiError`, which is one, if the answer
    is a refusal.

    Args:
        threads: how many requests there may be at a time, each on a connection of its own.
        timeout: seconds for a connection and the beginning of an answer, and between two parts of one.
    """

    def __init__(self, threads: int = _THREADS, timeout: float = _TIMEOUT) -> None:
        configuration = Configuration()
        try:
            load_incluster_config(configuration)
        except ConfigException:
            load_kube_config(client_configuration=configuration)
        configuration.connection_pool_maxsize = threads
        configuration.retries = False  # a look that has failed is repeated as a whole
        self._client = ApiClient(configuration)
        self._client.user_agent = MANAGER
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kubernetes")
        self._timeout = timeout

    async def get(self, kind: str, name: str, namespace: str) -> Object | None:
        """An object; None if there is none."""
        return await _unless({HTTPStatus.NOT_FOUND}, self._ask("GET", _path(kind, namespace, name)))

    async def labels(self, kind: str, name: str, namespace: str) -> Mapping[str, str] | None:
        """An object's labels, without the rest of it being sent; None if there is no such object."""
        asked = self._ask("GET", _path(kind, namespace, name), accept=_METADATA)
        found = await _unless({HTTPStatus.NOT_FOUND}, asked)
        return None if found is None else found["metadata"].get("labels") or {}

    async def is_terminating(self, namespace: str) -> bool:
        """Whether a namespace is on its way out, as far as the operator may know."""
        try:
            found = await self._ask("GET", _path("Namespace", None, namespace))
        except ApiError as error:
            if error.code in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                return error.code == HTTPStatus.NOT_FOUND
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
        path = _path(kind, namespace)
        selected = {"labelSelector": _selector(labels), "fieldSelector": _selector(fields)}
        try:
            return [each async for each in self._pages(path, {**selected, "limit": str(_PAGE)})]
        except ApiError as error:
            if error.code != HTTPStatus.GONE:
                raise
            return [each async for each in self._pages(path, selected)]  # the first page is too old to go on from

    async def verbs(self, kind: str) -> frozenset[str]:
        """What may be done with a kind that is no core one, as the API server tells those who ask what there is.

        What it tells is written down by controllers of its own. For some moments after a custom resource has come, its
        objects can be listed, and it tells of no verbs. While it goes, objects can be patched, and it says they cannot.
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
        """Create an object or make it as it is wanted; fields that others own stay."""
        owned = {"fieldManager": MANAGER, "force": "true"}
        await self._ask("PATCH", _path_of(wanted), wanted, _APPLY, owned)

    async def create(self, wanted: Object, trial: bool = False) -> bool:
        """Create an object; False if there is one of this name.

        Args:
            wanted: the object.
            trial: whether only to see if it would be admitted; nothing is made then.
        """
        query = {"fieldManager": MANAGER, **({"dryRun": "All"} if trial else {})}
        made = self._ask("POST", _home_of(wanted), wanted, query=query)
        return await _unless({HTTPStatus.CONFLICT}, made) is not None

    async def check(self, wanted: Object) -> None:
        """Have an object looked at as if it were to be created, with every field known; nothing is made."""
        strictly = {"fieldManager": MANAGER, "dryRun": "All", "fieldValidation": "Strict"}
        await self._ask("POST", _home_of(wanted), wanted, query=strictly)

    async def replace(self, wanted: Object) -> bool:
        """Replace an object by a newer form of itself; False if it has been changed by others meanwhile, or is gone."""
        done = self._ask("PUT", _path_of(wanted), wanted, query={"fieldManager": MANAGER})
        return await _unless({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}, done) is not None

    async def delete(self, kind: str, name: str, namespace: str) -> bool:
        """Ask for an object's end; False if there is none."""
        done = self._ask("DELETE", _path(kind, namespace, name), query={"propagationPolicy": "Background"})
        return await _unless({HTTPStatus.NOT_FOUND}, done) is not None

    async def strike(self, pod: Object) -> bool:
        """Take a pod off the list, whatever its node may say; False if it is gone, or another one has its name."""
        metadata = pod["metadata"]
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background", "preconditions": {"uid": metadata["uid"]}}
        done = self._ask("DELETE", _path("Pod", metadata["namespace"], metadata["name"]), body)
        return await _unless({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}, done) is not None

    async def release(self, record: Object, finalizer: str) -> None:
        """Take a finalizer off an object, unless it has been changed by others meanwhile, or is gone."""
        metadata = record["metadata"]
        kept = [each for each in metadata.get("finalizers", []) if each != finalizer]
        change = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": kept}}
        done = self._ask("PATCH", _path_of(record), change, _MERGE, {"fieldManager": MANAGER})
        await _unless({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}, done)

    async def patch_status(self, kind: str, name: str, namespace: str, change: Object) -> None:
        """Merge a change, as in a JSON merge patch, into an object's status; nothing happens if there is no object."""
        path, body = _path(kind, namespace, name, "status"), {"status": change}
        await _unless({HTTPStatus.NOT_FOUND}, self._ask("PATCH", path, body, _MERGE, {"fieldManager": MANAGER}))

    async def close(self) -> None:
        """Wait until no request is under way any more, and let go of connections."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._client.close()

    async def _pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        """The objects of a list, page by page."""
        rest: str | None = ""
        while rest is not None:
            page = await self._ask("GET", path, query={**query, "continue": rest})
            for each in page["items"]:
                yield each
            rest = page["metadata"].get("continue") or None

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
        """Send a request and wait for its answer: this blocks."""
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
                # else the library refuses it with an error that shows it
                raise ClusterError("the API server cannot be asked: the token is not one line of plain text")
            answer = self._client.call_api(*request, _request_timeout=self._timeout)
            content = answer.read()
        except (HTTPError, OpenApiException, ConfigException, OSError) as error:
            raise ClusterError(f"the API server cannot be asked: {self._cause(error)}") from error
        return _understood(answer.status, content)

    def _cause(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
            return f"no answer within {self._timeout:g} s"
        return " ".join(str(getattr(error, "reason", None) or error).split())


def _understood(status: int, content: bytes) -> Object:
    """The object that is the answer.

    Raises:
        ApiError: it is a refusal, as the API puts it.
        ClusterError: it is something else.
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
    raise ClusterError(f"the API server answers with {status}: {said}", status)


async def _unless(refusals: Container[int], answer: Awaitable[Object]) -> Object | None:
    """An answer; None if it is one of these refusals."""
    try:
        return await answer
    except ApiError as error:
        if error.code in refusals:
            return None
        raise


def _path(kind: str, namespace: str | None, *rest: str) -> str:
    """Where the objects of a kind are (None: those of all namespaces), or, with its name, one of them."""
    version, plural = _RESOURCES[kind]
    place = [] if namespace is None else ["namespaces", namespace]
    return "/".join(["", version, *(quote(part, safe="") for part in (*place, plural, *rest))])


def _home_of(wanted: Object) -> str:
    return _path(wanted["kind"], wanted["metadata"]["namespace"])


def _path_of(wanted: Object) -> str:
    return _path(wanted["kind"], wanted["metadata"]["namespace"], wanted["metadata"]["name"])


def _selector(values: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in (values or {}).items())

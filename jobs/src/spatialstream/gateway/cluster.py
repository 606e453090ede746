"""Client of a Kubernetes API server, for lists, secrets and reviews.

Only this module uses the client library, and it is loaded only if a cluster's streams are served. The library's calls
block, so they run in threads of their own. Resources are addressed by path; the generated interfaces are not needed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import OpenApiException
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config
from urllib3.exceptions import HTTPError

from spatialstream.gateway.api_server import Refused
from spatialstream.model.errors import SettingError, Unavailable

__all__ = ["Cluster"]

_TIMEOUT = 10.0
"""Timeout in seconds of a connection, and of the beginning of an answer."""
_THREADS = 8
_JSON = "application/json"


class Cluster:
    """A client with the credentials of this pod, or else of the user's kubeconfig.

    Args:
        configuration: another way to reach the API server.

    Raises:
        SettingError: this is not a pod with a service account, and there is no kubeconfig.
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        configuration = _found() if configuration is None else configuration
        configuration.connection_pool_maxsize = _THREADS
        configuration.retries = False
        self._client = ApiClient(configuration)
        self._client.user_agent = "spatialstream-gateway"
        self._threads = ThreadPoolExecutor(_THREADS, "cluster")

    async def get(self, path: str) -> dict[str, Any]:
        """Read the resource at a path.

        Raises:
            Refused: the server refuses the request.
            Unavailable: it does not answer.
        """
        return await self._asked("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post an object, and return the server's answer; errors as in :meth:`get`."""
        return await self._asked("POST", path, body)

    def close(self) -> None:
        """Close the client."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": _JSON, "Content-Type": _JSON}
        try:
            request = self._client.param_serialize(
                method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            if not all(value.isascii() and value.isprintable() for value in request[2].values()):
                # otherwise the library would raise an error that shows the token
                problem = "cannot send the token to the cluster's API server: it is not one line of plain text"
                raise Unavailable(problem)
            answer = self._client.call_api(*request, _request_timeout=_TIMEOUT)
            status, content = answer.status, answer.read()
        except (HTTPError, OpenApiException, ConfigException, OSError) as error:
            cause = " ".join(str(getattr(error, "reason", None) or error).split())
            raise Unavailable(f"the cluster's API server does not answer: {cause}") from None
        try:
            found: dict[str, Any] = json.loads(content)
            if 200 <= status < 300:
                return found
            raise Refused(str(found["message"]), status)
        except (ValueError, KeyError, TypeError):
            raise Unavailable(f"the cluster's API server answers with {status}") from None


def _found() -> Configuration:
    configuration = Configuration()
    try:
        load_incluster_config(configuration)
    except ConfigException:
        try:
            load_kube_config(client_configuration=configuration)
        except ConfigException as error:
            problem = f"requires a pod with a service account token, or a kubeconfig; neither was found: {error}"
            raise SettingError("namespaces", problem) from None
    return configuration

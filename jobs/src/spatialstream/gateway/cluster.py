"""The API server of the Kubernetes cluster that the gateway runs in: a few plain requests, as the pod's own account.

They are so few that a client library would be the larger part. A request has ten seconds, and a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from spatialstream.model.errors import SettingError, Unavailable

__all__ = ["ACCOUNT", "Cluster", "Refused"]

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token of its account, which is renewed there, and what the API server is known by."""

_TIMEOUT = 10.0
_THREADS = 8


class Refused(Unavailable):
    """The API server has answered that it will not.

    Args:
        message: the server's own.
        code: the HTTP status.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Cluster:
    """The API server.

    Args:
        url: of the server.
        token: gives the token of who asks.
        trust: the certificates that are believed.
    """

    def __init__(self, url: str, token: Callable[[], str], trust: ssl.SSLContext) -> None:
        self._url, self._token = url, token
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        self._threads = ThreadPoolExecutor(_THREADS, "cluster")

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Cluster:
        """The cluster that this process runs in.

        Raises:
            SettingError: it runs in none, or its pod has no token.
        """
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        try:
            trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
            (account / "token").read_text()
        except OSError as error:
            host, told = "", f": {account} cannot be read ({error.strerror or error})"
        else:
            told = "; KUBERNETES_SERVICE_HOST is not set"
        if not host:
            raise SettingError("kubernetes", f"this is no pod of a cluster with a token of its account{told}")
        name = f"[{host}]" if ":" in host else host
        return cls(f"https://{name}:{port}", lambda: (account / "token").read_text().strip(), trust)

    async def get(self, path: str) -> dict[str, Any]:
        """What is at a path.

        Raises:
            Refused: the server does not give it.
            Unavailable: it does not answer.
        """
        return await self._asked("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What the server makes of an object; errors as in :meth:`get`."""
        return await self._asked("POST", path, json.dumps(body).encode())

    def close(self) -> None:
        """Ask nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _asked(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        try:
            headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
            request = urllib.request.Request(f"{self._url}{path}", body, headers, method=method)
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(_message(error), error.code) from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"the cluster's API server does not answer: {error}") from None


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"the cluster's API server answers with {error.code}"

"""The API server's HTTP interface, as plainly as it can be had: independent of the client that the operator uses."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from spatialstream.servers.process import await_condition

__all__ = ["GROUP", "Api", "RefusalError", "eventually", "path_of"]

GROUP = "/apis/spatialstream.dev/v1alpha1"
_TIMEOUT = 30.0
PATIENCE = 120.0
"""Seconds within which comes what comes at all, on a slow machine that does much else."""

_PLURALS = {
    "networkpolicy": "networkpolicies",
    "endpoints": "endpoints",
    "spatialquery": "spatialqueries",
    "spatialarea": "spatialareas",
    "validatingadmissionpolicy": "validatingadmissionpolicies",
}


class RefusalError(Exception):
    """The server has refused a request; the text is its own message.

    Args:
        code: the HTTP status.
        message: what the server says.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Api:
    """A client.

    Args:
        url: of the server.
        token: who asks; "" for nobody.
        trust: for https.
    """

    def __init__(self, url: str, token: str = "", trust: ssl.SSLContext | None = None) -> None:
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if trust is not None:
            handlers.append(urllib.request.HTTPSHandler(context=trust))
        self._opener = urllib.request.build_opener(*handlers)
        self._url, self._token = url, token
        self.warnings: list[str] = []
        """What the server has warned of, in all answers so far."""

    def request(
        self, method: str, path: str, body: object = None, kind: str = "application/json", accept: str = "*/*"
    ) -> bytes:
        """Ask, and get the answer's body.

        Raises:
            RefusalError: the server has refused.
            OSError: there is no answer.
        """
        headers = {"Accept": accept, "Content-Type": kind}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                self.warnings += answer.headers.get_all("Warning") or []
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise RefusalError(error.code, _message(said)) from None

    def text(self, path: str) -> str:
        """What is at a path, as text."""
        return self.request("GET", path).decode()

    def get(self, path: str, accept: str = "application/json") -> Any:
        """What is at a path."""
        return json.loads(self.request("GET", path, accept=accept))

    def find(self, path: str) -> Any:
        """What is at a path; None if there is nothing."""
        try:
            return self.get(path)
        except RefusalError as refusal:
            if refusal.code == 404:
                return None
            raise

    def list(self, path: str, **labels: str) -> list[dict[str, Any]]:
        """The objects of a collection that have these labels."""
        selector = urllib.parse.quote(",".join(f"{key}={value}" for key, value in labels.items()))
        found: list[dict[str, Any]] = self.get(f"{path}?labelSelector={selector}")["items"]
        return found

    def post(self, path: str, body: object) -> Any:
        """Make something in a collection."""
        return json.loads(self.request("POST", path, body))

    def patch(self, path: str, change: object) -> Any:
        """Merge a change into an object."""
        return json.loads(self.request("PATCH", path, change, "application/merge-patch+json"))

    def delete(self, path: str, **options: object) -> Any:
        """Delete an object."""
        return json.loads(self.request("DELETE", path, options or None))

    def vanish(self, path: str) -> None:
        """An object is gone at once, whoever has a finalizer on it: an operator that ends next would leave it there."""
        try:
            self.delete(path)
            self.patch(path, {"metadata": {"finalizers": None}})
        except RefusalError as refusal:
            if refusal.code != 404:  # it, or an operator, has been faster
                raise

    def apply(self, wanted: Mapping[str, Any], query: str = "") -> Any:
        """Apply an object on the server's side, as the manager ``tests``; every field has to be known there."""
        path = f"{path_of(wanted)}?fieldManager=tests&force=true&fieldValidation=Strict{query}"
        return json.loads(self.request("PATCH", path, wanted, "application/apply-patch+yaml"))


def _message(said: str) -> str:
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return said


def path_of(thing: Mapping[str, Any]) -> str:
    """Where an object is on the server; its plural is the usual one."""
    version, kind, metadata = thing["apiVersion"], thing["kind"].lower(), thing["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if "namespace" in metadata:
        base += f"/namespaces/{metadata['namespace']}"
    plural = _PLURALS.get(kind) or (f"{kind}es" if kind.endswith("s") else f"{kind}s")
    return f"{base}/{plural}/{metadata['name']}"


def eventually(
    condition: Callable[[], Any], what: str, within: float = PATIENCE, now: Callable[[], Any] = lambda: ""
) -> Any:
    """Wait until a condition holds, and return what it gives.

    Args:
        condition: gives something true when it holds.
        what: it stands for, for the message.
        within: seconds.
        now: gives what there is instead, for the message.

    Raises:
        AssertionError: it does not come to hold in time.
    """
    found: list[Any] = []

    def holds() -> bool:
        found.append(condition())
        del found[:-1]
        return bool(found[0])

    if not await_condition(holds, within):
        raise AssertionError(f"not within {within:g} s: {what}; there is {found[0]!r}; {now()}")
    return found[0]

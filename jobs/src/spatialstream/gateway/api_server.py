"""The API server of Kubernetes, as far as the gateway uses it; :mod:`spatialstream.gateway.cluster` is its client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from spatialstream.model.errors import Unavailable

__all__ = ["ApiServer", "Refused"]


class Refused(Unavailable):
    """The API server has refused a request.

    Args:
        message: the server's message.
        code: the HTTP status.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class ApiServer(Protocol):
    """Reads resources, and posts reviews."""

    async def get(self, path: str) -> dict[str, Any]:
        """Read the resource at a path.

        Raises:
            Refused: the server refuses the request.
            Unavailable: it does not answer.
        """
        ...

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Post an object, and return the server's answer; errors as in :meth:`get`."""
        ...

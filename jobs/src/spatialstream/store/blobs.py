"""Blobs of any size in ZooKeeper, whose nodes hold at most 1 MB: pieces as children of one node.

The pieces of a blob carry a token that is unique to it, so writers never disturb each other, and a blob exists only
once something holds its *head*, which names the token and the checksum of the pieces. They are compressed. All pieces
are read and written concurrently.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Collection, Iterable
from typing import Any

import pyarrow as pa
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from spatialstream.model.errors import StateError
from spatialstream.store.connection import Wait

__all__ = ["PIECE", "Blob", "delete", "delete_pieces", "read_blob", "token_of", "tokens"]

PIECE = 900_000
"""Maximum bytes of a piece: with its envelope it stays below ZooKeeper's limit of 1 MiB per request."""


class Blob:
    """A blob to be written to the store.

    Args:
        client: the connection.
        folder: the parent node of the pieces; created if it is missing.
        parts: the content, one part after the other.

    Attributes:
        token: distinguishes the blob from others below the node.
        head: JSON; the argument of :func:`read_blob`.
    """

    def __init__(self, client: KazooClient, folder: str, parts: Iterable[bytes | memoryview]) -> None:
        plain = b"".join(parts)
        packed = pa.Codec("zstd").compress(plain, asbytes=True)
        self._client, self._folder = client, folder
        self._pieces = [packed[at : at + PIECE] for at in range(0, len(packed), PIECE)]
        self.token = uuid.uuid4().hex
        head = {"token": self.token, "pieces": len(self._pieces), "size": len(plain), "checksum": _checksum(packed)}
        self.head = json.dumps(head).encode()

    def write(self, wait: Wait) -> None:
        """Write the pieces, which have no effect yet. May be repeated."""
        client = self._client
        wait(client.ensure_path_async(self._folder))
        paths = [_path(self._folder, self.token, i) for i in range(len(self._pieces))]
        for result in [client.create_async(path, piece) for path, piece in zip(paths, self._pieces, strict=True)]:
            with contextlib.suppress(NodeExistsError):
                wait(result)

    def discard(self, wait: Wait) -> None:
        """Delete the pieces."""
        delete_pieces(self._client, wait, self._folder, [self.token])


def read_blob(client: KazooClient, wait: Wait, folder: str, head: bytes) -> pa.Buffer:
    """The content of a blob, in memory of its own.

    Raises:
        NoNodeError: a piece is missing.
        StateError: a piece is damaged.
        ValueError, TypeError, KeyError: the head is invalid.
    """
    description = json.loads(head)
    results = [client.get_async(_path(folder, description["token"], i)) for i in range(description["pieces"])]
    packed = b"".join([wait(result)[0] for result in results])
    if _checksum(packed) != description["checksum"]:
        raise StateError("a blob of the routing store is damaged: its pieces do not match its checksum")
    return pa.py_buffer(bytearray(pa.Codec("zstd").decompress(packed, description["size"], asbytes=True)))


def token_of(head: bytes) -> str:
    """The token of the blob with this head; errors as :func:`read_blob`."""
    return str(json.loads(head)["token"])


def tokens(client: KazooClient, wait: Wait, folder: str) -> dict[str, list[str]]:
    """The blobs below a node: token -> paths of pieces."""
    result: dict[str, list[str]] = {}
    with contextlib.suppress(NoNodeError):
        for name in wait(client.get_children_async(folder)):
            result.setdefault(name.partition(".")[0], []).append(f"{folder}/{name}")
    return result


def delete_pieces(client: KazooClient, wait: Wait, folder: str, which: Collection[str]) -> None:
    """Delete the blobs with these tokens."""
    found = tokens(client, wait, folder)
    for result in [client.delete_async(path) for token in which for path in found.get(token, ())]:
        _ignoring_absence(wait, result)


def delete(client: KazooClient, wait: Wait, path: str) -> None:
    """Delete a node and all below it."""
    with contextlib.suppress(NoNodeError):
        for name in wait(client.get_children_async(path)):
            delete(client, wait, f"{path}/{name}")
    _ignoring_absence(wait, client.delete_async(path))


def _ignoring_absence(wait: Wait, result: Any) -> None:
    with contextlib.suppress(NoNodeError):
        wait(result)


def _path(folder: str, token: str, piece: int) -> str:
    return f"{folder}/{token}.{piece:04d}"


def _checksum(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()

"""Blocks of any size in ZooKeeper, whose nodes hold at most 1 MB: pieces as children of one node.

The pieces of a block carry a token that is drawn anew for each, so writers never disturb each other, and a block is
there only when something names its token. Reading and writing ask for all pieces at once.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError

from spatialstream.store.codec import Seal, pieces
from spatialstream.store.connection import Wait

__all__ = ["delete", "delete_pieces", "new_token", "read_pieces", "tokens", "write_pieces"]


def new_token() -> str:
    """A name for a block that no other has."""
    return uuid.uuid4().hex


def write_pieces(client: KazooClient, wait: Wait, folder: str, token: str, packed: bytes) -> None:
    """Write a block below a node, which is made if it is missing. To do it again does no harm."""
    wait(client.ensure_path_async(folder))
    for result in [client.create_async(_path(folder, token, i), part) for i, part in enumerate(pieces(packed))]:
        with contextlib.suppress(NodeExistsError):
            wait(result)


def read_pieces(client: KazooClient, wait: Wait, folder: str, token: str, seal: Seal) -> list[bytes]:
    """The pieces of a block.

    Raises:
        NoNodeError: one is not there.
    """
    results = [client.get_async(_path(folder, token, i)) for i in range(seal.pieces)]
    return [wait(result)[0] for result in results]


def tokens(client: KazooClient, wait: Wait, folder: str) -> dict[str, list[str]]:
    """The blocks below a node: token -> paths of pieces."""
    result: dict[str, list[str]] = {}
    with contextlib.suppress(NoNodeError):
        for name in wait(client.get_children_async(folder)):
            result.setdefault(name.partition(".")[0], []).append(f"{folder}/{name}")
    return result


def delete_pieces(client: KazooClient, wait: Wait, folder: str, which: Collection[str]) -> None:
    """Delete the blocks with these tokens."""
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

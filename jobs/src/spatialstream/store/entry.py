"""The nodes of one version: blocks that are written ahead, and the meta by which a transaction makes them a version."""

from __future__ import annotations

import contextlib
import json

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import NoNodeError

from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError
from spatialstream.store import blocks, codec
from spatialstream.store.codec import Seal
from spatialstream.store.connection import Wait

__all__ = ["Entry", "discard_others", "read_version"]

_PARTS = ("tree", "mapping")


class Entry:
    """A version on its way into the store.

    Args:
        client: the connection.
        folder: the node of the version's number.
        version: the version.
    """

    def __init__(self, client: KazooClient, folder: str, version: RoutingVersion) -> None:
        parts, meta = codec.pack_version(version)
        self._client = client
        self._folder = folder
        self._token = blocks.new_token()
        packed = {name: codec.pack(arrays) for name, arrays in parts.items()}
        self._packed = {name: data for name, (data, _) in packed.items()}
        seals = {name: seal.to_record() for name, (_, seal) in packed.items()}
        self._meta = json.dumps({"token": self._token, "parts": seals, "version": meta}).encode()

    def write(self, wait: Wait) -> None:
        """Write the blocks, which are nothing yet. To do it again does no harm."""
        for name, packed in self._packed.items():
            blocks.write_pieces(self._client, wait, f"{self._folder}/{name}", self._token, packed)

    def name(self, transaction: TransactionRequest) -> None:
        """Make them a version, as part of a transaction."""
        transaction.create(f"{self._folder}/meta", self._meta)

    def discard(self, wait: Wait) -> None:
        """Delete the blocks."""
        for name in self._packed:
            blocks.delete_pieces(self._client, wait, f"{self._folder}/{name}", [self._token])


def read_version(client: KazooClient, wait: Wait, folder: str) -> RoutingVersion:
    """The version that an :class:`Entry` has become.

    Raises:
        StateError: there is none, or it is damaged.
    """
    number = folder.rpartition("/")[2]
    try:
        data, _ = wait(client.get_async(f"{folder}/meta"))
        parts = {}
        with codec.damage(f"version {number}"):
            meta = json.loads(data)
            for name in _PARTS:
                seal = Seal(**meta["parts"][name])
                found = blocks.read_pieces(client, wait, f"{folder}/{name}", meta["token"], seal)
                parts[name] = codec.unpack(found, seal)
            return codec.unpack_version(parts, meta["version"])
    except NoNodeError as error:
        raise StateError(f"version {number} is not in the store") from error


def discard_others(client: KazooClient, wait: Wait, folder: str) -> None:
    """Delete the blocks beside those of a version, whose publishers came too late or died before."""
    with contextlib.suppress(NoNodeError):
        mine = json.loads(wait(client.get_async(f"{folder}/meta"))[0])["token"]
        for path in (f"{folder}/{name}" for name in _PARTS):
            others = blocks.tokens(client, wait, path).keys() - {mine}
            if others:
                blocks.delete_pieces(client, wait, path, others)

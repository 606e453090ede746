"""How named arrays and routing versions are written as bytes: compressed, in pieces, with a checksum.

A packed block is a JSON header of names, types and shapes, and the arrays one after the other, compressed by Zstandard.
It is generic: an index is whatever its ``to_arrays`` gives.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.index.base import GlobalIndex
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError
from spatialstream.store.base import Arrays

__all__ = [
    "PIECE",
    "Seal",
    "checked_name",
    "damage",
    "digest",
    "pack",
    "pack_version",
    "pieces",
    "unpack",
    "unpack_version",
]

PIECE = 900_000
"""The most bytes of a piece: with its envelope it stays below ZooKeeper's limit of 1 MiB a request."""

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Seal:
    """What a reader checks the pieces of a block against.

    Attributes:
        pieces: number of pieces.
        size: bytes after decompression.
        checksum: SHA-256 of the compressed bytes.
    """

    pieces: int
    size: int
    checksum: str

    @classmethod
    def of(cls, packed: bytes, size: int) -> Self:
        """The seal of compressed bytes."""
        return cls(len(pieces(packed)), size, hashlib.sha256(packed).hexdigest())

    def to_record(self) -> dict[str, Any]:
        """JSON-able; the constructor's arguments."""
        return asdict(self)


def checked_name(name: str) -> str:
    """A name that can stand in a path.

    Raises:
        ValueError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a name has letters (a-z, A-Z), digits, '-', '_' and '.', and does not begin with '.': {name!r}"
        )
    return name


@contextmanager
def damage(what: str) -> Iterator[None]:
    """Where bytes are read that may not be what this package has written.

    Raises:
        StateError: they are not.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise StateError(f"{what} is damaged, or another program's: {type(error).__name__}: {error}") from error


def pieces(packed: bytes) -> list[bytes]:
    """Bytes in pieces of at most PIECE; one at least."""
    return [packed[at : at + PIECE] for at in range(0, max(len(packed), 1), PIECE)]


def pack(arrays: Arrays) -> tuple[bytes, Seal]:
    """Named arrays, compressed."""
    plain = _plain(arrays)
    packed = pa.Codec("zstd").compress(plain, asbytes=True)
    return packed, Seal.of(packed, len(plain))


def unpack(parts: list[bytes], seal: Seal) -> dict[str, npt.NDArray[Any]]:
    """The arrays of :func:`pack` from its pieces. They can be written to, though nobody does.

    Raises:
        StateError: a piece is missing or damaged.
    """
    packed = b"".join(parts)
    if len(parts) != seal.pieces or hashlib.sha256(packed).hexdigest() != seal.checksum:
        raise StateError("a block of the routing store is damaged: its pieces do not match its checksum")
    plain = bytearray(pa.Codec("zstd").decompress(packed, seal.size, asbytes=True))
    start = 8 + int.from_bytes(plain[:8], "little")
    result = {}
    for name, dtype, shape in json.loads(plain[8:start]):
        count = int(np.prod(shape, dtype=np.int64))
        result[name] = np.frombuffer(plain, dtype, count, start).reshape(shape)
        start += result[name].nbytes
    return result


def _plain(arrays: Arrays) -> bytes:
    entries = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return b"".join([len(header).to_bytes(8, "little"), header, *(array.tobytes() for array in arrays.values())])


def pack_version(version: RoutingVersion) -> tuple[dict[str, Arrays], dict[str, Any]]:
    """The parts of a version as arrays, and a JSON-able meta: ``({"tree": …, "mapping": …}, meta)``."""
    arrays, meta = version.index.to_arrays()
    parts: dict[str, Arrays] = {"tree": arrays, "mapping": {"mapping": version.mapping}}
    return parts, {"number": version.number, "slots": version.slots, "kind": version.index.kind, "index": meta}


def unpack_version(parts: Mapping[str, Arrays], meta: Mapping[str, Any]) -> RoutingVersion:
    """The version that :func:`pack_version` took apart.

    Raises:
        StateError: its kind of index is unknown, or its arrays are not those of that kind.
    """
    kinds = {each.kind: each for each in GlobalIndex.__subclasses__()}
    if meta["kind"] not in kinds:
        raise StateError(f"version {meta['number']} has an unknown kind of index: {meta['kind']!r}")
    with damage(f"version {meta['number']}"):
        index = kinds[meta["kind"]].from_arrays(parts["tree"], meta["index"])
        return RoutingVersion(meta["number"], index, parts["mapping"]["mapping"], meta["slots"])


def digest(version: RoutingVersion) -> str:
    """SHA-256 of all that a version says."""
    parts, meta = pack_version(version)
    result = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for arrays in parts.values():
        result.update(_plain(arrays))
    return result.hexdigest()

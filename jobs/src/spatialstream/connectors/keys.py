"""Keys of the messages with a slot's blocks: they identify the block and the stream's incarnation."""

from __future__ import annotations

import re

__all__ = ["block_key", "key_of_incarnation", "key_within", "read_key"]


def block_key(epoch: int, partition: int, number: int, kind: str, revision: int = 0) -> bytes:
    """Key of a block's message: the number-th block of a router partition for a slot in a revision of an epoch."""
    return f"{epoch} {partition} {number} {kind}{f' {revision}' if revision else ''}".encode()


_KEY = re.compile(rb"(\d{1,15}) \d{1,15} \d{1,15} ([a-z]{1,15})(?: (\d{1,9}))?")


def read_key(key: bytes | None) -> tuple[int, str, int] | None:
    """Parse a :func:`block_key`: epoch, kind and revision; None for anything else."""
    match = _KEY.fullmatch(key or b"")
    return None if match is None else (int(match[1]), match[2].decode(), int(match[3] or b"0"))


def key_of_incarnation(key: bytes, incarnation: str) -> bytes:
    """The key of a block's message in a topic that may contain blocks of other incarnations of the stream."""
    return key + b" " + incarnation.encode() if incarnation else key


def key_within(key: bytes | None, incarnation: str) -> bytes | None:
    """The inverse of :func:`key_of_incarnation`.

    None if the block belongs to another incarnation, empty if it is no block's key.
    """
    full_key = key or b""
    name, _, last = full_key.rpartition(b" ")
    if incarnation and last == incarnation.encode():
        return name
    if read_key(full_key) is not None:
        return None if incarnation else full_key
    return None if read_key(name) is not None else b""

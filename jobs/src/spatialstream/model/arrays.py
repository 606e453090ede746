"""Arrays across process borders: Arrow buffers as numpy arrays, and memory-mappable files of named arrays.

Every derived structure (index, table) is a set of named numpy arrays. An array file is written once, under a name that
is never reused, and memory-mapped by every process that needs it. This module does not know where files are stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import StateError

__all__ = [
    "Array",
    "Bytes",
    "Codes",
    "Flags",
    "Floats",
    "Ints",
    "Words",
    "numpy_view",
    "pack_arrays",
    "runs",
    "string_view",
    "unpack_arrays",
]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

_MAGIC = b"SPSTARR2"
_ALIGNMENT = 64


class _Memory:
    """Array interface to the memory of an Arrow buffer: each numpy array over it keeps the buffer alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: object, address: int, count: int, dtype: np.dtype[Any]) -> None:
        self.owner = owner
        writable = (address, False)
        self.__array_interface__ = {"data": writable, "shape": (count,), "typestr": dtype.str, "version": 3}


def _from_address(owner: object, address: int, count: int, dtype: npt.DTypeLike) -> Array:
    dtype = np.dtype(dtype)
    view: Array = np.empty(0, dtype) if count == 0 else np.asarray(_Memory(owner, address, count, dtype))
    return view


def numpy_view(column: pa.Array) -> Array:
    """View a primitive Arrow array without nulls as a numpy array, without a copy.

    The view is formally writable, unlike pyarrow's own, because numba compiles a second version of every kernel for
    read-only arrays. Callers must not write to it.
    """
    if column.null_count:
        raise ValueError("numpy_view takes arrays without nulls")
    dtype = column.type.to_pandas_dtype()
    buffer = column.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return _from_address(buffer, buffer.address + column.offset * np.dtype(dtype).itemsize, len(column), dtype)


def string_view(column: pa.Array) -> tuple[Codes, Bytes]:
    """View a utf8 or binary Arrow array without nulls as (offsets int32[n+1], bytes uint8[...]), without a copy."""
    if column.type not in (pa.string(), pa.binary()):
        raise TypeError(f"string_view takes string or binary arrays, not {column.type}")
    if len(column) == 0:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    _, offsets, data = column.buffers()
    view = _from_address(offsets, offsets.address + 4 * column.offset, len(column) + 1, np.int32)
    size = 0 if data is None else data.size
    return view, _from_address(data, data.address if size else 0, size, np.uint8)


def runs(starts: Ints | Codes, sizes: Ints | Codes) -> Ints:
    """Concatenate runs of positions: run i has ``sizes[i]`` consecutive positions, the first being ``starts[i]``."""
    ends = np.cumsum(sizes, dtype=np.int64)
    positions: Ints = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return positions


def pack_arrays(arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> Iterator[bytes | memoryview]:
    """Yield the consecutive parts of a file of named arrays and a JSON-serializable ``meta``, without a copy."""
    entries: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, array in arrays.items():
        entries[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": offset}
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps({"arrays": entries, "meta": dict(meta or {})}).encode()
    head = _MAGIC + len(header).to_bytes(8, "little") + header
    yield head + b"\0" * (-len(head) % _ALIGNMENT)
    for array in arrays.values():
        yield np.ascontiguousarray(array).data
        yield b"\0" * (-array.nbytes % _ALIGNMENT)


def unpack_arrays(data: pa.Buffer, name: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read a file of :func:`pack_arrays`: ``(arrays, meta)``, without a copy; the arrays are writable if the buffer is.

    Args:
        data: the file's bytes.
        name: the file's name, for error messages.

    Raises:
        StateError: the bytes are not those of an array file.
    """
    mapping = memoryview(data)
    if len(mapping) < len(_MAGIC) + 8 or mapping[: len(_MAGIC)] != _MAGIC:
        raise StateError(f"{name} is not an array file: its header is missing or has another version")
    length = int.from_bytes(mapping[len(_MAGIC) : len(_MAGIC) + 8], "little")
    header = json.loads(bytes(mapping[len(_MAGIC) + 8 : len(_MAGIC) + 8 + length]))
    start = -(-(len(_MAGIC) + 8 + length) // _ALIGNMENT) * _ALIGNMENT
    arrays = {}
    for array, entry in header["arrays"].items():
        count = int(np.prod(entry["shape"], dtype=np.int64))
        if count == 0:
            arrays[array] = np.empty(entry["shape"], entry["dtype"])
        else:
            flat = np.frombuffer(mapping, entry["dtype"], count, start + entry["offset"])
            arrays[array] = flat.reshape(entry["shape"])
    return arrays, header["meta"]

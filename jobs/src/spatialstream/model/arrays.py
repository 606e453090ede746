"""Flat arrays across process borders: Arrow buffers as numpy arrays, and files of named arrays that are memory-mapped.

Everything derived (indexes, tables) is a handful of named numpy arrays. A file of them is written once, under a name
that is never reused, and mapped by every process that needs it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.errors import StateError

__all__ = ["map_arrays", "numpy_view", "string_view", "write_arrays"]

_MAGIC = b"SPSTARR2"
_ALIGNMENT = 64


def _from_address(owner: object, address: int, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    dtype = np.dtype(dtype)
    if count == 0:
        return np.empty(0, dtype)
    memory: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    memory._owner = owner  # keeps the Arrow buffer alive as long as the view
    view: npt.NDArray[Any] = np.frombuffer(memory, dtype, count)
    return view


def numpy_view(column: pa.Array) -> npt.NDArray[Any]:
    """A primitive Arrow array without nulls as a numpy array, without a copy.

    The view is formally writable, unlike pyarrow's own, because numba compiles a second version of every kernel for
    read-only arrays. Nobody writes to it.
    """
    if column.null_count:
        raise ValueError("numpy_view takes arrays without nulls")
    dtype = column.type.to_pandas_dtype()
    buffer = column.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return _from_address(buffer, buffer.address + column.offset * np.dtype(dtype).itemsize, len(column), dtype)


def string_view(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """A utf8 or binary Arrow array without nulls as (offsets int32[n+1], bytes uint8[...]), without a copy."""
    if column.type not in (pa.string(), pa.binary()):
        raise TypeError(f"string_view takes string or binary arrays, not {column.type}")
    if len(column) == 0:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    _, offsets, data = column.buffers()
    view = _from_address(offsets, offsets.address + 4 * column.offset, len(column) + 1, np.int32)
    size = 0 if data is None else data.size
    return view, _from_address(data, data.address if size else 0, size, np.uint8)


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any] | None = None) -> None:
    """Write named arrays and a JSON-able ``meta`` to ``path``, whole or not at all (written aside, then renamed)."""
    entries: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, array in arrays.items():
        entries[name] = {"dtype": array.dtype.str, "shape": list(array.shape), "offset": offset}
        offset += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    header = json.dumps({"arrays": entries, "meta": dict(meta or {})}).encode()
    start = -(-(len(_MAGIC) + 8 + len(header)) // _ALIGNMENT) * _ALIGNMENT
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("wb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
        file.write(b"\0" * (start - file.tell()))
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
            file.write(b"\0" * (-array.nbytes % _ALIGNMENT))
    aside.replace(path)


def map_arrays(path: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Map a file of :func:`write_arrays`: ``(arrays, meta)``. Pages are shared between processes and read on demand.

    The mapping is copy-on-write, so the arrays have the same (writable) type as arrays in memory.

    Raises:
        StateError: the file is not one that :func:`write_arrays` has finished.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        if size < len(_MAGIC) + 8:
            raise StateError(f"{path} is not a file of arrays")
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if mapping[: len(_MAGIC)] != _MAGIC:
        raise StateError(f"{path} is not a file of arrays")
    length = int.from_bytes(mapping[len(_MAGIC) : len(_MAGIC) + 8], "little")
    header = json.loads(mapping[len(_MAGIC) + 8 : len(_MAGIC) + 8 + length])
    start = -(-(len(_MAGIC) + 8 + length) // _ALIGNMENT) * _ALIGNMENT
    arrays = {}
    for name, entry in header["arrays"].items():
        count = int(np.prod(entry["shape"], dtype=np.int64))
        if count == 0:
            arrays[name] = np.empty(entry["shape"], entry["dtype"])
        else:
            flat = np.frombuffer(mapping, entry["dtype"], count, start + entry["offset"])
            arrays[name] = flat.reshape(entry["shape"])
    return arrays, header["meta"]

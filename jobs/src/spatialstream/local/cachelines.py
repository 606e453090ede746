"""Prefetching of memory in kernels, and element access without the check for negative indexes.

A kernel with random accesses to a large index waits about 100 ns for each load that is not in a near cache. The
processor overlaps these waits only within its look-ahead, a few hundred instructions. :data:`prefetch` requests a cache
line without waiting, so that as many loads are in flight as the memory can serve (Chen, Ailamaki, Gibbons, Mowry:
"Improving Hash Join Performance through Prefetching", ICDE 2004, group prefetching).

Numba interprets a negative index as counting from the end, and checks for it at every access. :data:`peek` does not,
which matters in loops that do little else.

Cost: one instruction each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

import spatialstream.model.kernels  # noqa: F401 - sets the location of the cache of machine code
from spatialstream.local.arrays import Array

__all__ = ["peek", "prefetch"]

_Codegen = Callable[[Any, Any, Any, Any], Any]
_intrinsic: Any = intrinsic

_READ, _KEEP, _DATA = 0, 3, 1  # the arguments of llvm.prefetch: for reading, in all caches, data


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _prefetch(_: Any, array: Any, index: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [address], ir.FunctionType(ir.VoidType(), [address, number, number, number])
        )
        place = builder.bitcast(_pointer(context, builder, signature.args[0], *arguments), address)
        builder.call(function, [place, number(_READ), number(_KEEP), number(_DATA)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _peek(_: Any, array: Any, index: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *arguments))

    return array.dtype(array, types.int64), generate


prefetch: Callable[[Array, Any], None] = _intrinsic(_prefetch)
"""``prefetch(array, i)``: fetch the cache line of element i of a C-contiguous array, counted over all dimensions.

This is a hint: i may be out of bounds.
"""

peek: Callable[[Array, Any], Any] = _intrinsic(_peek)
"""``peek(array, i)``: element i of a C-contiguous array, counted over all dimensions; it must exist."""

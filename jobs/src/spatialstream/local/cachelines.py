"""Memory that a kernel asks for before it needs it, and elements read without a look at the sign of their place.

A kernel whose loads go to random places of a large index waits some 100 ns for each that is not in a near cache. The
processor overlaps waits only as far as it can look ahead, a few hundred instructions; :data:`prefetch` asks for a line
and moves on, so that as many lines are under way as the memory can serve (Chen, Ailamaki, Gibbons, Mowry: "Improving
Hash Join Performance through Prefetching", ICDE 2004, group prefetching).

Numba takes a negative index for one that counts from the end, and looks for that at every access. :data:`peek` does
not, which matters where a loop does little else.

Cost: an instruction each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

import spatialstream.model.kernels  # noqa: F401 - sets where the machine code is kept
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

A hint: any place may be given, also one outside the array.
"""

peek: Callable[[Array, Any], Any] = _intrinsic(_peek)
"""``peek(array, i)``: element i of a C-contiguous array, counted over all dimensions; it must exist."""

"""Eight bytes at a time: unaligned words of a byte array, and what is searched for in them, without a branch a byte.

Bytes of a word are numbered from the lowest (as on every machine that Arrow runs on, the first in memory). A *flag word* has
the top bit of each byte that is meant and no other. See Mycroft's test for a zero byte and H. Warren, Hacker's Delight,
section 6-1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

import spatialstream.model.kernels  # noqa: F401 - sets where the machine code is kept

__all__ = ["TOPS", "any_range", "below", "first_flag", "lean_kernel", "load", "repeat", "store"]

_Codegen = Callable[[Any, Any, Any, Any], Any]
_F = TypeVar("_F", bound=Callable[..., Any])


def lean_kernel(function: _F) -> _F:
    """A :func:`~.kernels.kernel` that allocates nothing and counts no references.

    Of a kernel that takes arrays, numba counts a reference to each at every call, atomically: 10 ns an array, which is more
    than a scanner's inner functions take. Without allocations there is nothing to count for.
    """
    compiled: _F = numba.njit(cache=True, nogil=True, _nrt=False)(function)
    return compiled


TOPS = np.uint64(0x8080808080808080)
"""The top bit of every byte."""

_LOWS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), ir.IntType(64).as_pointer())


@intrinsic
def load(typing: Any, array: Any, index: Any) -> tuple[Any, _Codegen]:
    """``load(array, i)``: bytes i to i + 7 of a uint8 array, as a uint64. They must all lie in its memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(context, builder, signature.args[0], *arguments), align=1)

    return types.uint64(array, types.int64), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, word: Any) -> tuple[Any, _Codegen]:
    """``store(array, i, word)``: write a uint64 to bytes i to i + 7 of a uint8 array. They must all lie in its memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature.args[0], *arguments[:2]), align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


@intrinsic
def _trailing_zeros(typing: Any, word: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@lean_kernel
def first_flag(flags: np.uint64) -> int:
    """Number of the first byte that a flag word means; 8 for none."""
    position: int = _trailing_zeros(flags) >> 3
    return position


@lean_kernel
def repeat(byte: int) -> np.uint64:
    """The word of eight times this byte."""
    return np.uint64(byte) * _ONES


@lean_kernel
def below(word: np.uint64, limit: int) -> np.uint64:
    """Flags of the bytes that are less than ``limit`` <= 128; bytes behind the first of them may be flagged wrongly."""
    return (word - repeat(limit)) & ~word & TOPS


@lean_kernel
def any_range(word: np.uint64, low: int, high: int) -> np.uint64:
    """Flags of the bytes between ``low`` and ``high`` (inclusive, below 128), where a byte's own top bit is not looked at."""
    lows = word & _LOWS
    return ((lows + repeat(0x80 - low)) ^ (lows + repeat(0x7F - high))) & TOPS

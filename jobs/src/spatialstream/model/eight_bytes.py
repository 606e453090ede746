"""Eight bytes at a time: unaligned 64-bit words of a byte array, and branch-free searches in them.

Bytes of a word are numbered from the lowest, which is the first in memory on every machine that Arrow supports
(little-endian). A *flag word* has the top bit of each matching byte set and no other bit. The tests are Mycroft's test
for a zero byte and those of H. Warren, Hacker's Delight, section 6-1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from spatialstream.model.arrays import Bytes
from spatialstream.model.kernels import lean_kernel

__all__ = [
    "TOPS",
    "below",
    "byte",
    "first_flag",
    "folded",
    "in_range",
    "load",
    "repeat",
    "signed",
    "spelling",
    "spells",
    "store",
]

_Codegen = Callable[[Any, Any, Any, Any], Any]
_intrinsic: Any = intrinsic
_int64: Any = np.int64
signed: Callable[[Any], int] = _int64
"""``np.int64``, whose values are the ``int`` of kernels (mypy tells the two apart)."""

TOPS = np.uint64(0x8080808080808080)
"""The top bit of every byte."""

_LOWS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = np.uint64(0x0101010101010101)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


def _byte(_: Any, array: Any, index: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(_pointer(context, builder, signature.args[0], *arguments)), ir.IntType(64))

    return types.int64(array, types.int64), generate


def _load(_: Any, array: Any, index: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(array, types.int64), generate


def _store(_: Any, array: Any, index: Any, word: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _pointer(context, builder, signature.args[0], *arguments[:2])
        builder.store(arguments[2], builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.uint64), generate


def _zeros(_: Any, word: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


def _folded(_: Any, left: Any, right: Any) -> tuple[Any, _Codegen]:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        return builder.xor(high, builder.trunc(product, ir.IntType(64)))

    return types.uint64(types.uint64, types.uint64), generate


byte: Callable[[Bytes, int], int] = _intrinsic(_byte)
"""``byte(array, i)``: byte i >= 0 of a uint8 array as an int64, without the check for a negative index."""

load: Callable[[Bytes, int], np.uint64] = _intrinsic(_load)
"""``load(array, i)``: bytes i to i + 7 of a uint8 array as a uint64; all of them must lie in its memory."""

store: Callable[[Bytes, int, np.uint64], None] = _intrinsic(_store)
"""``store(array, i, word)``: write bytes i to i + 7 of a uint8 array; all of them must lie in its memory."""

folded: Callable[[np.uint64, np.uint64], np.uint64] = _intrinsic(_folded)
"""``folded(a, b)``: the upper half of the 128 bits of a * b, xor the lower half."""

_trailing_zeros: Callable[[np.uint64], int] = _intrinsic(_zeros)


@lean_kernel
def first_flag(flags: np.uint64) -> int:
    """Number of the first flagged byte of a flag word; 8 if none is flagged."""
    return _trailing_zeros(flags) >> 3


@lean_kernel
def repeat(value: int) -> np.uint64:
    """The word in which all eight bytes equal ``value``."""
    return np.uint64(value) * _ONES


@lean_kernel
def below(word: np.uint64, limit: int) -> np.uint64:
    """Flag the bytes less than ``limit`` <= 128; flags after the first one may be false positives."""
    return (word - repeat(limit)) & ~word & TOPS


@lean_kernel
def in_range(word: np.uint64, low: int, high: int) -> np.uint64:
    """Flag the bytes whose lower seven bits are between ``low`` and ``high`` (inclusive, below 128)."""
    lows = word & _LOWS
    return ((lows + repeat(0x80 - low)) ^ (lows + repeat(0x7F - high))) & TOPS


def spelling(text: bytes) -> tuple[np.uint64, np.uint64]:
    """Encode a text of at most eight bytes as (mask of its bytes, word), for :func:`spells`."""
    return np.uint64((1 << 8 * len(text)) - 1), np.uint64(int.from_bytes(text, "little"))


@lean_kernel
def spells(word: np.uint64, text: tuple[np.uint64, np.uint64]) -> bool:
    """Whether a word begins with the text of a :func:`spelling`."""
    same: bool = word & text[0] == text[1]
    return same

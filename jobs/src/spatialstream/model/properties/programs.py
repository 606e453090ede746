"""Conditions as programs of tests, and whether objects satisfy them.

A program is a list of tests, each with the next step if it holds and if it does not (short-circuit code, as compilers
make of boolean expressions: Aho, Sethi, Ullman, "Compilers", section 8.4). So a pair of an object and a condition takes
the tests that decide it, and no stack.

Cost: O(tests) to build; a pair takes about ten ns, and a comparison of strings or a binary search where a test is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from spatialstream.model.arrays import Array, Bytes, Codes, Flags, Ints
from spatialstream.model.eight_bytes import signed
from spatialstream.model.kernels import kernel, lean_kernel
from spatialstream.model.properties.condition import Both, Condition, Test
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.properties.table import MISSING, PropertyTable, number_words

__all__ = ["Programs"]

_HOLDS, _FAILS = -1, -2
"""The steps after the last test."""

_NULL, _NOT_NULL, _IN, _NOT_IN, _BELOW, _UPTO, _ABOVE, _FROM, _LIKE, _NOT_LIKE = range(10)
_OPS = {
    "null": _NULL,
    "not null": _NOT_NULL,
    "in": _IN,
    "not in": _NOT_IN,
    "<": _BELOW,
    "<=": _UPTO,
    ">": _ABOVE,
    ">=": _FROM,
    "like": _LIKE,
    "not like": _NOT_LIKE,
}


class _Code(NamedTuple):
    """Programs as columns.

    Attributes:
        tests: int32[m, 6]: property, operator, first value, number of values, step if it holds, step if not.
        textual: bool[properties], whether each is of keywords.
        words: int64, the values that are not keywords.
        offsets: int32, of the keywords.
        data: uint8, their bytes.
    """

    tests: Codes
    textual: Flags
    words: Ints
    offsets: Codes
    data: Bytes


@lean_kernel
def _compared(a: Bytes, first: int, end: int, b: Bytes, start: int, stop: int) -> int:
    """How two strings compare by bytes, which is by code points: below 0, 0 or above 0."""
    n = min(end - first, stop - start)
    for i in range(n):
        if a[first + i] != b[start + i]:
            return 1 if a[first + i] > b[start + i] else -1
    return (end - first) - (stop - start)


@lean_kernel
def _against(code: _Code, data: Bytes, textual: bool, word: int, value: int) -> int:
    """How a word of an object compares with a value of the programs."""
    if textual:
        first = word >> 16
        start, stop = code.offsets[value], code.offsets[value + 1]
        return _compared(data, first, first + (word & 0xFFFF), code.data, start, stop)
    other = code.words[value]
    return (1 if word > other else 0) - (1 if word < other else 0)


@lean_kernel
def _listed(code: _Code, data: Bytes, textual: bool, word: int, first: int, count: int) -> bool:
    """Whether a word is one of ascending values."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) // 2
        order = _against(code, data, textual, word, middle)
        if order == 0:
            return True
        if order > 0:
            low = middle + 1
        else:
            high = middle
    return False


@lean_kernel
def _begins(code: _Code, data: Bytes, word: int, value: int) -> bool:
    """Whether the keyword of a word begins with a value."""
    first = word >> 16
    start, stop = code.offsets[value], code.offsets[value + 1]
    if (word & 0xFFFF) < stop - start:
        return False
    return _compared(data, first, first + stop - start, code.data, start, stop) == 0


@lean_kernel
def _tested(code: _Code, data: Bytes, i: int, word: int) -> bool:
    """Whether test i holds for the word of its property."""
    op, first, count = code.tests[i, 1], code.tests[i, 2], code.tests[i, 3]
    if word == MISSING or op in (_NULL, _NOT_NULL):
        return bool((op == _NULL and word == MISSING) or (op == _NOT_NULL and word != MISSING))
    textual = code.textual[code.tests[i, 0]]
    if op in (_IN, _NOT_IN):
        return bool(_listed(code, data, textual, word, first, count) == (op == _IN))
    if op in (_LIKE, _NOT_LIKE):
        return bool(_begins(code, data, word, first) == (op == _LIKE))
    order = _against(code, data, textual, word, first)
    if op in (_BELOW, _UPTO):
        return order < 0 or (order == 0 and op == _UPTO)
    return order > 0 or (order == 0 and op == _FROM)


@kernel
def _hold(code: _Code, entries: Codes, place: Codes, words: Ints, data: Bytes, programs: Array, rows: Array) -> Flags:
    """Whether the program of each pair holds for the object at its row; place is the row of each property's words."""
    found = np.empty(len(rows), np.bool_)
    for k in range(len(rows)):
        step = signed(entries[programs[k]])
        while step >= 0:
            at = place[code.tests[step, 0]]
            word = signed(MISSING)
            if at >= 0:
                word = words[at, rows[k]]
            step = signed(code.tests[step, 4] if _tested(code, data, step, word) else code.tests[step, 5])
        found[k] = step == _HOLDS
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """The programs of n conditions.

    Attributes:
        names: the properties that they test.
        code: the tests of all of them.
        entries: int32[n], the first step of each.
    """

    names: tuple[str, ...]
    code: _Code
    entries: Codes

    @classmethod
    def of(cls, conditions: Sequence[Condition]) -> Programs:
        """Compile conditions."""
        compiler = _Compiler()
        entries = [compiler.compiled(each, _HOLDS, _FAILS) for each in conditions]
        return cls(tuple(compiler.properties), compiler.code(), np.array(entries, np.int32))

    def __len__(self) -> int:
        return len(self.entries)

    def hold(self, table: PropertyTable | None, programs: Array, rows: Array) -> Flags:
        """Whether condition ``programs[k]`` holds for the object at ``rows[k]``: bool[m].

        Args:
            table: the objects' properties; None: they have none, so all values are missing.
            programs: int32[m].
            rows: int32[m].
        """
        names = [] if table is None else [name for name, _ in table.types]
        place = np.array([names.index(name) if name in names else -1 for name in self.names], np.int32)
        words = np.empty((0, 0), np.int64) if table is None else table.words
        data = np.empty(0, np.uint8) if table is None else table.data
        given = np.ascontiguousarray(programs, np.int32), np.ascontiguousarray(rows, np.int32)
        found: Flags = _hold(self.code, self.entries, place, words, data, *given)
        return found


class _Compiler:
    """Collects the tests of conditions. Steps are emitted from the last to the first, so each knows its successors."""

    def __init__(self) -> None:
        self.properties: dict[str, int] = {}
        self._textual: list[bool] = []
        self._tests: list[tuple[int, ...]] = []
        self._words: list[int] = []
        self._data: list[bytes] = []

    def compiled(self, condition: Condition, holds: int, fails: int) -> int:
        """Emit a condition that goes on to one of two steps; returns its first step."""
        if isinstance(condition, Test):
            return self._test(condition, holds, fails)
        for part in reversed(condition.parts):
            step = self.compiled(part, holds, fails)
            holds, fails = (step, fails) if isinstance(condition, Both) else (holds, step)
        return step

    def _test(self, test: Test, holds: int, fails: int) -> int:
        at = self.properties.setdefault(test.property, len(self.properties))
        textual = test.type is PropertyType.KEYWORD
        if at == len(self._textual):
            self._textual.append(textual)
        first = len(self._data) if textual else len(self._words)
        if textual:
            self._data += [str(value).encode() for value in test.values]
        elif test.type is PropertyType.NUMBER:
            self._words += number_words(np.array(test.values, np.float64)).tolist()
        else:
            self._words += map(int, test.values)
        self._tests.append((at, _OPS[test.op], first, len(test.values), holds, fails))
        return len(self._tests) - 1

    def code(self) -> _Code:
        """All that was emitted."""
        offsets = np.zeros(len(self._data) + 1, np.int32)
        np.cumsum([len(each) for each in self._data], out=offsets[1:])
        return _Code(
            np.array(self._tests, np.int32).reshape(-1, 6),
            np.array(self._textual, np.bool_),
            np.array(self._words, np.int64),
            offsets,
            np.frombuffer(b"".join(self._data), np.uint8).copy(),
        )

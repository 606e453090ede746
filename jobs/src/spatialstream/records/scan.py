"""Records in bytes to cells: one pass over JSON Lines or CSV that notes where the wanted fields' values lie.

The scanner reads only regular records. It marks a record as odd if it is malformed or merely unusual (an escape in a
name, a byte that is not UTF-8, nesting deeper than 60, a number of 600 digits), and the caller sends that record alone
through the exact parser. So a bad record affects no other record. Python's ``json`` reads every JSON record that is not
odd, with the same value in every cell: the last one of repeated names wins, and ``null`` counts as an absent name.

Cells are (kind, start, end) slices of the block; :mod:`~.values` reads them. Cost: O(bytes), each looked at once,
strings eight bytes at a time.

It is written by hand because msgspec in its place takes 2 to 3 times as long, which is 5 to 11 % more CPU of a live
object, the most where objects have unknown fields (``python -m tests.benchmarks.json_by_msgspec``); CSV and tables need
more than half of these kernels and those of :mod:`~.values` in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spatialstream.model.arrays import Bytes, Codes, Flags, Ints
from spatialstream.model.eight_bytes import TOPS, below, byte, first_flag, load, repeat, spelling, spells
from spatialstream.model.kernels import inlined_kernel, lean_kernel

__all__ = ["Cells", "Records", "csv_borders", "prepare", "scan_csv", "scan_json"]

ABSENT, STRING, ESCAPED, INTEGER, NUMBER, ARRAY, OBJECT, OTHER = range(8)
"""Kinds of cell. Of STRING, ESCAPED (it holds escapes), ARRAY and OBJECT the slice is what the delimiters enclose."""

_LONGEST_NUMBER = 600
_DEEPEST = 60
_MOST_OTHERS = 30

QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2B, 0x2E
NEWLINE, RETURN, TAB, SPACE = 0x0A, 0x0D, 0x09, 0x20
OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT = 0x5B, 0x5D, 0x7B, 0x7D


class Cells(NamedTuple):
    """Where the values of n records lie: of one field (arrays of one dimension) or of several (of two).

    Attributes:
        data: the block (a copy: escapes are decoded in place), ending in a newline.
        good: bool[n]: which records are not odd.
        kind: uint8[n] or uint8[fields, n].
        first, last: int64, as many: the slice of each cell.
    """

    data: Bytes
    good: Flags
    kind: Bytes
    first: Ints
    last: Ints

    def field(self, number: int) -> Cells:
        """The cells of one field of several: views."""
        return self._replace(kind=self.kind[number], first=self.first[number], last=self.last[number])

    def room(self, fields: int) -> Cells:
        """The same records, every cell of so many fields absent."""
        shape = fields, len(self.good)
        kind, (first, last) = np.zeros(shape, np.uint8), np.zeros((2, *shape), np.int64)
        return self._replace(kind=kind, first=first, last=last)


class Others(NamedTuple):
    """The names in JSON records that are none of the wanted fields.

    Attributes:
        rows: int32[n]: of each record, a bit for each name that it has; the last one is of all but the first names.
        first, last: int64[30], the slices of those names in the block.
        known: int64[1], how many there are.
    """

    rows: Codes
    first: Ints
    last: Ints
    known: Ints

    def records(self, data: Bytes, rows: Flags) -> dict[str, int]:
        """How many of some records have each name, and under ``""`` another one."""
        had = self.rows[rows]
        if not had.any():
            return {}
        slices = zip(self.first[: self.known[0]].tolist(), self.last.tolist(), strict=False)
        names = [bytes(data[first:last]).decode() for first, last in slices]
        found = {name: int(np.count_nonzero(had & (1 << bit))) for bit, name in enumerate(names)}
        more = int(np.count_nonzero(had & (1 << _MOST_OTHERS)))
        return {name: count for name, count in (found | {"": found.get("", 0) + more}).items() if count}


class Records(NamedTuple):
    """The records of a block.

    Attributes:
        line: int64[n], the line at which a record begins.
        start, end: int64[n], the slice of a record, without its newline.
        cells: their cells, of several fields.
        others: the other names of JSON records.
    """

    line: Ints
    start: Ints
    end: Ints
    cells: Cells
    others: Others


# ----------------------------------------------------------------------------------------------------------- characters


@lean_kernel
def _utf8(data: Bytes, i: int) -> int:
    """Number of bytes of the UTF-8 character at ``i``, which is not ASCII; 0 where it is invalid."""
    c = byte(data, i)
    if c < 0xC2 or c > 0xF4:
        return 0
    low = 0x80
    high = 0xBF
    size = 2
    if c >= 0xF0:
        size = 4
        if c == 0xF0:
            low = 0x90
        if c == 0xF4:
            high = 0x8F
    elif c >= 0xE0:
        size = 3
        if c == 0xE0:
            low = 0xA0
        if c == 0xED:
            high = 0x9F
    if byte(data, i + 1) < low or byte(data, i + 1) > high:
        return 0
    if size > 2 and (byte(data, i + 2) & 0xC0) != 0x80:
        return 0
    if size > 3 and (byte(data, i + 3) & 0xC0) != 0x80:
        return 0
    return size


@lean_kernel
def hexadecimal(data: Bytes, i: int) -> int:
    """The value of four hexadecimal digits at ``i``; -1 where there are none."""
    value = 0
    for j in range(i, i + 4):
        c = byte(data, j)
        if c >= 0x30 and c <= 0x39:
            value = value * 16 + c - 0x30
        elif (c | 0x20) >= 0x61 and (c | 0x20) <= 0x66:
            value = value * 16 + (c | 0x20) - 0x57
        else:
            return -1
    return value


@lean_kernel
def skip_space(data: Bytes, i: int) -> int:
    """The first position from ``i`` on without white space (a newline is none here, because it ends a record)."""
    while byte(data, i) == SPACE or byte(data, i) == TAB or byte(data, i) == RETURN:
        i += 1
    return i


# ----------------------------------------------------------------------------------------------------------------- JSON


@lean_kernel
def string_end(data: Bytes, i: int) -> tuple[int, int]:
    """(position of the closing quote or -1, kind) of a JSON string whose text begins at ``i``."""
    kind = STRING
    while True:
        word = load(data, i)
        quotes = below(word ^ repeat(QUOTE), 1) | below(word ^ repeat(BACKSLASH), 1)
        step = first_flag(quotes | below(word, 0x20) | (word & TOPS))
        i += step
        if step == 8:
            continue
        c = byte(data, i)
        if c == QUOTE:
            return i, kind
        if c == BACKSLASH:
            kind = ESCAPED
            c = byte(data, i + 1)
            if c == 0x75:  # \u
                if hexadecimal(data, i + 2) < 0:
                    return -1, kind
                i += 6
            elif c in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):  # / b f n r t
                i += 2
            else:
                return -1, kind
        elif c >= 0x80:
            size = _utf8(data, i)
            if size == 0:
                return -1, kind
            i += size
        else:
            return -1, kind


@lean_kernel
def digits_end(data: Bytes, i: int) -> int:
    while byte(data, i) >= 0x30 and byte(data, i) <= 0x39:
        i += 1
    return i


@lean_kernel
def number_end(data: Bytes, i: int) -> tuple[int, int]:
    """(end or -1, kind) of a JSON number at ``i``."""
    begin = i
    kind = INTEGER
    if byte(data, i) == MINUS:
        i += 1
    whole = i
    i = digits_end(data, i)
    if i == whole or (byte(data, whole) == 0x30 and i > whole + 1):
        return -1, kind
    if byte(data, i) == POINT:
        kind = NUMBER
        part = i + 1
        i = digits_end(data, part)
        if i == part:
            return -1, kind
    if (byte(data, i) | 0x20) == 0x65:  # e
        kind = NUMBER
        i += 1
        if byte(data, i) == PLUS or byte(data, i) == MINUS:
            i += 1
        part = i
        i = digits_end(data, part)
        if i == part:
            return -1, kind
    if i - begin > _LONGEST_NUMBER:
        return -1, kind
    return i, kind


_NULL, _TRUE, _FALSE = map(spelling, (b"null", b"true", b"false"))


@lean_kernel
def scalar_end(data: Bytes, i: int) -> tuple[int, int]:
    """(end or -1, kind) of a JSON string, number or literal at ``i``."""
    c = byte(data, i)
    if c == QUOTE:
        end, kind = string_end(data, i + 1)
        return (end + 1 if end >= 0 else -1), kind
    if c == MINUS or (c >= 0x30 and c <= 0x39):
        return number_end(data, i)
    word = load(data, i)
    if spells(word, _NULL):
        return i + 4, ABSENT
    if spells(word, _TRUE):
        return i + 4, OTHER
    return (i + 5 if spells(word, _FALSE) else -1), OTHER


_VALUE, _VALUE_OR_END, _NAME, _NAME_OR_END, _AFTER = range(5)


@lean_kernel
def _container(data: Bytes, i: int) -> int:
    """The position behind the JSON array or object at ``i``; -1 where it is malformed or deep."""
    state = _VALUE
    depth = 0
    objects = 0  # one bit a level: whether it is an object
    while True:
        i = skip_space(data, i)
        c = byte(data, i)
        closes = False
        if state == _AFTER:
            if c == COMMA:
                state = _NAME if objects & 1 else _VALUE
                i += 1
            elif c == (CLOSE_OBJECT if objects & 1 else CLOSE_ARRAY):
                closes = True
            else:
                return -1
        elif state in (_NAME, _NAME_OR_END):
            if c == QUOTE:
                i, _ = string_end(data, i + 1)
                if i < 0:
                    return -1
                i = skip_space(data, i + 1)
                if byte(data, i) != COLON:
                    return -1
                i += 1
                state = _VALUE
            elif c == CLOSE_OBJECT and state == _NAME_OR_END:
                closes = True
            else:
                return -1
        elif c in (OPEN_OBJECT, OPEN_ARRAY):
            if depth == _DEEPEST:
                return -1
            depth += 1
            objects = objects << 1 | (1 if c == OPEN_OBJECT else 0)
            state = _NAME_OR_END if c == OPEN_OBJECT else _VALUE_OR_END
            i += 1
        elif c == CLOSE_ARRAY and state == _VALUE_OR_END:
            closes = True
        else:
            i, _ = scalar_end(data, i)
            if i < 0:
                return -1
            state = _AFTER
        if closes:
            i += 1
            depth -= 1
            objects >>= 1
            state = _AFTER
            if depth == 0:
                return i


@lean_kernel
def name_of(data: Bytes, start: int, end: int, names: Bytes, bounds: Ints) -> int:
    """Which of the names the slice is; -1 for none."""
    size = end - start
    for f in range(len(bounds) - 1):
        at = bounds[f]
        if bounds[f + 1] - at == size:
            same = 0
            while same < size and byte(data, start + same) == names[at + same]:
                same += 1
            if same == size:
                return f
    return -1


@lean_kernel
def note(cells: Cells, field: int, row: int, kind: int, begin: int, end: int) -> None:
    """Note a JSON value, from ``begin`` to ``end``, as a cell."""
    inset = 0 if kind in (INTEGER, NUMBER, OTHER, ABSENT) else 1
    cells.kind[field, row] = kind
    cells.first[field, row] = begin + inset
    cells.last[field, row] = end - inset


@lean_kernel
def _note_other(data: Bytes, others: Others, start: int, end: int, row: int) -> None:
    """Note a name that is none of the fields."""
    known = others.known[0]
    size = end - start
    bit = 0
    while bit < known:
        at = others.first[bit]
        same = 0
        if others.last[bit] - at == size:
            while same < size and byte(data, start + same) == byte(data, at + same):
                same += 1
            if same == size:
                break
        bit += 1
    if bit == known and known < _MOST_OTHERS:
        others.first[bit] = start
        others.last[bit] = end
        others.known[0] = known + 1
    others.rows[row] |= np.int32(1 << bit)


@inlined_kernel
def _json_record(cells: Cells, others: Others, i: int, names: Bytes, bounds: Ints, row: int) -> int:
    """Note the cells of the JSON object at ``i``; returns the position of the newline behind it, -1 where it is odd."""
    data = cells.data
    if byte(data, i) != OPEN_OBJECT:
        return -1
    i = skip_space(data, i + 1)
    if byte(data, i) == CLOSE_OBJECT:
        i = skip_space(data, i + 1)
        return i if byte(data, i) == NEWLINE else -1
    while True:
        if byte(data, i) != QUOTE:
            return -1
        end, escaped = string_end(data, i + 1)
        if end < 0 or escaped == ESCAPED:
            return -1
        field = name_of(data, i + 1, end, names, bounds)
        if field < 0:
            _note_other(data, others, i + 1, end, row)
        i = skip_space(data, end + 1)
        if byte(data, i) != COLON:
            return -1
        i = skip_space(data, i + 1)
        begin = i
        c = byte(data, i)
        if c in (OPEN_OBJECT, OPEN_ARRAY):
            i = _container(data, i)
            found = OBJECT if c == OPEN_OBJECT else ARRAY
        else:
            i, found = scalar_end(data, i)
        if i < 0:
            return -1
        if field >= 0:
            note(cells, field, row, found, begin, i)
        i = skip_space(data, i)
        if byte(data, i) == CLOSE_OBJECT:
            i = skip_space(data, i + 1)
            return i if byte(data, i) == NEWLINE else -1
        if byte(data, i) != COMMA:
            return -1
        i = skip_space(data, i + 1)


@lean_kernel
def _scan_json(records: Records, names: Bytes, bounds: Ints) -> int:
    line, start, end, cells, others = records
    data = cells.data
    i = 0
    row = 0
    number = 0
    while i < len(data):
        begin = i
        i = skip_space(data, i)
        if byte(data, i) != NEWLINE:
            stop = _json_record(cells, others, i, names, bounds, row)
            cells.good[row] = stop >= 0
            if stop >= 0:
                i = stop
            else:
                while byte(data, i) != NEWLINE:
                    i += 1
            line[row] = number
            start[row] = begin
            end[row] = i
            row += 1
        i += 1
        number += 1
    return row


def _writable(data: bytes | memoryview) -> Bytes:
    """A copy that ends in a newline, with eight bytes behind it that may be read."""
    block = np.frombuffer(data, np.uint8)
    size = len(block)
    room = np.empty(size + 9, np.uint8)
    room[:size] = block
    room[size:] = NEWLINE
    return room[: size + (size == 0 or block[-1] != NEWLINE)]


def _room(data: bytes | memoryview, fields: int) -> Records:
    """Room for as many records as the data has lines."""
    block = _writable(data)
    most = int(np.count_nonzero(block == NEWLINE))
    line, start, end = np.empty((3, most), np.int64)
    first, last = np.zeros((2, _MOST_OTHERS), np.int64)
    others = Others(np.zeros(most, np.int32), first, last, np.zeros(1, np.int64))
    return Records(line, start, end, Cells(block, np.empty(most, np.bool_), block, line, line).room(fields), others)


def coded_names(names: Sequence[str]) -> tuple[Bytes, Ints]:
    coded = [name.encode() for name in names]
    bounds = np.cumsum([0, *map(len, coded)], dtype=np.int64)
    return np.frombuffer(bytearray(b"".join(coded)), np.uint8), bounds


def _trim(records: Records, n: int, first_line: int) -> Records:
    line, start, end, (data, good, kind, first, last), others = records
    cells = Cells(data, good[:n], kind[:, :n], first[:, :n], last[:, :n])
    return Records(line[:n] + first_line, start[:n], end[:n], cells, others._replace(rows=others.rows[:n]))


def scan_json(data: bytes | memoryview, names: Sequence[str], first_line: int) -> Records:
    """The records of whole lines of JSON and their cells under ``names`` (distinct). Blank lines are no records."""
    records = _room(data, len(names))
    return _trim(records, _scan_json(records, *coded_names(names)), first_line)


# ------------------------------------------------------------------------------------------------------------------ CSV


@lean_kernel
def _csv_cell(data: Bytes, i: int, end: int) -> tuple[int, int, bool]:
    """(position behind it, kind, whether it is well-formed) of a CSV cell at ``i``; a quoted cell may hold newlines.

    Behind a cell stands a comma, a newline (a return before it is taken for the cell's), or ``end``.
    """
    valid = True
    kind = STRING
    if byte(data, i) == QUOTE:
        i += 1
        while i < end:
            c = byte(data, i)
            if c == QUOTE:
                if i + 1 >= end or byte(data, i + 1) != QUOTE:
                    i += 1
                    break
                kind = ESCAPED
                i += 2
            elif c >= 0x80:
                size = _utf8(data, i)
                valid = valid and size > 0
                i += max(size, 1)
            else:
                i += 1
        else:
            return end, kind, False
        if i < end and byte(data, i) == RETURN and byte(data, i + 1) == NEWLINE:
            i += 1
        if i < end and byte(data, i) != COMMA and byte(data, i) != NEWLINE:
            valid = False
            while i < end and byte(data, i) != COMMA and byte(data, i) != NEWLINE:
                i += 1
        return i, kind, valid
    begin = i
    while i < end and byte(data, i) != COMMA and byte(data, i) != NEWLINE:
        if byte(data, i) >= 0x80:
            size = _utf8(data, i)
            valid = valid and size > 0
            i += max(size, 1)
        else:
            i += 1
    return i, (ABSENT if i == begin else kind), valid


@lean_kernel
def _scan_csv(records: Records, fields: Ints) -> int:
    line, start, end, cells, _ = records
    data = cells.data
    size = len(data)
    i = 0
    row = 0
    number = 0
    while i < size:
        begin = i
        number_here = number
        column = 0
        fine = True
        while True:
            cell = i
            i, found, valid = _csv_cell(data, i, size)
            fine = fine and valid
            stop = i
            if (i >= size or byte(data, i) == NEWLINE) and stop > cell and byte(data, stop - 1) == RETURN:
                stop -= 1
                if stop == cell:
                    found = ABSENT
            if column < len(fields) and fields[column] >= 0:
                quoted = 1 if found != ABSENT and byte(data, cell) == QUOTE else 0
                cells.kind[fields[column], row] = found
                cells.first[fields[column], row] = cell + quoted
                cells.last[fields[column], row] = stop - quoted
            if byte(data, cell) == QUOTE:
                for j in range(cell, stop):
                    if byte(data, j) == NEWLINE:
                        number += 1
            column += 1
            if i >= size or byte(data, i) == NEWLINE:
                break
            i += 1
        blank = column == 1 and stop == begin
        if not blank:
            line[row] = number_here
            start[row] = begin
            end[row] = stop
            cells.good[row] = fine and column == len(fields)
            row += 1
        i += 1
        number += 1
    return row


def scan_csv(data: bytes | memoryview, header: Sequence[str], names: Sequence[str], first_line: int) -> Records:
    """The records of whole CSV records (RFC 4180, no header line) and their cells in the columns ``names`` (distinct).

    An empty cell is absent, a quoted empty one is an empty string. A record with another number of cells than the
    header is odd, and so is one with text between a closing quote and the next comma.
    """
    columns = np.array([names.index(column) if column in names else -1 for column in header], np.int64)
    records = _room(data, len(names))
    return _trim(records, _scan_csv(records, columns), first_line)


@lean_kernel
def _csv_borders(data: Bytes, progress: Ints, least: int, borders: Ints, lines: Ints) -> int:
    state = progress[0]
    since = progress[1]
    count = 0
    number = 0
    for i in range(len(data)):
        c = byte(data, i)
        since += 1
        if c == NEWLINE:
            number += 1
        if state == 2:  # inside quotes
            if c == QUOTE:
                state = 3
        elif state == 3 and c == QUOTE:  # a doubled quote
            state = 2
        elif c == NEWLINE:
            state = 0
            if since >= least:
                borders[count] = i + 1
                lines[count] = number
                count += 1
                since = 0
        elif c == COMMA:
            state = 0
        elif c == QUOTE and state == 0:
            state = 2
        else:
            state = 1
    progress[0] = state
    progress[1] = since
    return count


def csv_borders(data: bytes, progress: Ints, least: int) -> tuple[Ints, Ints]:
    """Borders between CSV records, each at least ``least`` bytes behind the one before.

    Args:
        data: bytes that follow those of the call before.
        progress: int64[2], zeros before the first call: the scanner's state and the bytes since the last border.
        least: at least so many bytes between two borders.

    Returns:
        The borders, as positions in ``data`` behind a newline, and the number of newlines in ``data`` before each.
    """
    block = np.frombuffer(bytearray(data), np.uint8)
    most = len(block) // max(least, 1) + 2
    borders, lines = np.empty(most, np.int64), np.empty(most, np.int64)
    count = _csv_borders(block, progress, least, borders, lines)
    return borders[:count], lines[:count]


def prepare() -> None:
    """Compile every kernel of this module."""
    names = ["a", "b"]
    scan_json(b'{"a": "x\\n", "b": [1.5, {"c": null}]}', names, 1)
    scan_csv(b'"x""y",1\n', names, names, 1)
    csv_borders(b"a,b\n", np.zeros(2, np.int64), 1)

"""Records in bytes to cells: one pass over JSON Lines or CSV that notes where the wanted fields' values lie.

The scanner reads only what it is sure of. A record that is malformed or merely unusual (escapes in a name, a byte that is not
UTF-8, nesting deeper than 60, an integer of 600 digits) is marked odd, and whoever called sends it through the exact parser,
alone. So one bad record costs one bad record, wherever it stands. A record that is not odd is one that Python's ``json``
reads, with the same value in every cell: of repeated names the last, and ``null`` as if the name were absent.

Cells are (kind, start, end) slices of the block; the functions at the end read them as numbers, timestamps, durations, strings
and lists, and mark further records as odd where a value is none or an unusual one. Cost: O(bytes), each looked at once,
about a nanosecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import numpy_view
from spatialstream.model.swar import TOPS, below, first_flag, lean_kernel, load, repeat
from spatialstream.model.times import TIME_LIMIT

__all__ = [
    "ABSENT",
    "ARRAY",
    "ESCAPED",
    "INTEGER",
    "NUMBER",
    "OBJECT",
    "OTHER",
    "STRING",
    "Cells",
    "csv_borders",
    "gather",
    "prepare",
    "read_choices",
    "read_counts",
    "read_durations",
    "read_lists",
    "read_numbers",
    "read_points",
    "read_regions",
    "read_strings",
    "read_times",
    "scan_csv",
    "scan_json",
]

ABSENT, STRING, ESCAPED, INTEGER, NUMBER, ARRAY, OBJECT, OTHER = range(8)
"""Kinds of cell. Of STRING and ESCAPED (holds escapes), ARRAY and OBJECT the slice is what stands between the delimiters."""

_LONGEST_NUMBER = 600
_DEEPEST = 60

_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _POINT = 0x22, 0x5C, 0x2C, 0x3A, 0x2D, 0x2B, 0x2E
_NEWLINE, _RETURN, _TAB, _SPACE = 0x0A, 0x0D, 0x09, 0x20
_OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT, _CLOSE_OBJECT = 0x5B, 0x5D, 0x7B, 0x7D

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The records of a block and where their fields' values lie.

    Attributes:
        data: the block (a copy: escapes are decoded in place), ending in a newline.
        line: int64[n], the line at which a record begins.
        start, end: int64[n], the slice of a record, without its newline.
        good: bool[n]: not odd.
        kind: uint8[fields, n].
        first, last: int64[fields, n], the slice of a cell.
    """

    data: _Bytes
    line: _Places
    start: _Places
    end: _Places
    good: _Flags
    kind: npt.NDArray[np.uint8]
    first: _Places
    last: _Places

    def __len__(self) -> int:
        """Number of records."""
        return len(self.line)


# ------------------------------------------------------------------------------------------------------------ characters


@lean_kernel
def _utf8(data: _Bytes, i: int) -> int:
    """Number of bytes of the UTF-8 character at ``i``, which is no ASCII; 0 where there is no valid one."""
    c = data[i]
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
    if data[i + 1] < low or data[i + 1] > high:
        return 0
    if size > 2 and (data[i + 2] & 0xC0) != 0x80:
        return 0
    if size > 3 and (data[i + 3] & 0xC0) != 0x80:
        return 0
    return size


@lean_kernel
def _hexadecimal(data: _Bytes, i: int) -> int:
    """The value of four hexadecimal digits at ``i``; -1 where there are none."""
    value = 0
    for j in range(i, i + 4):
        c = np.int64(data[j])
        if c >= 0x30 and c <= 0x39:
            value = value * 16 + c - 0x30
        elif (c | 0x20) >= 0x61 and (c | 0x20) <= 0x66:
            value = value * 16 + (c | 0x20) - 0x57
        else:
            return -1
    return value


@lean_kernel
def _space(data: _Bytes, i: int) -> int:
    """The first position from ``i`` on that is no white space (a newline ends a record and is none)."""
    while data[i] == _SPACE or data[i] == _TAB or data[i] == _RETURN:
        i += 1
    return i


# ------------------------------------------------------------------------------------------------------------------ JSON


@lean_kernel
def _string(data: _Bytes, i: int) -> tuple[int, int]:
    """(position of the closing quote or -1, kind) of a JSON string whose text begins at ``i``."""
    kind = STRING
    while True:
        word = load(data, i)
        quotes = below(word ^ repeat(_QUOTE), 1) | below(word ^ repeat(_BACKSLASH), 1)
        step = first_flag(quotes | below(word, 0x20) | (word & TOPS))
        i += step
        if step == 8:
            continue
        c = data[i]
        if c == _QUOTE:
            return i, kind
        if c == _BACKSLASH:
            kind = ESCAPED
            c = data[i + 1]
            if c == 0x75:  # \u
                if _hexadecimal(data, i + 2) < 0:
                    return -1, kind
                i += 6
            elif c in (_QUOTE, _BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):  # / b f n r t
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
def _digits(data: _Bytes, i: int) -> int:
    while data[i] >= 0x30 and data[i] <= 0x39:
        i += 1
    return i


@lean_kernel
def _number(data: _Bytes, i: int) -> tuple[int, int]:
    """(end or -1, kind) of a JSON number at ``i``."""
    begin = i
    kind = INTEGER
    if data[i] == _MINUS:
        i += 1
    whole = i
    i = _digits(data, i)
    if i == whole or (data[whole] == 0x30 and i > whole + 1):
        return -1, kind
    if data[i] == _POINT:
        kind = NUMBER
        part = i + 1
        i = _digits(data, part)
        if i == part:
            return -1, kind
    if (data[i] | 0x20) == 0x65:  # e
        kind = NUMBER
        i += 1
        if data[i] == _PLUS or data[i] == _MINUS:
            i += 1
        part = i
        i = _digits(data, part)
        if i == part:
            return -1, kind
    if i - begin > _LONGEST_NUMBER:
        return -1, kind
    return i, kind


@lean_kernel
def _scalar(data: _Bytes, i: int) -> tuple[int, int]:
    """(end or -1, kind) of a JSON string, number or literal at ``i``."""
    c = data[i]
    if c == _QUOTE:
        end, kind = _string(data, i + 1)
        return (end + 1 if end >= 0 else -1), kind
    if c == _MINUS or (c >= 0x30 and c <= 0x39):
        return _number(data, i)
    if c == 0x6E and data[i + 1] == 0x75 and data[i + 2] == 0x6C and data[i + 3] == 0x6C:
        return i + 4, ABSENT
    if c == 0x74 and data[i + 1] == 0x72 and data[i + 2] == 0x75 and data[i + 3] == 0x65:
        return i + 4, OTHER
    if c == 0x66 and data[i + 1] == 0x61 and data[i + 2] == 0x6C and data[i + 3] == 0x73 and data[i + 4] == 0x65:
        return i + 5, OTHER
    return -1, OTHER


_VALUE, _VALUE_OR_END, _NAME, _NAME_OR_END, _AFTER = range(5)


@lean_kernel
def _container(data: _Bytes, i: int) -> int:
    """The position behind the JSON array or object at ``i``; -1 where it is malformed or deep."""
    state = _VALUE
    depth = 0
    objects = 0  # one bit a level: whether it is an object
    while True:
        i = _space(data, i)
        c = data[i]
        closes = False
        if state == _AFTER:
            if c == _COMMA:
                state = _NAME if objects & 1 else _VALUE
                i += 1
            elif c == (_CLOSE_OBJECT if objects & 1 else _CLOSE_ARRAY):
                closes = True
            else:
                return -1
        elif state == _NAME or state == _NAME_OR_END:
            if c == _QUOTE:
                i, _ = _string(data, i + 1)
                if i < 0:
                    return -1
                i = _space(data, i + 1)
                if data[i] != _COLON:
                    return -1
                i += 1
                state = _VALUE
            elif c == _CLOSE_OBJECT and state == _NAME_OR_END:
                closes = True
            else:
                return -1
        elif c == _OPEN_OBJECT or c == _OPEN_ARRAY:
            if depth == _DEEPEST:
                return -1
            depth += 1
            objects = objects << 1 | (1 if c == _OPEN_OBJECT else 0)
            state = _NAME_OR_END if c == _OPEN_OBJECT else _VALUE_OR_END
            i += 1
        elif c == _CLOSE_ARRAY and state == _VALUE_OR_END:
            closes = True
        else:
            i, _ = _scalar(data, i)
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
def _field(data: _Bytes, start: int, end: int, names: _Bytes, bounds: _Places) -> int:
    """Which of the names the slice is; -1 for none."""
    size = end - start
    for f in range(len(bounds) - 1):
        at = bounds[f]
        if bounds[f + 1] - at == size:
            same = 0
            while same < size and data[start + same] == names[at + same]:
                same += 1
            if same == size:
                return f
    return -1


@lean_kernel
def _json_record(
    data: _Bytes,
    i: int,
    names: _Bytes,
    bounds: _Places,
    row: int,
    kind: npt.NDArray[np.uint8],
    first: _Places,
    last: _Places,
) -> int:
    """Note the cells of the JSON object at ``i``; returns the position of the newline behind it, -1 where it is odd."""
    if data[i] != _OPEN_OBJECT:
        return -1
    i = _space(data, i + 1)
    if data[i] == _CLOSE_OBJECT:
        i = _space(data, i + 1)
        return i if data[i] == _NEWLINE else -1
    while True:
        if data[i] != _QUOTE:
            return -1
        end, escaped = _string(data, i + 1)
        if end < 0 or escaped == ESCAPED:
            return -1
        field = _field(data, i + 1, end, names, bounds)
        i = _space(data, end + 1)
        if data[i] != _COLON:
            return -1
        i = _space(data, i + 1)
        begin = i
        c = data[i]
        if c == _OPEN_OBJECT or c == _OPEN_ARRAY:
            i = _container(data, i)
            found = OBJECT if c == _OPEN_OBJECT else ARRAY
        else:
            i, found = _scalar(data, i)
        if i < 0:
            return -1
        if field >= 0:
            inset = 0 if found == INTEGER or found == NUMBER or found == OTHER or found == ABSENT else 1
            kind[field, row] = found
            first[field, row] = begin + inset
            last[field, row] = i - inset
        i = _space(data, i)
        if data[i] == _CLOSE_OBJECT:
            i = _space(data, i + 1)
            return i if data[i] == _NEWLINE else -1
        if data[i] != _COMMA:
            return -1
        i = _space(data, i + 1)


@lean_kernel
def _scan_json(
    data: _Bytes,
    names: _Bytes,
    bounds: _Places,
    line: _Places,
    start: _Places,
    end: _Places,
    good: _Flags,
    kind: npt.NDArray[np.uint8],
    first: _Places,
    last: _Places,
) -> int:
    i = 0
    row = 0
    number = 0
    while i < len(data):
        begin = i
        i = _space(data, i)
        if data[i] != _NEWLINE:
            stop = _json_record(data, i, names, bounds, row, kind, first, last)
            good[row] = stop >= 0
            if stop >= 0:
                i = stop
            else:
                while data[i] != _NEWLINE:
                    i += 1
            line[row] = number
            start[row] = begin
            end[row] = i
            row += 1
        i += 1
        number += 1
    return row


def _writable(data: bytes | memoryview) -> _Bytes:
    """A copy that ends in a newline, with eight bytes behind it that may be read."""
    block = np.frombuffer(data, np.uint8)
    size = len(block)
    room = np.empty(size + 9, np.uint8)
    room[:size] = block
    room[size:] = _NEWLINE
    return room[: size + (size == 0 or block[-1] != _NEWLINE)]


def _cells(block: _Bytes, fields: int) -> Cells:
    """Room for as many records as the block has lines."""
    most = int(np.count_nonzero(block == _NEWLINE))
    places = [np.empty(most, np.int64) for _ in range(3)]
    kind = np.zeros((fields, most), np.uint8)
    return Cells(
        block,
        *places,
        np.empty(most, np.bool_),
        kind,
        np.zeros((fields, most), np.int64),
        np.zeros((fields, most), np.int64),
    )


def _names(names: Sequence[str]) -> tuple[_Bytes, _Places]:
    coded = [name.encode() for name in names]
    bounds = np.cumsum([0, *map(len, coded)], dtype=np.int64)
    return np.frombuffer(bytearray(b"".join(coded)), np.uint8), bounds


def _trim(cells: Cells, rows: int, first_line: int) -> Cells:
    return Cells(
        cells.data,
        cells.line[:rows] + first_line,
        cells.start[:rows],
        cells.end[:rows],
        cells.good[:rows],
        *(np.ascontiguousarray(each[:, :rows]) for each in (cells.kind, cells.first, cells.last)),
    )


def scan_json(data: bytes | memoryview, names: Sequence[str], first_line: int) -> Cells:
    """The records of whole lines of JSON and their cells under ``names`` (distinct). Blank lines are no records."""
    cells = _cells(_writable(data), len(names))
    rows = _scan_json(
        cells.data,
        *_names(names),
        cells.line,
        cells.start,
        cells.end,
        cells.good,
        cells.kind,
        cells.first,
        cells.last,
    )
    return _trim(cells, rows, first_line)


# ------------------------------------------------------------------------------------------------------------------- CSV


@lean_kernel
def _csv_cell(data: _Bytes, i: int, end: int) -> tuple[int, int, bool]:
    """(position behind the cell, kind, whether it is well-formed) of a CSV cell at ``i``; a quoted cell may hold newlines.

    Behind a cell stands a comma, a line's end, or ``end``.
    """
    valid = True
    kind = STRING
    if data[i] == _QUOTE:
        i += 1
        while i < end:
            c = data[i]
            if c == _QUOTE:
                if i + 1 >= end or data[i + 1] != _QUOTE:
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
        closed = i
        while i < end and data[i] != _COMMA and data[i] != _NEWLINE:
            i += 1
        return i, kind, valid and (i == closed or (i == closed + 1 and data[closed] == _RETURN and data[i] == _NEWLINE))
    begin = i
    while i < end and data[i] != _COMMA and data[i] != _NEWLINE:
        if data[i] >= 0x80:
            size = _utf8(data, i)
            valid = valid and size > 0
            i += max(size, 1)
        else:
            i += 1
    return i, (ABSENT if i == begin else kind), valid


@lean_kernel
def _scan_csv(
    data: _Bytes,
    fields: _Places,
    line: _Places,
    start: _Places,
    end: _Places,
    good: _Flags,
    kind: npt.NDArray[np.uint8],
    first: _Places,
    last: _Places,
) -> int:
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
            if i >= size or data[i] == _NEWLINE:
                if stop > cell and data[stop - 1] == _RETURN:
                    stop -= 1
                    if stop == cell:
                        found = ABSENT
            if column < len(fields) and fields[column] >= 0:
                quoted = 1 if found != ABSENT and data[cell] == _QUOTE else 0
                kind[fields[column], row] = found
                first[fields[column], row] = cell + quoted
                last[fields[column], row] = stop - quoted
            if data[cell] == _QUOTE:
                for j in range(cell, stop):
                    if data[j] == _NEWLINE:
                        number += 1
            column += 1
            if i >= size or data[i] == _NEWLINE:
                break
            i += 1
        blank = column == 1 and stop == begin
        if not blank:
            line[row] = number_here
            start[row] = begin
            end[row] = stop
            good[row] = fine and column == len(fields)
            row += 1
        i += 1
        number += 1
    return row


def scan_csv(data: bytes | memoryview, header: Sequence[str], names: Sequence[str], first_line: int) -> Cells:
    """The records of whole CSV records (RFC 4180, no header line) and their cells in the columns ``names`` (distinct).

    An empty cell is absent, a quoted empty one is an empty string. A record with another number of cells than the header is
    odd, and so is one with text between a closing quote and the next comma.
    """
    columns = np.array([names.index(column) if column in names else -1 for column in header], np.int64)
    cells = _cells(_writable(data), len(names))
    rows = _scan_csv(
        cells.data, columns, cells.line, cells.start, cells.end, cells.good, cells.kind, cells.first, cells.last
    )
    return _trim(cells, rows, first_line)


@lean_kernel
def _csv_borders(data: _Bytes, progress: _Places, least: int, borders: _Places, lines: _Places) -> int:
    state = progress[0]
    since = progress[1]
    count = 0
    number = 0
    for i in range(len(data)):
        c = data[i]
        since += 1
        if c == _NEWLINE:
            number += 1
        if state == 2:  # inside quotes
            if c == _QUOTE:
                state = 3
        elif state == 3 and c == _QUOTE:  # a doubled quote
            state = 2
        elif c == _NEWLINE:
            state = 0
            if since >= least:
                borders[count] = i + 1
                lines[count] = number
                count += 1
                since = 0
        elif c == _COMMA:
            state = 0
        elif c == _QUOTE and state == 0:
            state = 2
        else:
            state = 1
    progress[0] = state
    progress[1] = since
    return count


def csv_borders(data: bytes, progress: _Places, least: int) -> tuple[_Places, _Places]:
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


# ---------------------------------------------------------------------------------------------------------------- values


@lean_kernel
def _unescape(data: _Bytes, start: int, end: int) -> int:
    """Decode the escapes of a valid JSON string in place; returns its new end, -1 at half of a surrogate pair."""
    i = start
    out = start
    while i < end:
        c = np.int64(data[i])
        i += 1
        if c == _BACKSLASH:
            c = np.int64(data[i])
            i += 1
            if c == 0x75:  # \u
                c = _hexadecimal(data, i)
                i += 4
                if c >= 0xD800 and c < 0xE000:
                    if c >= 0xDC00 or i + 6 > end or data[i] != _BACKSLASH or data[i + 1] != 0x75:
                        return -1
                    low = _hexadecimal(data, i + 2)
                    if low < 0xDC00 or low >= 0xE000:
                        return -1
                    c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00)
                    i += 6
                if c >= 0x80:
                    if c < 0x800:
                        data[out] = 0xC0 | c >> 6
                    else:
                        if c < 0x10000:
                            data[out] = 0xE0 | c >> 12
                        else:
                            data[out] = 0xF0 | c >> 18
                            out += 1
                            data[out] = 0x80 | c >> 12 & 0x3F
                        out += 1
                        data[out] = 0x80 | c >> 6 & 0x3F
                    out += 1
                    c = 0x80 | c & 0x3F
            elif c == 0x62:
                c = 0x08
            elif c == 0x66:
                c = 0x0C
            elif c == 0x6E:
                c = 0x0A
            elif c == 0x72:
                c = 0x0D
            elif c == 0x74:
                c = 0x09
        data[out] = c
        out += 1
    return out


@lean_kernel
def _unquote(data: _Bytes, start: int, end: int) -> int:
    """Make doubled quotes of a CSV cell single ones, in place; returns its new end."""
    i = start
    out = start
    while i < end:
        data[out] = data[i]
        i += 2 if data[i] == _QUOTE else 1
        out += 1
    return out


@lean_kernel
def _strings(data: _Bytes, csv: bool, kind: _Bytes, first: _Places, last: _Places, good: _Flags) -> None:
    for r in range(len(kind)):
        if not good[r] or kind[r] == ABSENT or kind[r] == STRING:
            continue
        end = -1
        if kind[r] == ESCAPED:
            end = _unquote(data, first[r], last[r]) if csv else _unescape(data, first[r], last[r])
        if end < 0:
            good[r] = False
        else:
            kind[r] = STRING
            last[r] = end


def read_strings(cells: Cells, field: int, csv: bool = False) -> None:
    """Decode the escapes of a field of strings, so that its slices are its text. Rows with something else become odd."""
    _strings(cells.data, csv, cells.kind[field], cells.first[field], cells.last[field], cells.good)


@lean_kernel
def _numbers(
    data: _Bytes,
    kind: _Bytes,
    first: _Places,
    last: _Places,
    good: _Flags,
    powers: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
    later: _Flags,
) -> None:
    for r in range(len(kind)):
        found = np.int64(kind[r])
        if not good[r] or found == ABSENT:
            continue
        i = first[r]
        end = last[r]
        if found == STRING:
            stop, found = _number(data, i)
            if stop != end:
                found = OTHER
        if found != INTEGER and found != NUMBER:
            good[r] = False
            continue
        negative = data[i] == _MINUS
        if negative:
            i += 1
        mantissa = 0
        digits = 0
        scale = 0
        fraction = 0
        while i < end and (data[i] | 0x20) != 0x65:
            c = data[i]
            if c == _POINT:
                fraction = 1
            else:
                if digits < 18:
                    mantissa = mantissa * 10 + (np.int64(c) - 0x30)
                if mantissa > 0:
                    digits += 1
                scale -= fraction
            i += 1
        plain = i == end
        if not plain:
            i += 1
            sign = 1
            if data[i] == _MINUS or data[i] == _PLUS:
                sign = -1 if data[i] == _MINUS else 1
                i += 1
            exponent = 0
            while i < end:
                exponent = min(exponent * 10 + (np.int64(data[i]) - 0x30), 10_000)
                i += 1
            scale += sign * exponent
        if digits <= 18 and mantissa <= 9_007_199_254_740_992 and -22 <= scale and scale <= 22:
            # a product or quotient of two exact doubles is rounded once, so correctly (Clinger, PLDI 1990)
            value = np.float64(mantissa)
            value = value * powers[scale] if scale >= 0 else value / powers[-scale]
            values[r] = -value if negative and not (found == INTEGER and mantissa == 0) else value
        elif plain and end - first[r] <= 300:
            later[r] = True
        else:
            good[r] = False


_POWERS = 10.0 ** np.arange(23)


def read_numbers(cells: Cells, field: int) -> npt.NDArray[np.float64]:
    """A field's numbers, rounded correctly; 0 where absent. Rows with something else, or an extreme one, become odd.

    A string counts as the number that it spells, which JSON has no use for: refuse strings before, where they are none.
    """
    kind, first, last = cells.kind[field], cells.first[field], cells.last[field]
    values, later = np.zeros(len(cells)), np.zeros(len(cells), np.bool_)
    _numbers(cells.data, kind, first, last, cells.good, _POWERS, values, later)
    rest = np.flatnonzero(later)
    if len(rest):
        values[rest] = numpy_view(pc.cast(gather(cells.data, first[rest], last[rest]), pa.float64()))
    return values


@lean_kernel
def _integer(data: _Bytes, i: int, end: int) -> tuple[int, bool]:
    """(value, whether it is one) of a decimal integer of at most 17 digits."""
    negative = data[i] == _MINUS
    if negative:
        i += 1
    if end - i > 17 or end == i:
        return 0, False
    value = 0
    while i < end:
        c = np.int64(data[i])
        if c < 0x30 or c > 0x39:
            return 0, False
        value = value * 10 + c - 0x30
        i += 1
    return (-value if negative else value), True


@lean_kernel
def _fixed(data: _Bytes, i: int, size: int) -> int:
    """The value of exactly ``size`` digits at ``i``; a large negative number where there are none."""
    value = 0
    for j in range(i, i + size):
        c = np.int64(data[j])
        if c < 0x30 or c > 0x39:
            return -1_000_000_000
        value = value * 10 + c - 0x30
    return value


@lean_kernel
def _iso(data: _Bytes, i: int, end: int) -> tuple[int, bool]:
    """(ms since 1970, whether it is one) of the common forms of ISO 8601.

    ``YYYY-MM-DD``, or that and ``T`` or a space, ``HH:MM``, ``:SS``, ``.mmm`` or ``.uuuuuu``, and ``Z``, ``+HH:MM`` or ``+HHMM``.
    """
    size = end - i
    if size < 10 or data[i + 4] != _MINUS or data[i + 7] != _MINUS:
        return 0, False
    year = _fixed(data, i, 4)
    month = _fixed(data, i + 5, 2)
    day = _fixed(data, i + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1:
        return 0, False
    leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 30 + (month + month // 8) % 2
    if month == 2:
        longest = 29 if leap else 28
    if day > longest:
        return 0, False
    # days from 1970-01-01 in the proleptic Gregorian calendar, years counted from March
    shifted = year - (1 if month <= 2 else 0)
    since_march = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + since_march - 719_468
    milliseconds = days * 86_400_000
    if size == 10:
        return milliseconds, True
    if size < 16 or (data[i + 10] != 0x54 and data[i + 10] != _SPACE) or data[i + 13] != _COLON:
        return 0, False
    hour = _fixed(data, i + 11, 2)
    minute = _fixed(data, i + 14, 2)
    second = 0
    fraction = 0
    i += 16
    if i < end and data[i] == _COLON:
        if end - i < 3:
            return 0, False
        second = _fixed(data, i + 1, 2)
        i += 3
        if i < end and data[i] == _POINT:
            width = min(_digits(data, i + 1), end) - i - 1
            if width != 3 and width != 6:
                return 0, False
            fraction = _fixed(data, i + 1, 3)
            i += 1 + width
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, False
    milliseconds += hour * 3_600_000 + minute * 60_000 + second * 1_000 + fraction
    if i == end or (i + 1 == end and data[i] == 0x5A):
        return milliseconds, True
    ahead = data[i] == _PLUS
    if not ahead and data[i] != _MINUS:
        return 0, False
    colon = 1 if end - i == 6 and data[i + 3] == _COLON else 0
    if end - i != 5 + colon:
        return 0, False
    hour = _fixed(data, i + 1, 2)
    minute = _fixed(data, i + 3 + colon, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59:
        return 0, False
    offset = hour * 3_600_000 + minute * 60_000
    return milliseconds - (offset if ahead else -offset), True


_TIMES, _DURATIONS, _COUNTS = 0, 1, 2


@lean_kernel
def _units(data: _Bytes, i: int, end: int) -> tuple[int, bool]:
    """(ms, whether it is one) of a duration such as ``30m``."""
    digits = _digits(data, i)
    unit = 0
    if end - digits == 1:
        c = data[digits]
        if c == 0x73:
            unit = 1_000
        elif c == 0x6D:
            unit = 60_000
        elif c == 0x68:
            unit = 3_600_000
        elif c == 0x64:
            unit = 86_400_000
        elif c == 0x77:
            unit = 604_800_000
    elif end - digits == 2 and data[digits] == 0x6D and data[digits + 1] == 0x73:
        unit = 1
    value, fine = _integer(data, i, digits)
    if unit == 0 or not fine or value > TIME_LIMIT // unit:
        return 0, False
    return value * unit, True


@lean_kernel
def _integers(
    data: _Bytes, what: int, text: bool, kind: _Bytes, first: _Places, last: _Places, good: _Flags, values: _Places
) -> None:
    low = -TIME_LIMIT if what == _TIMES else 0
    for r in range(len(kind)):
        found = kind[r]
        if not good[r] or found == ABSENT:
            continue
        value = 0
        fine = False
        if found == INTEGER or (found == STRING and text):
            value, fine = _integer(data, first[r], last[r])
        if found == STRING and not fine:
            if what == _TIMES:
                value, fine = _iso(data, first[r], last[r])
            elif what == _DURATIONS:
                value, fine = _units(data, first[r], last[r])
        if fine and low <= value and value <= TIME_LIMIT:
            values[r] = value
        else:
            good[r] = False


def _read_integers(cells: Cells, field: int, what: int, text: bool, absent: int) -> npt.NDArray[np.int64]:
    values = np.full(len(cells), absent, np.int64)
    kind, first, last = cells.kind[field], cells.first[field], cells.last[field]
    _integers(cells.data, what, text, kind, first, last, cells.good, values)
    return values


def read_times(cells: Cells, field: int, text: bool = False) -> npt.NDArray[np.int64]:
    """A field's timestamps in ms; 0 where absent. Rows with another value or an unusual form become odd.

    Args:
        cells: the records.
        field: the field.
        text: whether a string of digits counts as milliseconds.
    """
    return _read_integers(cells, field, _TIMES, text, 0)


def read_durations(cells: Cells, field: int, absent: int) -> npt.NDArray[np.int64]:
    """A field's durations in ms; ``absent`` where there is none. Rows with another value or an unusual form become odd."""
    return _read_integers(cells, field, _DURATIONS, False, absent)


def read_counts(cells: Cells, field: int) -> npt.NDArray[np.int64]:
    """A field's non-negative integers; 0 where absent. Rows with another value become odd."""
    return _read_integers(cells, field, _COUNTS, False, 0)


@lean_kernel
def _list_length(data: _Bytes, i: int, end: int) -> int:
    """Number of strings of a valid JSON array; -1 where it holds something else."""
    count = 0
    i = _space(data, i)
    while i < end:
        if data[i] != _QUOTE:
            return -1
        i, _ = _string(data, i + 1)
        i = _space(data, _space(data, i + 1) + 1)
        count += 1
    return count


@lean_kernel
def _count_items(
    data: _Bytes, text: _Bytes, listed: _Bytes, first: _Places, last: _Places, good: _Flags, groups: _Places
) -> None:
    total = 0
    for r in range(len(text)):
        if good[r]:
            if text[r] != ABSENT:
                total += 1
            elif listed[r] == ARRAY:
                count = _list_length(data, first[r], last[r])
                good[r] = count >= 0
                total += max(count, 0)
            elif listed[r] != ABSENT:
                good[r] = False
        groups[r + 1] = total


@lean_kernel
def _fill_items(
    data: _Bytes,
    text: _Bytes,
    text_first: _Places,
    text_last: _Places,
    first: _Places,
    groups: _Places,
    good: _Flags,
    starts: _Places,
    ends: _Places,
) -> None:
    for r in range(len(text)):
        if groups[r + 1] == groups[r]:
            continue
        if text[r] != ABSENT:
            starts[groups[r]] = text_first[r]
            ends[groups[r]] = text_last[r]
            continue
        i = first[r]
        for item in range(groups[r], groups[r + 1]):
            i = _space(data, i) + 1
            end, kind = _string(data, i)
            starts[item] = i
            ends[item] = end
            if kind == ESCAPED:
                ends[item] = _unescape(data, i, end)
                if ends[item] < 0:
                    ends[item] = i
                    good[r] = False
            i = _space(data, end + 1) + 1


def read_lists(cells: Cells, listed: int, text: int | None = None) -> tuple[_Places, _Places, _Places]:
    """Strings of each record: those of the JSON array in field ``listed``, or that of field ``text`` (read before); or none.

    Returns:
        groups int64[n + 1] and the slices' starts and ends: record r has the strings ``groups[r]`` to ``groups[r + 1]``.
        Rows with another value become odd; an odd row's strings, if it has any, are still valid text.
    """
    data, kind, first, last, good = cells.data, cells.kind, cells.first, cells.last, cells.good
    groups = np.zeros(len(cells) + 1, np.int64)
    single = np.full(len(cells), ABSENT, np.uint8) if text is None else kind[text]
    _count_items(data, single, kind[listed], first[listed], last[listed], good, groups)
    starts, ends = np.empty(groups[-1], np.int64), np.empty(groups[-1], np.int64)
    _fill_items(data, single, first[text or 0], last[text or 0], first[listed], groups, good, starts, ends)
    return groups, starts, ends


@lean_kernel
def _number_list(
    data: _Bytes, i: int, wanted: int, row: int, kind: npt.NDArray[np.uint8], first: _Places, last: _Places
) -> int:
    """Note the cells of an array of ``wanted`` numbers at ``i``; returns the position behind it, -1 where it is none."""
    if data[i] != _OPEN_ARRAY:
        return -1
    for j in range(wanted):
        i = _space(data, i + 1)
        end, found = _scalar(data, i)
        if end < 0 or (found != INTEGER and found != NUMBER):
            return -1
        kind[j, row] = found
        first[j, row] = i
        last[j, row] = end
        i = _space(data, end)
        if data[i] != (_CLOSE_ARRAY if j == wanted - 1 else _COMMA):
            return -1
    return i + 1


@lean_kernel
def _regions(
    data: _Bytes,
    given: _Bytes,
    begin: _Places,
    finish: _Places,
    good: _Flags,
    shapes: _Bytes,
    kind: npt.NDArray[np.uint8],
    first: _Places,
    last: _Places,
) -> None:
    for r in range(len(given)):
        if not good[r] or given[r] == ABSENT:
            continue
        good[r] = False
        if given[r] != OBJECT:
            continue
        i = _space(data, begin[r])
        if data[i] != _QUOTE:
            continue
        end, _ = _string(data, i + 1)
        size = end - i - 1
        shape = 0
        if size == 3 and data[i + 1] == 0x62 and data[i + 2] == 0x6F and data[i + 3] == 0x78:
            shape = 1
        elif size == 6 and data[i + 1] == 0x63 and data[i + 2] == 0x69 and data[i + 3] == 0x72:
            if data[i + 4] == 0x63 and data[i + 5] == 0x6C and data[i + 6] == 0x65:
                shape = 2
        if shape == 0:
            continue
        i = _space(data, _space(data, end + 1) + 1)
        i = _number_list(data, i, 5 - shape, r, kind, first, last)
        if i >= 0 and _space(data, i) == finish[r]:
            good[r] = True
            shapes[r] = shape


def read_regions(cells: Cells, field: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """A field of regions as (kind uint8[n], shape float64[n, 4]), not checked; rows with another value become odd."""
    n = len(cells)
    shapes, kind = np.zeros(n, np.uint8), np.zeros((4, n), np.uint8)
    first, last = np.zeros((4, n), np.int64), np.zeros((4, n), np.int64)
    given, begin, finish = cells.kind[field], cells.first[field], cells.last[field]
    _regions(cells.data, given, begin, finish, cells.good, shapes, kind, first, last)
    numbers = Cells(cells.data, cells.line, cells.start, cells.end, cells.good, kind, first, last)
    return shapes, np.stack([read_numbers(numbers, j) for j in range(4)], axis=1)


@lean_kernel
def _points(
    data: _Bytes,
    given: _Bytes,
    begin: _Places,
    good: _Flags,
    kind: npt.NDArray[np.uint8],
    first: _Places,
    last: _Places,
) -> None:
    for r in range(len(given)):
        if good[r] and given[r] != ABSENT:
            good[r] = given[r] == ARRAY and _number_list(data, begin[r] - 1, 2, r, kind, first, last) >= 0


def read_points(cells: Cells, field: int) -> npt.NDArray[np.float64]:
    """A field of points as float64[n, 2]; 0 where absent. Rows with another value become odd."""
    n = len(cells)
    kind, first, last = np.zeros((2, n), np.uint8), np.zeros((2, n), np.int64), np.zeros((2, n), np.int64)
    _points(cells.data, cells.kind[field], cells.first[field], cells.good, kind, first, last)
    numbers = Cells(cells.data, cells.line, cells.start, cells.end, cells.good, kind, first, last)
    return np.stack([read_numbers(numbers, 0), read_numbers(numbers, 1)], axis=1)


@lean_kernel
def _choices(
    data: _Bytes,
    names: _Bytes,
    bounds: _Places,
    kind: _Bytes,
    first: _Places,
    last: _Places,
    good: _Flags,
    chosen: npt.NDArray[np.int8],
) -> None:
    for r in range(len(kind)):
        if good[r]:
            choice = _field(data, first[r], last[r], names, bounds) if kind[r] == STRING else -1
            good[r] = choice >= 0
            chosen[r] = choice


def read_choices(cells: Cells, field: int, names: Sequence[str]) -> npt.NDArray[np.int8]:
    """Which of the names a field's string is, int8[n]; rows with another value, or none, become odd."""
    chosen = np.zeros(len(cells), np.int8)
    coded, bounds = _names(names)
    kind, first, last = cells.kind[field], cells.first[field], cells.last[field]
    _choices(cells.data, coded, bounds, kind, first, last, cells.good, chosen)
    return chosen


@lean_kernel
def _sizes(starts: _Places, ends: _Places, offsets: npt.NDArray[np.int32]) -> int:
    total = 0
    for s in range(len(starts)):
        total += ends[s] - starts[s]
        offsets[s + 1] = total
    return total


@lean_kernel
def _gather(data: _Bytes, starts: _Places, offsets: npt.NDArray[np.int32], out: _Bytes) -> None:
    for s in range(len(starts)):
        shift = starts[s] - offsets[s]
        for i in range(offsets[s], offsets[s + 1]):
            out[i] = data[shift + i]


def gather(data: _Bytes, starts: _Places, ends: _Places) -> pa.StringArray:
    """The slices of ``data`` as an Arrow utf8 column."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    out = np.empty(_sizes(starts, ends, offsets), np.uint8)
    _gather(data, starts, offsets, out)
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(out))


def prepare() -> None:
    """Compile every kernel of this module."""
    names = ["a", "b", "c", "d"]
    line = (
        b'{"a": "x\\n", "b": ["p", "q\\u00e9"], "c": {"box": [1, 2, 3, 4.25]}, "d": 1.2345678901234567891, "e": [{}]}'
    )
    cells = scan_json(line, names, 1)
    read_strings(cells, 0)
    read_lists(cells, 1)
    read_regions(cells, 2)
    read_numbers(cells, 3)
    read_choices(cells, 0, names)
    cells = scan_csv(b'"x""y",1s,2018-02-07T01:26Z,3\n', names, names, 1)
    read_strings(cells, 0, csv=True)
    read_durations(cells, 1, -1)
    read_times(cells, 2, text=True)
    read_counts(cells, 3)
    read_points(scan_json(b'{"a": [1, 2]}', names, 1), 0)
    csv_borders(line, np.zeros(2, np.int64), 1)

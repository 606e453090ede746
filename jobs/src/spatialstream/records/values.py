"""Parses cells: text to numbers, timestamps, durations, strings, lists, points and regions.

Each function parses one field of all records. It marks a record as odd, as :mod:`~.scan` does, if the cell has another
type of value, or an unusual form of the right one; another parser then reads the whole record. Values are exact:
numbers are rounded as Python's ``float`` rounds them (products and quotients of exact doubles here, the rest by
pyarrow), and timestamps are those of ``parse_time``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Bytes, Codes, Flags, Floats, Ints, numpy_view
from spatialstream.model.eight_bytes import byte, load, signed, spelling, spells
from spatialstream.model.kernels import lean_kernel
from spatialstream.model.times import TIME_LIMIT, TIME_UNITS
from spatialstream.records.scan import (
    ABSENT,
    ARRAY,
    BACKSLASH,
    CLOSE_ARRAY,
    COLON,
    COMMA,
    ESCAPED,
    INTEGER,
    MINUS,
    NUMBER,
    OBJECT,
    OPEN_ARRAY,
    OTHER,
    PLUS,
    POINT,
    QUOTE,
    SPACE,
    STRING,
    Cells,
    coded_names,
    digits_end,
    hexadecimal,
    name_of,
    note,
    number_end,
    scalar_end,
    scan_csv,
    scan_json,
    skip_space,
    string_end,
)

__all__ = [
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
]


@lean_kernel
def _unescape(data: Bytes, start: int, end: int) -> int:
    """Decode the escapes of a valid JSON string in place; returns its new end, or -1 if a surrogate has no partner."""
    i = start
    out = start
    while i < end:
        c = byte(data, i)
        i += 1
        if c == BACKSLASH:
            c = byte(data, i)
            i += 1
            if c == 0x75:  # \u
                c = hexadecimal(data, i)
                i += 4
                if c >= 0xD800 and c < 0xE000:
                    if c >= 0xDC00 or i + 6 > end or byte(data, i) != BACKSLASH or byte(data, i + 1) != 0x75:
                        return -1
                    low = hexadecimal(data, i + 2)
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
def _unquote(data: Bytes, start: int, end: int) -> int:
    """Replace doubled quotes of a CSV cell by single ones, in place; returns its new end."""
    i = start
    out = start
    while i < end:
        data[out] = byte(data, i)
        i += 2 if byte(data, i) == QUOTE else 1
        out += 1
    return out


@lean_kernel
def _strings(cells: Cells, csv: bool) -> None:
    data, good, kind, first, last = cells
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


def read_strings(cells: Cells, csv: bool = False) -> None:
    """Decode the escapes of a field of strings in place. Records with another value become odd."""
    _strings(cells, csv)


@lean_kernel
def _numbers(cells: Cells, powers: Floats, values: Floats, later: Flags) -> None:
    data, good, kind, first, last = cells
    for r in range(len(kind)):
        found = signed(kind[r])
        if not good[r] or found == ABSENT:
            continue
        i = first[r]
        end = last[r]
        if found == STRING:
            stop, found = number_end(data, i)
            if stop != end:
                found = OTHER
        if found != INTEGER and found != NUMBER:
            good[r] = False
            continue
        negative = byte(data, i) == MINUS
        if negative:
            i += 1
        mantissa = 0
        digits = 0
        scale = 0
        fraction = 0
        while i < end and (byte(data, i) | 0x20) != 0x65:
            c = byte(data, i)
            if c == POINT:
                fraction = 1
            else:
                if digits < 18:
                    mantissa = mantissa * 10 + (signed(c) - 0x30)
                if mantissa > 0:
                    digits += 1
                scale -= fraction
            i += 1
        if i < end:
            i += 1
            sign = 1
            if byte(data, i) == MINUS or byte(data, i) == PLUS:
                sign = -1 if byte(data, i) == MINUS else 1
                i += 1
            exponent = 0
            while i < end:
                exponent = min(exponent * 10 + (byte(data, i) - 0x30), 10_000)
                i += 1
            scale += sign * exponent
        if digits <= 18 and mantissa <= 9_007_199_254_740_992 and abs(scale) <= 22:
            # a product or quotient of two exact doubles is rounded once, so correctly (Clinger, PLDI 1990)
            value = np.float64(mantissa)
            value = value * powers[scale] if scale >= 0 else value / powers[-scale]
            values[r] = -value if negative and not (found == INTEGER and mantissa == 0) else value
        elif abs(scale + digits) < 290:  # neither too great for a double nor too small for a normal one
            later[r] = True
        else:
            good[r] = False


_POWERS = np.power(10.0, np.arange(23), dtype=np.float64)


def read_numbers(cells: Cells) -> Floats:
    """Parse a field of numbers, correctly rounded; absent ones are 0. Records with another or extreme value become odd.

    A string counts as the number that it spells; JSON does not allow that, so callers reject such strings before.
    """
    values, later = np.zeros(len(cells.good)), np.zeros(len(cells.good), np.bool_)
    _numbers(cells, _POWERS, values, later)
    rest = np.flatnonzero(later)
    if len(rest):
        spelt = gather(cells.data, cells.first[rest], cells.last[rest])
        values[rest] = numpy_view(pc.cast(spelt, pa.float64()))
    return values


@lean_kernel
def _integer(data: Bytes, i: int, end: int) -> tuple[int, bool]:
    """Parse a decimal integer of at most 17 digits: (value, whether it is one)."""
    negative = byte(data, i) == MINUS
    if negative:
        i += 1
    if end - i > 17 or end == i:
        return 0, False
    value = 0
    while i < end:
        c = byte(data, i)
        if c < 0x30 or c > 0x39:
            return 0, False
        value = value * 10 + c - 0x30
        i += 1
    return (-value if negative else value), True


@lean_kernel
def _fixed(data: Bytes, i: int, size: int) -> int:
    """The value of exactly ``size`` digits at ``i``; a large negative number if they are not all digits."""
    value = 0
    for j in range(i, i + size):
        c = byte(data, j)
        if c < 0x30 or c > 0x39:
            return -1_000_000_000
        value = value * 10 + c - 0x30
    return value


@lean_kernel
def _iso(data: Bytes, i: int, end: int) -> tuple[int, bool]:
    """Parse a timestamp in one of the common forms of ISO 8601: (ms since 1970, whether it is one).

    ``YYYY-MM-DD``; or that, ``T``, ``t`` or a space, and ``HH:MM[:SS[.mmm|.uuuuuu]][Z|+HH:MM|+HHMM]``.
    """
    size = end - i
    if size < 10 or byte(data, i + 4) != MINUS or byte(data, i + 7) != MINUS:
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
    between = byte(data, i + 10)
    if size < 16 or ((between | 0x20) != 0x74 and between != SPACE) or byte(data, i + 13) != COLON:
        return 0, False
    hour = _fixed(data, i + 11, 2)
    minute = _fixed(data, i + 14, 2)
    second = 0
    fraction = 0
    i += 16
    if i < end and byte(data, i) == COLON:
        if end - i < 3:
            return 0, False
        second = _fixed(data, i + 1, 2)
        i += 3
        if i < end and byte(data, i) == POINT:
            width = min(digits_end(data, i + 1), end) - i - 1
            if width != 3 and width != 6:
                return 0, False
            fraction = _fixed(data, i + 1, 3)
            i += 1 + width
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, False
    milliseconds += hour * 3_600_000 + minute * 60_000 + second * 1_000 + fraction
    if i == end or (i + 1 == end and byte(data, i) == 0x5A):
        return milliseconds, True
    ahead = byte(data, i) == PLUS
    if not ahead and byte(data, i) != MINUS:
        return 0, False
    colon = 1 if end - i == 6 and byte(data, i + 3) == COLON else 0
    if end - i != 5 + colon:
        return 0, False
    hour = _fixed(data, i + 1, 2)
    minute = _fixed(data, i + 3 + colon, 2)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59:
        return 0, False
    offset = hour * 3_600_000 + minute * 60_000
    return milliseconds - (offset if ahead else -offset), True


_TIMES, _DURATIONS, _COUNTS = range(3)
_MILLISECONDS = spelling(b"ms")


_UNITS = np.zeros(256, np.int64)
_UNITS[[ord(unit) for unit in "smhdw"]] = 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000


@lean_kernel
def _duration(data: Bytes, i: int, end: int) -> tuple[int, bool]:
    """Parse a duration such as ``30m``: (ms, whether it is one)."""
    digits = digits_end(data, i)
    unit = 0
    if end - digits == 1:
        unit = _UNITS[byte(data, digits)]
    elif end - digits == 2 and spells(load(data, digits), _MILLISECONDS):
        unit = 1
    value, fine = _integer(data, i, digits)
    if unit == 0 or not fine or value > TIME_LIMIT // unit:
        return 0, False
    return value * unit, True


@lean_kernel
def _integers(cells: Cells, what: int, unit: int, values: Ints) -> None:
    """Read a field's integers; those that are times are of a unit of so many microseconds, and others of 1,000."""
    data, good, kind, first, last = cells
    low = -TIME_LIMIT if what == _TIMES else 0
    most = TIME_LIMIT * 1_000 // unit
    for r in range(len(kind)):
        found = kind[r]
        if not good[r] or found == ABSENT:
            continue
        value = 0
        fine = False
        if found == INTEGER or (found == STRING and what == _TIMES):
            value, fine = _integer(data, first[r], last[r])
            if unit != 1_000 and fine:
                value = value * unit // 1_000 if abs(value) <= most else TIME_LIMIT + 1
        if found == STRING and not fine:
            if what == _TIMES:
                value, fine = _iso(data, first[r], last[r])
            elif what == _DURATIONS:
                value, fine = _duration(data, first[r], last[r])
        if fine and low <= value and value <= TIME_LIMIT:
            values[r] = value
        else:
            good[r] = False


def _read_integers(cells: Cells, what: int, absent: int, unit: str = "ms") -> Ints:
    values = np.full(len(cells.good), absent, np.int64)
    _integers(cells, what, TIME_UNITS[unit], values)
    return values


def read_times(cells: Cells, unit: str = "ms") -> Ints:
    """Parse a field of timestamps to ms; absent ones are 0. Records with another value or form become odd.

    Args:
        cells: the field.
        unit: of those that are numbers, see :data:`~spatialstream.model.times.TIME_UNITS`.
    """
    return _read_integers(cells, _TIMES, 0, unit)


def read_durations(cells: Cells, absent: int) -> Ints:
    """Parse a field of durations to ms, or ``absent``. Records with another value or form become odd."""
    return _read_integers(cells, _DURATIONS, absent)


def read_counts(cells: Cells) -> Ints:
    """Parse a field of non-negative integers; absent ones are 0. Records with another value become odd."""
    return _read_integers(cells, _COUNTS, 0)


@lean_kernel
def _list_length(data: Bytes, i: int, end: int) -> int:
    """Number of strings of a valid JSON array; -1 if it has another element."""
    count = 0
    i = skip_space(data, i)
    while i < end:
        if byte(data, i) != QUOTE:
            return -1
        i, _ = string_end(data, i + 1)
        i = skip_space(data, skip_space(data, i + 1) + 1)
        count += 1
    return count


@lean_kernel
def _count_items(lists: Cells, text: Bytes, groups: Ints) -> None:
    data, good, listed, first, last = lists
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
def _fill_items(lists: Cells, texts: Cells, groups: Ints, starts: Ints, ends: Ints) -> None:
    data, good, _, first, _ = lists
    for r in range(len(good)):
        if groups[r + 1] == groups[r]:
            continue
        if texts.kind[r] != ABSENT:
            starts[groups[r]] = texts.first[r]
            ends[groups[r]] = texts.last[r]
            continue
        i = first[r]
        for item in range(groups[r], groups[r + 1]):
            i = skip_space(data, i) + 1
            end, kind = string_end(data, i)
            starts[item] = i
            ends[item] = end
            if kind == ESCAPED:
                ends[item] = _unescape(data, i, end)
                if ends[item] < 0:
                    ends[item] = i
                    good[r] = False
            i = skip_space(data, end + 1) + 1


def read_lists(lists: Cells, texts: Cells | None = None) -> tuple[Ints, Ints, Ints]:
    """Strings of each record: those of an array, or one of a field of texts that has been read, or none.

    Returns:
        groups int64[n + 1], starts and ends of slices: record r has those from ``groups[r]`` to ``groups[r + 1]``. Rows
        with another value become odd; an odd row's strings, if it has any, are still valid text.
    """
    if texts is None:
        texts = lists._replace(kind=np.full_like(lists.kind, ABSENT))
    groups = np.zeros(len(lists.good) + 1, np.int64)
    _count_items(lists, texts.kind, groups)
    starts, ends = np.empty((2, groups[-1]), np.int64)
    _fill_items(lists, texts, groups, starts, ends)
    return groups, starts, ends


@lean_kernel
def _number_list(numbers: Cells, i: int, wanted: int, row: int) -> int:
    """Note the cells of an array of ``wanted`` numbers at ``i``; the position behind it, -1 where it is none."""
    data = numbers.data
    if byte(data, i) != OPEN_ARRAY:
        return -1
    for j in range(wanted):
        i = skip_space(data, i + 1)
        end, found = scalar_end(data, i)
        if end < 0 or (found != INTEGER and found != NUMBER):
            return -1
        note(numbers, j, row, found, i, end)
        i = skip_space(data, end)
        if byte(data, i) != (CLOSE_ARRAY if j == wanted - 1 else COMMA):
            return -1
    return i + 1


_BOX, _CIRCLE = spelling(b'box"'), spelling(b'circle"')


@lean_kernel
def _regions(regions: Cells, shapes: Bytes, numbers: Cells) -> None:
    data, good, given, begin, finish = regions
    for r in range(len(given)):
        if not good[r] or given[r] == ABSENT:
            continue
        good[r] = False
        if given[r] != OBJECT:
            continue
        i = skip_space(data, begin[r])
        if byte(data, i) != QUOTE:
            continue
        name = load(data, i + 1)
        if spells(name, _BOX):
            shape = 1
            i += 5
        elif spells(name, _CIRCLE):
            shape = 2
            i += 8
        else:
            continue
        i = skip_space(data, skip_space(data, i) + 1)
        i = _number_list(numbers, i, 5 - shape, r)
        if i >= 0 and skip_space(data, i) == finish[r]:
            good[r] = True
            shapes[r] = shape


def read_regions(cells: Cells) -> tuple[Bytes, Floats]:
    """A field of regions as (kind uint8[n], shape float64[n, 4]), not checked; rows with another value become odd."""
    shapes, numbers = np.zeros(len(cells.good), np.uint8), cells.room(4)
    _regions(cells, shapes, numbers)
    return shapes, np.stack([read_numbers(numbers.field(j)) for j in range(4)], axis=1)


@lean_kernel
def _points(points: Cells, numbers: Cells) -> None:
    _, good, given, begin, _ = points
    for r in range(len(given)):
        if good[r] and given[r] != ABSENT:
            good[r] = given[r] == ARRAY and _number_list(numbers, begin[r] - 1, 2, r) >= 0


def read_points(cells: Cells) -> Floats:
    """A field of points as float64[n, 2]; 0 where absent. Rows with another value become odd."""
    numbers = cells.room(2)
    _points(cells, numbers)
    return np.stack([read_numbers(numbers.field(j)) for j in range(2)], axis=1)


@lean_kernel
def _choices(cells: Cells, names: Bytes, bounds: Ints, chosen: npt.NDArray[np.int8]) -> None:
    data, good, kind, first, last = cells
    for r in range(len(kind)):
        if good[r]:
            choice = name_of(data, first[r], last[r], names, bounds) if kind[r] == STRING else -1
            good[r] = choice >= 0
            chosen[r] = choice


def read_choices(cells: Cells, names: Sequence[str]) -> npt.NDArray[np.int8]:
    """The index of a field's string among the names, int8[n]. Records with another value, or none, become odd."""
    chosen = np.zeros(len(cells.good), np.int8)
    _choices(cells, *coded_names(names), chosen)
    return chosen


@lean_kernel
def _sizes(starts: Ints, ends: Ints, offsets: Codes) -> int:
    total = 0
    for s in range(len(starts)):
        total += ends[s] - starts[s]
        offsets[s + 1] = total
    return total


@lean_kernel
def _gather(data: Bytes, starts: Ints, offsets: Codes, out: Bytes) -> None:
    for s in range(len(starts)):
        shift = starts[s] - offsets[s]
        for i in range(offsets[s], offsets[s + 1]):
            out[i] = byte(data, shift + i)


def gather(data: Bytes, starts: Ints, ends: Ints) -> pa.StringArray:
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
    a, b, c, d = map(scan_json(line, names, 1).cells.field, range(4))
    read_strings(a)
    read_lists(b)
    read_regions(c)
    read_numbers(d)
    read_choices(a, names)
    a, b, c, d = map(scan_csv(b'"x""y",1s,2018-02-07T01:26Z,3\n', names, names, 1).cells.field, range(4))
    read_strings(a, csv=True)
    read_durations(b, -1)
    read_times(c)
    read_counts(d)
    read_points(scan_json(b'{"a": [1, 2]}', names, 1).cells.field(0))

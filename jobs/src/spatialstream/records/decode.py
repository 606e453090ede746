"""Fast decoding of input records: objects from JSON Lines or CSV as bytes, in bulk.

Records that the scanner certainly understands become columns at once (:mod:`~.scan`, :mod:`~.values`,
:mod:`~.tokens`); every other one is parsed alone (:mod:`~.reference`), with the same outcome as if all were. Cost:
about a microsecond for a record on the fast path, ten for others. :mod:`~.decode_tables` and :mod:`~.decode_queries` do
the same for Arrow tables and for queries.

CSV has no types. There, an empty cell is absent, and a quoted empty cell an empty string; coordinates are JSON numbers;
there is no ``terms``. Spaces around coordinates and times are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Flags, Floats, numpy_view
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import LONGEST_TEXT, TEXT, stored_columns
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records import scan, tokens, values
from spatialstream.records.properties import read_properties
from spatialstream.records.reference import (
    Decoded,
    Reference,
    csv_object,
    csv_value,
    in_unit,
    json_value,
    names_of,
    object_fields,
)
from spatialstream.records.scan import ABSENT, INTEGER, MINUS, NUMBER, STRING, Cells, scan_csv, scan_json
from spatialstream.records.tokens import tokenise_slices

__all__ = ["block_of", "decode_csv", "decode_objects", "fits", "prepare", "whole_ids", "within"]

_MOST_ESCAPED = 6
"""Maximum bytes that a byte of a text takes in JSON."""

_BOM = b"\xef\xbb\xbf"


def within(numbers: Floats, low: float, high: float) -> Flags:
    """Which numbers are in a closed interval."""
    return (numbers >= low) & (numbers <= high)


def whole_ids(ids: Cells) -> None:
    """Take ids that are integers as the digits that stand there; JSON's ``-0`` is left to the exact parser."""
    whole = np.flatnonzero(ids.kind == INTEGER)
    if len(whole):
        first = ids.first[whole]
        zero = (ids.data[first] == MINUS) & (ids.data[first + 1] == ord("0"))
        ids.kind[whole[~zero]] = STRING


def _read_objects(
    cells: Mapping[str, Cells], space: Space, rule: TermRule, unit: str, csv: bool = False
) -> ObjectBatch:
    """The good records as objects, from the cells of each field; marks more of them as odd."""
    name, text, terms = cells["id"], cells["text"], cells["terms"]
    data, good = name.data, name.good
    for field in ("id", "t", *space.axes):
        good &= cells[field].kind != ABSENT
    if not csv:
        for axis in space.axes:
            good &= (cells[axis].kind == INTEGER) | (cells[axis].kind == NUMBER)
    good &= (text.kind != ABSENT) ^ (terms.kind != ABSENT)
    t = values.read_times(cells["t"], unit)
    x, y = (values.read_numbers(cells[axis]) for axis in space.axes)
    good &= within(x, space.west, space.east) & within(y, space.south, space.north)
    whole_ids(name)
    values.read_strings(name, csv)
    values.read_strings(text, csv)
    properties = PropertyColumns(len(good), read_properties(cells, rule.properties, unit, csv))
    groups, starts, ends = values.read_lists(terms, text)
    lists, _ = tokenise_slices(data, starts, ends, groups, rule, counted=rule.counts)
    kept = _kept_texts(text, rule)
    rows: Any = slice(None)
    if not good.all():
        rows = np.flatnonzero(good)
        lists, properties = lists.take(rows), properties.take(rows)
        kept = kept.take(pa.array(rows))
    ids = values.gather(data, name.first[rows], name.last[rows])
    stored = stored_columns(rule.fields or (), kept, properties)
    return ObjectBatch(ids, t[rows], x[rows], y[rows], lists, properties, stored)


def _kept_texts(text: Cells, rule: TermRule) -> pa.Array:
    """The texts of good records, null where there is none, if the stream keeps them; marks more records as odd."""
    n = len(text.good)
    if TEXT not in (rule.fields or ()):
        return pa.nulls(n, pa.string())
    there = text.good & (text.kind != ABSENT)
    texts = values.gather(text.data, *(np.where(there, each, 0) for each in (text.first, text.last)))
    text.good[:] &= fits(texts)
    return pc.if_else(pa.array(there), texts, pa.scalar(None, pa.string()))


def fits(texts: pa.StringArray) -> Flags:
    """Which texts are certainly short enough to be kept."""
    fits: Flags = numpy_view(pc.fill_null(pc.binary_length(texts), 0)) <= LONGEST_TEXT // _MOST_ESCAPED - 2
    return fits


def block_of(data: bytes | pa.Buffer, first_line: int) -> memoryview:
    """The bytes of lines, without a byte order mark at the beginning of the first."""
    block = memoryview(data)
    return block[len(_BOM) :] if first_line == 1 and block[: len(_BOM)] == _BOM else block


def decode_objects(
    data: bytes | pa.Buffer,
    first_line: int = 1,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Decoded[ObjectBatch]:
    """Objects from whole lines of JSON, as :func:`~.objects.parse_object` reads each. Blank lines are skipped.

    Args:
        data: the lines; below 2 GiB.
        first_line: the number of the first of them.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: names in the input of those fields that have another than their own.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.
    """
    block = block_of(data, first_line)
    parse, read = in_unit(parse_object, unit), partial(_read_objects, unit=unit)
    reference = Reference(parse, ObjectBatch, object_fields(space, rule), columns or {}, space, rule)
    return reference.decode(block, lambda names: scan_json(block, names, first_line), read, json_value)


def decode_csv(
    data: bytes | pa.Buffer,
    header: Sequence[str],
    first_line: int = 2,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    columns: Mapping[str, str] | None = None,
    unit: str = "ms",
) -> Decoded[ObjectBatch]:
    """Objects from whole CSV records (RFC 4180) without the header line; see the module for how cells are read.

    Args:
        data: the records; below 2 GiB.
        header: names of the columns.
        first_line: the number of the first line.
        space: the space in which the objects lie.
        rule: which terms count.
        columns: names in the header of those fields that have another than their own.
        unit: of times that are numbers: ``"s"``, ``"ms"`` or ``"us"``.
    """
    block, fields = memoryview(data), object_fields(space, rule)
    # always by name, so that only the cells of fields are looked at
    reference = Reference(
        partial(csv_object, unit=unit), ObjectBatch, fields, names_of(fields, columns or {}), space, rule
    )
    return reference.decode(
        block,
        lambda names: scan_csv(block, header, names, first_line),
        partial(_read_objects, unit=unit, csv=True),
        lambda raw: csv_value(raw, header),
    )


def prepare() -> None:
    """Compile every kernel that decoding runs."""
    tokens.prepare()
    scan.prepare()
    values.prepare()

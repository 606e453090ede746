"""Queries from JSON Lines in bulk; see :mod:`~.decode` for which of them are read one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.arrays import Bytes, Flags, Floats
from spatialstream.model.geometry import BOX, CIRCLE
from spatialstream.model.kinds import CANCEL, IS_CONTINUOUS, KINDS, NAMES, having
from spatialstream.model.lifetimes import MOST_STEPS, endless_durations
from spatialstream.model.queries import QueryBatch, nobody, parse_query
from spatialstream.model.regions import Regions
from spatialstream.model.schema import LARGEST_K, LONGEST_BY, QUERY_FIELDS
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, SUBSCRIPTIONS, TermRule
from spatialstream.records import scan, values
from spatialstream.records.decode import block_of, whole_ids, within
from spatialstream.records.reference import Decoded, Reference, in_unit, json_value
from spatialstream.records.scan import ABSENT, Cells, scan_json
from spatialstream.records.tokens import tokenise_slices

__all__ = ["decode_queries"]

_GIVEN = QUERY_FIELDS[3:]


def _bits(fields: Iterable[Sequence[str]]) -> npt.NDArray[np.uint32]:
    """For each code: its fields, as bits in the order of ``_GIVEN``; a cancellation has none."""
    return np.array([*(sum(1 << _GIVEN.index(field) for field in each) for each in fields), 0], np.uint32)


_RANKED = having(lambda kind: kind.is_ranked)
_SERVED = IS_CONTINUOUS | (np.arange(len(IS_CONTINUOUS)) == CANCEL)
_REQUIRED_BITS, _OPTIONAL_BITS = _bits(kind.required for kind in KINDS), _bits(kind.optional for kind in KINDS)


def _check_regions(kind: Bytes, shape: Floats, space: Space) -> Flags:
    """Which regions are valid, as :func:`~.regions.parse_region` says."""
    a, b, c, d = shape.T
    point = within(a, space.west, space.east) & within(b, space.south, space.north)
    if space.geographic:
        box = point & within(c, space.west, space.east) & within(d, space.south, space.north)
    else:
        box = a <= c
    return np.select([kind == BOX, kind == CIRCLE], [box & (b <= d), point & (c >= 0.0)], True)


def _read_queries(cells: Mapping[str, Cells], space: Space, rule: TermRule, unit: str) -> QueryBatch:
    """The good records as queries, from the cells of each field; marks more of them as odd."""
    name = cells["id"]
    data, good = name.data, name.good
    for field in ("id", "type", "t"):
        good &= cells[field].kind != ABSENT
    code = values.read_choices(cells["type"], NAMES)
    given = np.zeros(len(good), np.uint32)
    for bit, field in enumerate(_GIVEN):
        given |= (cells[field].kind != ABSENT).astype(np.uint32) << np.uint32(bit)
    for field in ("any", "none", "where", "fields"):  # what is nested is read one by one
        good &= cells[field].kind == ABSENT
    good &= ~_RANKED[code]  # and so are queries that rank
    if rule.serves == SUBSCRIPTIONS:  # and those that are refused
        good &= _SERVED[code]
    code[~good] = CANCEL
    required = _REQUIRED_BITS[code]
    good &= (given & ~_OPTIONAL_BITS[code]) == required
    t = values.read_times(cells["t"], unit)
    duration = values.read_durations(cells["duration"], absent=-1)
    window, step = (values.read_durations(cells[field], absent=-1) for field in ("window", "step"))
    duration = np.where(duration >= 0, duration, np.where(IS_CONTINUOUS[code], endless_durations(step), 0))
    k = values.read_counts(cells["k"])
    at = values.read_points(cells["at"])
    kind, shape = values.read_regions(cells["region"])
    whole_ids(name)
    values.read_strings(name)
    good &= (k >= ((required >> np.uint32(_GIVEN.index("k"))) & 1)) & (k <= LARGEST_K) & (step != 0)
    good &= (step < 0) | (duration // np.maximum(step, 1) <= MOST_STEPS)
    with_at = cells["at"].kind != ABSENT
    good &= ~with_at | (within(at[:, 0], space.west, space.east) & within(at[:, 1], space.south, space.north))
    good &= _check_regions(kind, shape, space)
    groups, starts, ends = values.read_lists(cells["keywords"])
    keywords, has_term = tokenise_slices(data, starts, ends, groups, rule)
    good[np.searchsorted(groups, np.flatnonzero(~has_term), side="right") - 1] = False
    good &= np.diff(keywords.offsets) <= rule.query_words
    by = cells["by"]
    values.read_strings(by)
    said = by.kind != ABSENT
    begin, end = (np.where(said, each, 0) for each in (by.first, by.last))
    good &= ~said | ((end > begin) & (end - begin <= LONGEST_BY))
    good &= cells["title"].kind <= scan.ESCAPED
    rows: Any = slice(None)
    if not good.all():
        rows = np.flatnonzero(good)
        keywords = keywords.take(rows)
    return QueryBatch(
        values.gather(data, name.first[rows], name.last[rows]),
        code[rows],
        t[rows],
        duration[rows],
        window[rows],
        step[rows],
        k[rows].astype(np.int32),
        at[rows],
        Regions.plain(kind[rows], shape[rows]),
        keywords,
        values.gather(data, begin[rows], end[rows]),
        nobody(len(t[rows])),
    )


def decode_queries(
    data: bytes | pa.Buffer,
    first_line: int = 1,
    space: Space = WGS84,
    rule: TermRule = DEFAULT_RULE,
    unit: str = "ms",
) -> Decoded[QueryBatch]:
    """Queries and cancellations from whole lines of JSON, as :func:`~.queries.parse_query` reads each.

    The arguments are those of :func:`decode_objects`.
    """
    block = block_of(data, first_line)
    parse, read = in_unit(parse_query, unit), partial(_read_queries, unit=unit)
    reference = Reference(parse, QueryBatch, (*QUERY_FIELDS, "title"), {}, space, rule)
    return reference.decode(block, lambda names: scan_json(block, names, first_line), read, json_value)

"""Polygons in one array are the same polygons, and the same table."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.model.polygons.column import PolygonColumn, PolygonSet
from spatialstream.model.polygons.packing import packed_polygons, table_of, unpacked_polygons
from spatialstream.model.polygons.table import PolygonTable
from spatialstream.model.space import WGS84, Space
from tests.unit.model.polygons.shapes import polygons

SPACES = pytest.mark.parametrize("space", [WGS84, Space.planar(-2.0, 1.0, 3.0, 5.0)], ids=str)


@SPACES
def test_polygons_in_one_array_come_back_and_their_table_is_the_same(space: Space) -> None:
    some = tuple(polygon for _, polygon in islice(polygons(space, 3), 60))
    packed = packed_polygons(some)
    for name, views, built in zip(PolygonTable._fields, table_of(packed), PolygonTable.of(some), strict=True):
        assert views.dtype == built.dtype, name
        assert np.array_equal(views, built), name
    assert unpacked_polygons(packed, space.geographic) == some
    assert {len(each.parts) for each in some} == {2, 3}, "one part and two"
    assert any(len(each.rings) > len(each.parts) for each in some), "holes"


def test_no_polygons_are_an_empty_array() -> None:
    assert packed_polygons(()).shape == (0,)
    assert unpacked_polygons(packed_polygons(()), True) == ()
    assert len(table_of(packed_polygons(())).x) == 0


def test_a_column_keeps_each_polygon_once_through_all_its_forms() -> None:
    a, b, c = (polygon for _, polygon in islice(polygons(WGS84, 5), 3))
    rows = [a, None, b, a, None, c]
    column = PolygonColumn.of(rows)
    assert len(column.distinct) == 3
    back = PolygonColumn.from_arrow(column.to_arrow())
    assert [back[i] for i in range(6)] == rows
    taken = column.take(np.array([4, 2, 0, 3]))
    assert ([taken[i] for i in range(4)], len(taken.distinct)) == ([None, b, a, a], 2)
    joined = PolygonColumn.concat([taken, column, PolygonColumn.none(1)])
    assert ([joined[i] for i in range(11)], len(joined.distinct)) == ([None, b, a, a, *rows, None], 3)
    assert column.to_arrow().type == pa.dictionary(pa.int32(), pa.binary())


def test_a_set_numbers_polygons_as_they_come_and_drops_those_not_kept() -> None:
    a, b, c = (polygon for _, polygon in islice(polygons(WGS84, 5), 3))
    known = PolygonSet()
    assert known.codes(PolygonColumn.of([b, None, a, b])).tolist() == [0, -1, 1, 0]
    assert known.codes(PolygonColumn.of([c, a])).tolist() == [2, 1]
    assert known.codes(PolygonColumn.none(2)).tolist() == [-1, -1]
    assert [known.column(np.array([2, -1], np.int32))[i] for i in range(2)] == [c, None]
    assert known.keep(np.array([2, -1, 0, 2], np.int32)).tolist() == [1, -1, 0, 1]
    assert known.polygons == (b, c)

"""Columns of properties, and the tables made of them, give the values back."""

from random import Random

import numpy as np
import pyarrow as pa

from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.table import PropertyTable
from tests.unit.model.properties.conditions import values


def rows_of(columns):
    return [dict(columns[i]) for i in range(len(columns))]


def test_columns_and_tables_keep_values_and_gaps():
    random = Random(1)
    given = [values(random) for _ in range(300)]
    columns = PropertyColumns.of([tuple(each.items()) for each in given])
    assert rows_of(columns) == given
    assert rows_of(PropertyColumns.from_arrow(columns.to_arrow())) == given
    table = PropertyTable.of(columns)
    assert rows_of(table.columns()) == given
    assert {name: each.type for name, each in table.columns().columns.items()} == {
        name: each.type for name, each in columns.columns.items()
    }
    order = np.array(random.sample(range(300), 100))
    assert rows_of(table.take(order).columns()) == [given[i] for i in order]
    assert rows_of(columns.take(order)) == [given[i] for i in order]
    assert rows_of(PropertyTable.of(columns.slice(20, 70)).columns()) == given[20:70]
    assert rows_of(PropertyTable.from_arrays(table.to_arrays()).columns()) == given


def test_parts_with_other_columns_are_joined():
    some, others = PropertyColumns.of([(("a", "x"),), ()]), PropertyColumns.of([(("b", 1.0),)])
    joined = PropertyColumns.concat([some, PropertyColumns.none(2), others])
    assert rows_of(joined) == [{"a": "x"}, {}, {}, {}, {"b": 1.0}]
    assert joined.columns["b"].type == pa.float64()
    tables = [PropertyTable.of(some), None, PropertyTable.of(others)]
    table = PropertyTable.concat(tables, [2, 2, 1])
    assert table is not None
    assert rows_of(table.columns()) == rows_of(joined)
    assert PropertyTable.concat([None, None], [1, 2]) is None
    assert len(PropertyColumns.concat([PropertyColumns.none(1), PropertyColumns.none(3)])) == 4


def test_each_distinct_keyword_is_kept_once():
    table = PropertyTable.of(PropertyColumns.of([(("a", "long keyword"),)] * 1_000))
    assert len(table.data) == len("long keyword")


def test_properties_that_are_times_are_given_without_gaps():
    columns = PropertyColumns.of([(("seen", 7), ("name", "x")), (), (("seen", -5), ("size", 1.0))])
    assert {name: t.tolist() for name, t in columns.times()} == {"seen": [7, -5]}
    assert {name: t.dtype for name, t in columns.slice(2, 3).times()} == {"seen": np.int64}

"""Properties in records of any form: the fast path reads what the exact parser reads, and both reject the same."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from random import Random

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spatialstream.model.errors import RecordError
from spatialstream.model.objects import ObjectBatch, parse_object
from spatialstream.model.properties.declared import ARROW
from spatialstream.model.space import WGS84
from spatialstream.oracle.files import read_objects
from spatialstream.records.decode import decode_csv, decode_objects
from spatialstream.records.decode_tables import decode_object_table
from tests.lengths import examples
from tests.streams import FIELDS, PROPERTIES
from tests.streams import RULE as DECLARED

RULE = replace(DECLARED, fields=FIELDS)
"""Of a stream that keeps what its objects said, too."""

KEYWORDS = ['"de"', '""', '"\\u00e9\\n"', '"it\'s, \\"q\\""', f'"{"x" * 4_096}"', f'"{"x" * 4_097}"', "5", "true", "[]"]
NUMBERS = ["1", "-0", "2.5", "-0.0", "1e300", "5e-324", "1e400", "123456789012345678901", '"1"', "true", "{}", "1.5e-3"]
TIMES = ["0", "-7", '"2026-01-01"', '"2026-01-01T00:00:00.123Z"', '"noon"', "1.5", '"5"', "true", "9" * 17, '""']
BOOLEANS = ["true", "false", "1", '"true"', '""']
SPELT = {"country": KEYWORDS, "priority": NUMBERS, "seen": TIMES, "open": BOOLEANS}
BASE = {"id": "o", "t": 5, "lon": 1.0, "lat": 2.0, "text": 'fire, "é" \\'}


def lines(random, odd):
    """Records as JSON, each of whose properties may be missing, null, or of another type."""
    for i in range(200):
        fields = [f'"{name}": {json.dumps(value)}' for name, value in (BASE | {"id": f"o{i}"}).items()]
        for name, spellings in SPELT.items():
            usual = spellings[:2] if random.random() > odd else spellings
            if random.random() < 0.7:
                fields.append(f'"{name}": {random.choice([*usual, "null"])}')
        random.shuffle(fields)
        yield "{" + ", ".join(fields) + "}"


def parsed(records, rule=RULE):
    """(accepted objects, reasons by line) of records, one by one."""
    accepted, reasons = [], {}
    for number, record in enumerate(records, 1):
        try:
            accepted.append(parse_object(record, WGS84, rule))
        except RecordError as error:
            reasons[number] = str(error)
    return accepted, reasons


def read(decoded):
    batch = decoded.batch
    rejected = zip(
        decoded.rejected.column("line").to_pylist(), decoded.rejected.column("reason").to_pylist(), strict=True
    )
    return [batch[i] for i in range(len(batch))], dict(rejected)


def types_of(batch):
    return {name: column.type for name, column in batch.properties.columns.items()}


def test_json_is_read_as_the_exact_parser_reads_it():
    random = Random(5)
    for turn in range(examples(20, 200)):
        given = list(lines(random, [0.0, 0.1, 0.5][turn % 3]))
        decoded = decode_objects("\n".join(given).encode(), rule=RULE)
        assert read(decoded) == parsed(map(json.loads, given))
        assert types_of(decoded.batch) == {name: ARROW[kind] for name, kind in PROPERTIES.types}


def test_a_record_whose_every_property_is_missing_has_the_columns_too():
    decoded = decode_objects(json.dumps(BASE).encode(), rule=RULE)
    assert decoded.batch[0].properties == ()
    assert list(decoded.batch.properties.columns) == list(PROPERTIES.names)


def test_without_declarations_fields_are_unknown_and_there_are_no_columns():
    decoded = decode_objects(json.dumps(BASE | {"country": "de"}).encode())
    assert decoded.batch.properties.columns == {}
    assert decoded.unknown == {"country": 1}
    assert decode_objects(json.dumps(BASE | {"country": "de"}).encode(), rule=RULE).unknown == {}


def test_the_dead_letter_names_the_field_and_both_types():
    decoded = decode_objects(json.dumps(BASE | {"priority": "high"}).encode(), rule=RULE)
    assert decoded.rejected.column("reason").to_pylist() == [
        "priority: 'high' is a string, and priority is declared as number; give a number"
    ]


CELLS = {
    "country": ["de", "", "é, x", "5", " de "],
    "priority": ["1", "-2.5", "1e3", " 7 ", "", " ", "high", "nan", "1e999", "+1", ".5"],
    "seen": ["0", " 5 ", "2026-01-01", "2026-01-01T00:00:00Z", "", "noon", "1.5", " "],
    "open": ["true", "false", "", "TRUE", " false ", "1", "yes"],
}


@pytest.mark.parametrize("unit", ["ms", "s"])
def test_csv_is_read_as_the_oracle_reads_it(unit, tmp_path):
    random = Random(8)
    text = io.StringIO()
    header = [*BASE, *CELLS]
    writer = csv.writer(text, quoting=csv.QUOTE_MINIMAL)
    writer.writerow(header)
    for i in range(500):
        usual = random.random() < 0.5
        cells = [random.choice(each[:2] if usual else each) for each in CELLS.values()]
        writer.writerow([f"o{i}", 5, 1.0, 2.0, "fire", *cells])
    path = tmp_path / "o.csv"
    path.write_text(text.getvalue(), newline="")
    _, _, body = path.read_bytes().partition(b"\n")
    found, reasons = read(decode_csv(body, header, rule=RULE, unit=unit))
    refused = []
    expected = [o for _, o in read_objects([path], WGS84, RULE, None, refused.append, unit)]
    assert found == expected
    assert sorted(reasons) == [line for _, line in refused]
    assert 100 < len(found) < 490
    assert {name for o in found for name, _ in o.properties} == set(CELLS)


COLUMNS = {
    "country": [
        pa.array(["de", None, "é"]),
        pa.array(["de", None, "é"]).dictionary_encode(),
        pa.array(["x" * 5_000, "a", None], pa.large_string()),
        pa.array([1, None, 2]),
    ],
    "priority": [
        pa.array([1, None, -3], pa.int32()),
        pa.array([1.5, None, np.nan]),
        pa.array([2**63 + 1, 3, None], pa.uint64()),
        pa.array(["1", None, "x"]),
        pa.array([True, None, False]),
    ],
    "seen": [
        pa.array([5, None, -7]),
        pa.array([5.0, None, 1.5]),
        pa.array([5.0, None, -7.0]),
        pa.array(["2026-01-01", None, "noon"]),
        pa.array([1_500_000, None, -1], pa.timestamp("us")),
        pa.array([1, None, 20_000], pa.date32()),
    ],
    "open": [pa.array([True, None, False]), pa.array(["true", None, "x"]), pa.array([1, None, 0])],
}


@pytest.mark.parametrize("unit", ["ms", "s"])
@pytest.mark.parametrize(("name", "column"), [(name, column) for name, each in COLUMNS.items() for column in each])
def test_tables_are_read_as_the_oracle_reads_their_rows(name, column, unit, tmp_path):
    base = {key: pa.array([value] * 3) for key, value in BASE.items()} | {"id": pa.array(["a", "b", "c"])}
    path = tmp_path / "o.parquet"
    pq.write_table(pa.table(base | {name: column}), path)
    found, reasons = read(decode_object_table(pq.read_table(path), rule=RULE, unit=unit))
    refused = []
    expected = [o for _, o in read_objects([path], WGS84, RULE, None, refused.append, unit)]
    assert found == expected
    assert sorted(reasons) == [row for _, row in refused]


def test_columns_of_pandas_have_gaps_where_it_has_nan():
    frame = pd.DataFrame(
        {**{key: [value] * 2 for key, value in BASE.items()}, "seen": [5, None], "priority": [None, 2]}
    )
    found, reasons = read(decode_object_table(pa.Table.from_pandas(frame), rule=RULE))
    assert [dict(o.properties) for o in found] == [{"seen": 5}, {"priority": 2.0}]
    assert reasons == {}


def test_batches_keep_properties_on_the_wire_and_in_parts():
    decoded = decode_objects("\n".join(lines(Random(1), 0.0)).encode(), rule=RULE).batch
    objects = [decoded[i] for i in range(len(decoded))]
    back = ObjectBatch.from_arrow(decoded.to_arrow())
    assert [back[i] for i in range(len(back))] == objects
    parts = [decoded.slice(0, 50), ObjectBatch.of(objects[50:120]), decoded.slice(120, 200)]
    joined = ObjectBatch.concat(parts)
    assert [joined[i].properties for i in range(200)] == [o.properties for o in objects]
    assert "properties" not in ObjectBatch.of([parse_object(BASE, WGS84)]).to_arrow().schema.names

"""Planning covers every record of every file once, under its true line, however the files are cut."""

import contextlib
import csv
import gzip
import io
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.declared import Properties
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.records import files
from spatialstream.records.files import decode_chunk, plan, read, without_column
from spatialstream.records.layout import InputLayout

HEADER = ["id", "t", "lon", "lat", "text"]


def rows(n):
    return [
        {"id": f"o{i}", "t": i, "lon": i % 180, "lat": 2.5, "text": f'say "{i}",\nflood é' * (i % 4)} for i in range(n)
    ]


def jsonl(n, blank=True):
    return "".join(json.dumps(row) + "\n" + "\n" * (blank and i % 7 == 0) for i, row in enumerate(rows(n))).encode()


def csv_text(n, newline="\n"):
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, HEADER, lineterminator=newline, quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    writer.writerows(rows(n))
    return file.getvalue().encode()


def write(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def decoded(chunks, kind="objects", columns=None):
    return [part for chunk in chunks for part in decode_chunk(chunk, kind, WGS84, DEFAULT_RULE, columns)]


def objects(parts):
    batch = ObjectBatch.concat([part.batch for part in parts])
    return [batch[i] for i in range(len(batch))]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(files, "_BLOCK", 500)
    monkeypatch.setattr(files, "_ROWS", 7)


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.ndjson", "a.json", "A.JSONL", "a.csv", "a.jsonl.gz", "a.csv.gz", "a.parquet"]
)
@pytest.mark.parametrize("chunk_bytes", [1, 300, 3_000, 10**9])
def test_every_record_is_read_once_under_its_line(tmp_path, name, chunk_bytes):
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows(100)), path, row_group_size=9)
        lines = list(range(1, 101))
    elif ".csv" in name:
        write(path, csv_text(100))
        lines = [2]
        for row in rows(99):
            lines.append(lines[-1] + 1 + row["text"].count("\n"))
    else:
        write(path, jsonl(100))
        lines = [i + 1 for i, line in enumerate(jsonl(100).split(b"\n")) if line]
    chunks = plan([path], chunk_bytes=chunk_bytes)
    parts = decoded(chunks)
    assert [o.id for o in objects(parts)] == [row["id"] for row in rows(100)]
    assert [line for part in parts for line in part.line.tolist()] == lines
    assert not any(part.rejected.num_rows for part in parts)
    assert len(parts) > 1
    if chunk_bytes == 10**9 or path.suffix == ".gz":
        assert len(chunks) == 1
    elif chunk_bytes < 1_000:
        assert len(chunks) > 5


def test_chunks_are_read_alone_and_in_any_order_and_travel_between_processes(tmp_path):
    path = write(tmp_path / "a.csv", csv_text(100))
    chunks = plan([path], chunk_bytes=700)
    whole = objects(decoded(chunks))
    backwards = [objects(decoded([pickle.loads(pickle.dumps(chunk))])) for chunk in reversed(chunks)]
    assert [o for part in reversed(backwards) for o in part] == whole


def test_sizes_tell_progress(tmp_path):
    paths = [write(tmp_path / "a.jsonl", jsonl(50)), write(tmp_path / "b.jsonl.gz", jsonl(50))]
    chunks = plan(paths, chunk_bytes=600)
    assert [chunk.source for chunk in chunks] == [str(paths[0])] * (len(chunks) - 1) + [str(paths[1])]
    assert sum(chunk.size for chunk in chunks) == sum(path.stat().st_size for path in paths)


@given(
    st.lists(st.lists(st.text(st.sampled_from('ab,"\n\r'), max_size=8), min_size=2, max_size=2), max_size=30),
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from(["\n", "\r\n"]),
)
def test_csv_is_cut_between_records_wherever_newlines_are(tmp_path_factory, records, chunk_bytes, block, newline):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator=newline, quoting=csv.QUOTE_ALL if block % 2 else csv.QUOTE_MINIMAL)
    if block % 2 == 0:  # the writer leaves a return without quotes
        records = [[cell.replace("\r", "") for cell in row] for row in records]
    writer.writerows([["a", "b\nc"], *records])
    path.write_bytes(file.getvalue().encode())
    before, files._BLOCK = files._BLOCK, block
    try:
        blocks = [data for chunk in plan([path], chunk_bytes=chunk_bytes) for data, _ in read(chunk)]
        lines = [line for chunk in plan([path], chunk_bytes=chunk_bytes) for _, line in read(chunk)]
    finally:
        files._BLOCK = before
    found = [row for data in blocks for row in csv.reader(io.StringIO(data.decode(), newline=""), strict=True)]
    assert found == [row for row in records if row]
    whole = path.read_bytes()
    at = whole.index(blocks[0]) if blocks else 0
    for data, line in zip(blocks, lines, strict=True):
        assert whole[at : at + len(data)] == data
        assert line == whole[:at].count(b"\n") + 1
        at += len(data)


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.jsonl.gz", "a.csv.gz"])
@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n\n"])
def test_empty_files_have_no_records(tmp_path, name, data):
    assert sum(len(part.batch) for part in decoded(plan([write(tmp_path / name, data)]))) == 0


def test_an_empty_parquet_file_has_no_records(tmp_path):
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), tmp_path / "a.parquet")
    assert sum(len(part.batch) for part in decoded(plan([tmp_path / "a.parquet"]))) == 0


def test_the_last_line_needs_no_newline_and_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    for name, data in (("a.jsonl", jsonl(30, blank=False)), ("a.csv", csv_text(30)), ("b.csv", csv_text(30, "\r\n"))):
        path = write(tmp_path / name, b"\xef\xbb\xbf" + data.rstrip())
        assert len(objects(decoded(plan([path], chunk_bytes=200)))) == 30


def test_a_record_longer_than_a_block_is_one_record(tmp_path):
    row = json.dumps(rows(1)[0] | {"text": "word " * 10_000}).encode()
    path = write(tmp_path / "a.jsonl", jsonl(5) + row + b"\n" + jsonl(5))
    parts = decoded(plan([path], chunk_bytes=100))
    assert [len(o.terms) for o in objects(parts)].count(1) == 1
    assert sum(len(part.batch) for part in parts) == 11


def test_rejected_records_are_told_by_their_line(tmp_path):
    lines = jsonl(60, blank=False).split(b"\n")
    lines[40] = b"oops"
    for name in ("a.jsonl", "a.jsonl.gz"):
        chunks = plan([write(tmp_path / name, b"\n".join(lines))], chunk_bytes=100)
        rejected = [line for part in decoded(chunks) for line in part.rejected.column("line").to_pylist()]
        assert rejected == [41]


def test_queries_are_read_from_json_lines(tmp_path):
    query = {"id": "q", "type": "SRQ", "t": 5, "region": {"circle": [0, 0, 5]}, "duration": "1h"}
    for name in ("q.jsonl", "q.jsonl.gz"):
        path = write(tmp_path / name, (json.dumps(query) + "\n").encode() * 20)
        parts = decoded(plan([path], kind="queries", chunk_bytes=100), "queries")
        assert sum(len(part.batch) for part in parts) == 20
        assert parts[0].batch[0].id == "q"
    write(tmp_path / "q.csv", csv_text(3))
    with pytest.raises(SettingError, match=r"q\.csv: holds queries, which are read from JSON Lines only"):
        plan([tmp_path / "q.csv"], kind="queries")


def test_columns_are_renamed_in_every_format(tmp_path):
    columns = {"text": "headline", "id": "code"}
    renamed = [{{"text": "headline", "id": "code"}.get(k, k): v for k, v in row.items()} for row in rows(20)]
    write(tmp_path / "a.csv", csv_text(20).replace(b'"id"', b'"code"', 1).replace(b'"text"', b'"headline"', 1))
    write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, renamed)).encode())
    pq.write_table(
        pa.Table.from_pylist(renamed).append_column("unused", pa.array([b"\xff"] * 20)), tmp_path / "a.parquet"
    )
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        found = objects(decoded(plan([tmp_path / name], columns), columns=columns))
        assert [o.id for o in found] == [row["id"] for row in rows(20)], name
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(
            SettingError, match="has no column 'title' for text; it has 'code', 't', 'lon', 'lat', 'headline'"
        ):
            plan([tmp_path / name], {"text": "title"})


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.xml", b"", r"has an unknown format; the name must end in .jsonl, .ndjson, .json, .* and .parquet"),
        ("a", b"", "has an unknown format"),
        ("a.gz", b"", "has an unknown format"),
        ("a.parquet.gz", b"", "has an unknown format"),
        ("a.jsonl", None, "does not exist"),
        ("a.parquet", b"not parquet at all", "is not a Parquet file"),
        ("a.csv.gz", b"not gzip", "is not a gzipped file; take the .gz off its name"),
        ("a.jsonl.gz", b"{}", "is not a gzipped file; take the .gz off its name"),
        ("a.jsonl", gzip.compress(b"{}", mtime=0), "is a gzipped file; put .gz at the end of its name"),
        ("a.csv", b"PAR1....PAR1", "is a Parquet file; its name must end in .parquet"),
        ("a.csv", b"id,t,lon,lat,text,t\n", "has the column 't' more than once"),
        ("a.csv", b'"a"b,c\n', "has a header that is not CSV"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_setting_error(tmp_path, name, data, problem):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(SettingError, match=problem) as caught:
        plan([path])
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("id,t,lon,lat,text", None),
        ("text,lat,more,lon,t,id", None),
        ("", None),
        ("id,t,lon,text", "has no column 'lat'; it has 'id', 't', 'lon', 'text'"),
        ("id,t,lon,lat", "has no column 'text'"),
        ("id,t,lon,lat,terms", "has no column 'text'"),
        ("id;t;lon;lat;text", None),
        ("id;t;lon;lat", "has no column 'text'"),
        ("id\tt\tlon\tlat\ttext", None),
        ("id,t,lon,lat,text,text", "has the column 'text' more than once"),
    ],
)
def test_a_table_that_lacks_a_column_is_refused_once_and_not_a_row_at_a_time(tmp_path, header, problem):
    path = write(tmp_path / "a.csv.gz", f"{header}\n".encode())
    with pytest.raises(SettingError, match=problem) if problem else contextlib.nullcontext():
        plan([path], space=WGS84)


def test_a_parquet_file_has_to_have_the_columns_of_its_space(tmp_path):
    plane = Space.planar(0, 0, 9, 9)
    table = pa.Table.from_pylist([{"id": "a", "t": 1, "x": 1, "y": 1, "terms": ["b"]}])
    pq.write_table(table, tmp_path / "a.parquet")
    assert len(plan([tmp_path / "a.parquet"], space=plane)) == 1
    with pytest.raises(SettingError, match="has no column 'lon'"):
        plan([tmp_path / "a.parquet"], space=WGS84)
    assert len(plan([tmp_path / "a.parquet"], {"lon": "x", "lat": "y"}, space=WGS84)) == 1
    pq.write_table(pa.table([*table.columns, table.column("t")], [*table.column_names, "t"]), tmp_path / "b.parquet")
    with pytest.raises(SettingError, match="has the column 't' more than once"):
        plan([tmp_path / "b.parquet"], space=plane)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a.jsonl").mkdir()
    with pytest.raises(SettingError, match="is a folder; give files"):
        plan([tmp_path / "a.jsonl"])


def test_a_file_that_is_damaged_or_gone_is_a_setting_error_when_it_is_read(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", jsonl(100))
    chunks = plan([path])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SettingError, match="cannot be read: Compressed file ended"):
        decoded(chunks)
    path.unlink()
    with pytest.raises(SettingError, match="cannot be read"):
        decoded(chunks)


# ---------------------------------------------------------------------------------------------------------- properties


def told_of(paths, *declared, columns=None, layout=None):
    rule = TermRule(properties=Properties.parse(declared))
    return without_column(paths, rule, columns or {}, layout or InputLayout(), WGS84)


def test_a_property_whose_column_is_in_no_file_is_told_with_the_nearest_name(tmp_path):
    table = pa.table({"id": ["a"], "t": [1], "lon": [1.0], "lat": [2.0], "text": ["x"], "more": [{"prio": 2}]})
    pq.write_table(table, tmp_path / "a.parquet")
    paths = [
        write(tmp_path / "a.csv", b"id,t,lon,lat,text,priorty\n"),
        write(tmp_path / "b.csv.gz", b"id,t,lon,lat,text\n"),
        write(tmp_path / "c.txt", b"id;t;lon;lat;text;open\n"),
        tmp_path / "a.parquet",
    ]

    assert told_of(paths, "priority:number", "open:boolean") == [
        "no file of objects has a column 'priority', so no object has the property priority; the files have 'id', 't', "
        "'lon', 'lat', 'text', 'priorty', 'open', 'more.prio'; did you mean --columns priority=priorty?"
    ]
    (told,) = told_of(paths, "level:number", columns={"level": "more.prior"})
    assert "a column 'more.prior' for level" in told
    assert told.endswith("did you mean --columns level=more.prio?")
    assert told_of(paths, "level:number", columns={"level": "more.prio"}) == []


def test_nothing_is_told_of_properties_that_json_may_have(tmp_path):
    table = write(tmp_path / "a.csv", b"id,t,lon,lat,text\n")
    for name, text in (("a.jsonl", b'{"id": "a"}\n'), ("a.geojson", b'{"type": "FeatureCollection", "features": []}')):
        assert told_of([table, write(tmp_path / name, text)], "priority:number") == []
    assert told_of([table], "priority:number")[0].endswith("give --columns priority=NAME")
    assert told_of([table]) == []
    assert told_of([tmp_path / "none.csv"], "priority:number") == [], "which planning says"

"""Folders and the standard input become files."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spatialstream.model.errors import SettingError
from spatialstream.records.inputs import expanded, spooled


def test_a_folder_stands_for_its_files_in_order(tmp_path: Path) -> None:
    names = ["b.csv", "a.geojson", "2/c.parquet", "1/d.txt.gz", "notes.pdf", "e.parquet.gz", "_SUCCESS", ".x/f.csv"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    files, skipped = expanded([tmp_path / "b.csv", tmp_path])
    inside = [each.relative_to(tmp_path).as_posix() for each in files]
    assert inside == ["b.csv", "1/d.txt.gz", "2/c.parquet", "a.geojson", "b.csv"]
    assert [each.name for each in skipped] == ["e.parquet.gz", "notes.pdf"]


def test_a_folder_without_files_of_objects_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.pdf").write_text("")
    with pytest.raises(SettingError, match="is a folder without files of objects; it has 1 others"):
        expanded([tmp_path])


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (b'{"id": 1}\n', ".json"),
        (b"\xef\xbb\xbf [1]", ".json"),
        (b"\x1e{}\n", ".json"),
        (b"id,t\n", ".csv"),
        (b"id\tt\n", ".txt"),
        (b"", ".csv"),
        (gzip.compress(b"id|t\n", mtime=0), ".txt.gz"),
        (pa.Codec("zstd").compress(b'{"id": 1}\n', asbytes=True), ".json.zst"),
        (parquet(), ".parquet"),
    ],
)
def test_a_stream_is_kept_under_a_name_of_its_content(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = spooled(io.BytesIO(content), tmp_path / "kept")
    assert path.read_bytes() == content
    assert path.name.endswith(suffix)
    assert path.name.count(".") == suffix.count(".")
    assert path.stat().st_mtime == 0
    assert spooled(io.BytesIO(content), tmp_path / "kept") == path
    assert list((tmp_path / "kept").iterdir()) == [path]


def test_a_stream_of_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has an unknown format; it begins with b'PK"):
        spooled(io.BytesIO(b"PK\x03\x04\0\0\0\0"), tmp_path / "kept")
    assert not (tmp_path / "kept").exists()

"""Files of queries that name areas."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from spatialstream.model.areas import AreaTable, read_areas
from spatialstream.model.errors import SettingError
from spatialstream.records.area_lines import with_areas

SQUARE = {"type": "Polygon", "coordinates": [[[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]]]}
AREAS = AreaTable(read_areas(SQUARE, name="mitte"))
PLAIN = b'{"id":"a", "type":"CRQ","t":1,"keywords":["area"]}\n'
NAMED = b'{"id":"b","type":"CRQ","t":2,"region":{"area":"mitte"}}\n'


def test_a_file_that_names_none_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(PLAIN + b'{"area" not JSON\n')

    def never() -> AreaTable:
        raise AssertionError

    assert with_areas(path, never, tmp_path / "kept") == path
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("name", ["q.jsonl", "q.jsonl.gz", "q-0123456789abcdef.jsonl"])
def test_a_copy_has_the_lines_of_the_file_and_the_same_name_for_the_same_content(tmp_path: Path, name: str) -> None:
    path, content = tmp_path / name, PLAIN + NAMED + b"\n" + PLAIN.strip()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    copy = with_areas(path, lambda: AREAS, tmp_path / "kept")
    first, second, *rest = copy.read_bytes().split(b"\n")
    assert [first, *rest] == [PLAIN.strip(), b"", PLAIN.strip()]
    assert json.loads(second)["region"] == AREAS.find("mitte").to_region()
    assert with_areas(path, lambda: AREAS, tmp_path / "kept") == copy
    assert len(copy.stem) == len("q-0123456789abcdef")


def test_an_area_that_is_not_there_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(PLAIN + NAMED.replace(b"mitte", b"mite"))
    with pytest.raises(SettingError, match=r"q\.jsonl line 2: region\.area: 'mite' is not .*; did you mean mitte\?"):
        with_areas(path, lambda: AREAS, tmp_path)
    with pytest.raises(SettingError, match=r"queries: .* cannot be read"):
        with_areas(tmp_path / "missing.jsonl", lambda: AREAS, tmp_path)

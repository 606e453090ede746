"""The archive, read back with the libraries that people will read it with."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import geopandas
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spatialstream.connectors.folder import Folder
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.space import WGS84, Space
from spatialstream.model.times import TIME_LIMIT
from spatialstream.stages.archive import write_archive

PLANE = Space.planar(-10.0, -10.0, 10.0, 10.0)
NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp() * 1000)
DAY = 86_400_000


def objects_of_three_days(n: int = 30) -> list[SpatialObject]:
    rng = np.random.default_rng(1)
    words = ["flood", "straße", "火", "a b"]
    return [
        SpatialObject(
            f"ø{i}",
            NOON + (i % 3 - 1) * DAY + i,
            float(rng.uniform(-10, 10)),
            float(rng.uniform(-10, 10)),
            tuple(words[: i % 5]),
        )
        for i in range(n)
    ]


def rows_of(objects: list[SpatialObject]) -> list[tuple]:
    return sorted((o.id, o.t, o.x, o.y, sorted(o.terms)) for o in objects)


def with_duckdb(folder: Path, where: str = "true", axes: tuple[str, str] = ("lon", "lat")) -> list[tuple]:
    """The rows, and the day of each."""
    query = f"""SELECT id, epoch_ms(t), {axes[0]}, {axes[1]}, list_sort(terms), day
                FROM read_parquet('{folder}/**/*.parquet', hive_partitioning = true) WHERE {where} ORDER BY id"""
    return duckdb.sql(query).fetchall()


def test_days_are_folders_and_what_they_hold_is_what_was_written(tmp_path: Path) -> None:
    objects = objects_of_three_days()
    paths = write_archive(ObjectBatch.of(objects), WGS84, Folder(tmp_path), "epoch-7")
    assert paths == [f"day=2026-11-{day}/epoch-7.parquet" for day in (20, 21, 22)]
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()) == paths

    found = with_duckdb(tmp_path)
    assert [row[:5] for row in found] == rows_of(objects)
    assert all(day == datetime.fromtimestamp(t / 1000, UTC).date() for _, t, *_, day in found)
    assert [row[:5] for row in with_duckdb(tmp_path, "day = DATE '2026-11-21'")] == rows_of(objects[1::3])


def test_a_term_is_listed_as_often_as_it_is_counted(tmp_path: Path) -> None:
    objects = [replace(o, counts=tuple(range(1, len(o.terms) + 1))) for o in objects_of_three_days()]
    write_archive(ObjectBatch.of(objects), WGS84, Folder(tmp_path), "epoch-7")
    assert [row[:5] for row in with_duckdb(tmp_path)] == sorted((o.id, o.t, o.x, o.y, sorted(o.said)) for o in objects)


@pytest.mark.parametrize("space", [WGS84, PLANE], ids=str)
def test_geopandas_reads_points_with_their_reference_system(tmp_path: Path, space: Space) -> None:
    objects = objects_of_three_days()
    paths = write_archive(ObjectBatch.of(objects), space, Folder(tmp_path), "epoch-7")
    for source in (tmp_path, tmp_path / paths[1]):
        frame = geopandas.read_parquet(source)
        assert frame.crs == ("OGC:CRS84" if space.geographic else None)
        expected = rows_of(objects if source == tmp_path else objects[1::3])
        points = zip(frame.id, frame.geometry.x, frame.geometry.y, strict=True)
        assert sorted(points) == [(name, x, y) for name, _, x, y, _ in expected]
    geo = json.loads(pq.read_schema(tmp_path / paths[0]).metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    assert geo["columns"]["geometry"]["bbox"] == [
        *(f(getattr(o, axis) for o in objects[::3]) for f in (min, max) for axis in "xy")
    ]


def test_pandas_reads_times_and_terms(tmp_path: Path) -> None:
    objects = objects_of_three_days()
    write_archive(ObjectBatch.of(objects), PLANE, Folder(tmp_path), "part")
    frame = pd.read_parquet(tmp_path)
    assert list(frame.columns) == ["id", "t", "x", "y", "terms", "geometry", "day"]
    assert str(frame.t.dtype) == "datetime64[ms, UTC]"
    times = frame.t.astype("int64").tolist()
    rows = zip(frame.id, times, frame.x, frame.y, map(sorted, frame.terms), strict=True)
    assert sorted(rows) == rows_of(objects)


def test_doing_it_again_writes_equal_files(tmp_path: Path) -> None:
    batch = ObjectBatch.of(objects_of_three_days())
    before = {path: (tmp_path / path).read_bytes() for path in write_archive(batch, WGS84, Folder(tmp_path), "epoch-7")}
    again = write_archive(ObjectBatch.from_arrow(batch.to_arrow()), WGS84, Folder(tmp_path), "epoch-7")
    assert {path: (tmp_path / path).read_bytes() for path in again} == before
    other = write_archive(batch, WGS84, Folder(tmp_path), "epoch-8")
    assert not set(other) & set(again)
    assert len(with_duckdb(tmp_path)) == 2 * len(batch)


def test_days_before_1970_and_those_without_a_four_digit_year(tmp_path: Path) -> None:
    moments = {
        "-1": "1969-12-31",
        "-86400000": "1969-12-31",
        "-86400001": "1969-12-30",
        "-62135596800000": "0001-01-01",
        "253402300799999": "9999-12-31",
    }
    beyond = [253402300800000, -62167219200001, TIME_LIMIT, -TIME_LIMIT]
    objects = [SpatialObject(t, int(t), 0.0, 0.0, ()) for t in moments]
    objects += [SpatialObject(str(t), t, 0.0, 0.0, ()) for t in beyond]
    paths = write_archive(ObjectBatch.of(objects), WGS84, Folder(tmp_path), "old")
    assert {path.split("/")[0] for path in paths} == {
        *(f"day={day}" for day in moments.values()),
        "day=__HIVE_DEFAULT_PARTITION__",
    }
    found = {name: (t, day) for name, t, *_, day in with_duckdb(tmp_path)}
    assert {name: t for name, (t, _) in found.items()} == {o.id: o.t for o in objects}
    assert {name: str(found[name][1]) for name in moments} == moments
    assert all(found[str(t)][1] is None for t in beyond)
    assert sorted(pq.read_table(tmp_path).column("t").cast(pa.int64()).to_pylist()) == sorted(o.t for o in objects)


def test_no_objects_are_no_files(tmp_path: Path) -> None:
    assert write_archive(ObjectBatch.of([]), WGS84, Folder(tmp_path / "archive"), "none") == []
    assert not list(tmp_path.iterdir())


def test_what_leaves_a_store_can_be_archived(tmp_path: Path) -> None:
    store, objects = SegmentStore(WGS84, interval=DAY), objects_of_three_days()
    for day in range(3):
        store.append(ObjectBatch.of(objects[day::3]))
    for number, batch in enumerate(store.leaving(NOON + DAY // 2)):
        write_archive(batch, WGS84, Folder(tmp_path), f"epoch-1-{number}")
    assert [row[:5] for row in with_duckdb(tmp_path)] == rows_of(objects[::3] + objects[1::3])

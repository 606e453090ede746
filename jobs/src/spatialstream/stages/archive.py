"""The archive: objects dropped by retention, as Parquet files by day that other tools can read.

Names: ``day=2026-11-21/<name>.parquet``, hive style, by the UTC day of the objects' timestamps. Each file is a
GeoParquet 1.1 file (https://geoparquet.org/releases/v1.1.0) with the columns

========  ======================  ==================================================================
id        string
t         timestamp[ms, UTC]
lon, lat  double                  ``x``, ``y`` in a planar space
terms     list<string>            in no particular order; each as often as the text has it (at most 7 times), if the
                                  stream counts that
...       string, double,         a column for each property that the stream declares, null where it is missing
          timestamp[ms, UTC],
          boolean
text      string                  as it was sent, if the stream keeps it; null where only terms were sent
geometry  binary                  the point as WKB; longitude and latitude (OGC:CRS84), or no CRS
========  ======================  ==================================================================

A name always has the same content: a repetition overwrites files with equal ones, and a file exists completely or
not at all. Days outside the years 0001 to 9999 go to the hive's default partition, where ``day`` is null.

Cost: about a microsecond an object.
"""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spatialstream.connectors.contracts import Storage
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import TEXT, chosen

__all__ = ["write_archive"]

_DAY_MS = 86_400_000
_FIRST_DAY = np.datetime64("0001-01-01", "D").astype(np.int64)
_LAST_DAY = np.datetime64("9999-12-31", "D").astype(np.int64)
_NO_DAY = "__HIVE_DEFAULT_PARTITION__"
_ROWS_PER_GROUP = 1 << 17

_WKB_POINT = np.dtype([("order", "<u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])
_LITTLE_ENDIAN, _POINT = 1, 1


def write_archive(objects: ObjectBatch, space: Space, archive: Storage, name: str) -> list[str]:
    """Write objects to one file per day.

    Args:
        objects: in any order, which is kept within a day.
        space: of the objects.
        archive: the storage to write to.
        name: of the files, without the suffix. Other content needs another name.

    Returns:
        Names of the files, by day; none if there are no objects.
    """
    day = objects.t // _DAY_MS
    day[(day < _FIRST_DAY) | (day > _LAST_DAY)] = _LAST_DAY + 1
    order = np.argsort(day, kind="stable")
    days, firsts = np.unique(day[order], return_index=True)
    files = []
    for rows, number in zip(np.split(order, firsts[1:]), days.tolist(), strict=False):
        whole = len(rows) == len(objects)
        file = f"day={_day_name(number)}/{name}.parquet"
        archive.put(file, _parquet(objects if whole else objects.take(rows), space))
        files.append(file)
    return files


def _day_name(day: int) -> str:
    return _NO_DAY if day > _LAST_DAY else str(np.datetime64(day, "D"))


def _parquet(objects: ObjectBatch, space: Space) -> pa.Buffer:
    """A file's bytes."""
    terms = objects.terms.compact().said()
    columns = {
        "id": objects.ids,
        "t": pa.array(objects.t).cast(pa.timestamp("ms", "UTC")),
        space.axes[0]: pa.array(objects.x),
        space.axes[1]: pa.array(objects.y),
        "terms": pa.ListArray.from_arrays(pa.array(terms.offsets), terms.vocabulary.take(pa.array(terms.codes))),
        **objects.properties.columns,
        **_texts(objects),
        "geometry": _points(objects.x, objects.y),
    }
    table = pa.table(columns).replace_schema_metadata({"geo": json.dumps(_geo(objects, space))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=_ROWS_PER_GROUP)
    return sink.getvalue()


def _texts(objects: ObjectBatch) -> dict[str, pa.Array]:
    """The texts, if the stream keeps them; the other fields are columns of their own."""
    stored = objects.stored.column
    if stored is None:
        return {}
    texts = [json.loads(f"{{{each}}}").get(TEXT) for each in chosen(stored, (TEXT,)).to_pylist()]
    return {TEXT: pa.array(texts, pa.large_string())} if any(text is not None for text in texts) else {}


def _points(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> pa.BinaryArray:
    """Points as WKB."""
    points = np.empty(len(x), _WKB_POINT)
    points["order"], points["type"], points["x"], points["y"] = _LITTLE_ENDIAN, _POINT, x, y
    size = _WKB_POINT.itemsize
    offsets = np.arange(0, size * len(x) + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(x), [None, pa.py_buffer(offsets), pa.py_buffer(points)])


def _geo(objects: ObjectBatch, space: Space) -> dict[str, object]:
    """The file's GeoParquet metadata."""
    bounds = [objects.x.min(), objects.y.min(), objects.x.max(), objects.y.max()]
    column: dict[str, object] = {"encoding": "WKB", "geometry_types": ["Point"], "bbox": [float(at) for at in bounds]}
    if not space.geographic:
        column["crs"] = None  # without the field, it would be longitude and latitude
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}

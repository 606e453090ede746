"""Polygons: objects matched against CRQs whose regions are districts, beside the same CRQs with the districts' boxes.

``python -m tests.benchmarks.bench_polygons``. 200,000 CRQs are on 300 districts of 100 vertices; the floor of their
matching is a third of that of boxes. Both are checked on a sample of objects, polygons against the oracle in fractions.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from spatialstream.local.range import crq
from spatialstream.model.geometry import BOX, POLYGON
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.regions import Regions
from tests.benchmarks.__main__ import show
from tests.benchmarks.bench_crq import (
    DEFAULT_QUERIES,
    OBJECTS,
    QUERY_SEED,
    SOURCE_SEED,
    STREAM_SEED,
    Row,
    matching,
)
from tests.benchmarks.workload import SPACE, QueryColumns, objects, queries

DISTRICTS, VERTICES = 300, 100
REACH = 0.03
"""Largest distance of a vertex from the middle: districts together are about as large as the space."""


def district(middle: Any, rng: np.random.Generator) -> dict[str, Any]:
    """GeoJSON of a star with a border that is no circle."""
    angle = (np.arange(VERTICES) + rng.random(VERTICES)) / VERTICES * 2 * np.pi
    radius = REACH * rng.uniform(0.7, 1.0, VERTICES)
    ring = np.clip(middle + np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1), -1.0, 2.0).tolist()
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def districts(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Districts around places where objects are."""
    source = objects(DISTRICTS, SOURCE_SEED + 10)
    return [district(np.array(middle), rng) for middle in zip(source.x, source.y, strict=True)]


def on_districts(columns: QueryColumns, polygons: list[Polygon], rng: np.random.Generator) -> Regions:
    """Each query on one of the districts."""
    codes = rng.integers(0, len(polygons), len(columns)).astype(np.int32)
    boxes = np.array([each.box for each in polygons])
    return Regions(np.full(len(columns), POLYGON, np.uint8), boxes[codes], PolygonColumn(codes, tuple(polygons)))


def run() -> list[Row]:
    """All figures as rows, see :func:`tests.benchmarks.bench_crq.run`."""
    crq.prepare()
    rng = np.random.default_rng(7)
    source, stream = objects(OBJECTS, SOURCE_SEED), objects(OBJECTS, STREAM_SEED)
    columns = queries(source, DEFAULT_QUERIES, QUERY_SEED)
    geometries = districts(rng)
    start = time.process_time()
    polygons = [parse_polygon(each, SPACE) for each in geometries]
    reading = time.process_time() - start
    regions = on_districts(columns, polygons, rng)
    boxes = Regions.plain(np.full(len(columns), BOX, np.uint8), regions.shape)
    name = f"{DEFAULT_QUERIES:,} CRQs on {DISTRICTS} districts"
    rows = matching(f"{name}: their boxes", QueryColumns(boxes, columns.keywords, columns.centres), stream)
    third = rows[0]["value"] / 3
    rows += matching(
        f"{name} of {VERTICES} vertices", QueryColumns(regions, columns.keywords, columns.centres), stream, third
    )
    note = f"of {VERTICES} vertices, with all checks"
    rows.append(
        {"name": "polygons read", "value": DISTRICTS / reading, "unit": "polygons/s", "floor": None, "note": note}
    )
    return rows


def main() -> None:
    """Print the rows as a table."""
    show("polygons", run())


if __name__ == "__main__":
    main()

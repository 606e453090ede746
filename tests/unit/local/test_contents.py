"""The digests of contents tell polygons apart, and do not depend on how one is written."""

from __future__ import annotations

import numpy as np

from spatialstream.local.contents import content_digests
from spatialstream.model.polygons.geojson import parse_polygon
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch
from spatialstream.model.regions import Box, Region
from spatialstream.model.space import WGS84


def query(region: Region) -> Query:
    return Query("q", 5, Predicate(region, ("a",)), Everything(), Lifetime(9, True))


def triangle(*corners: list[float]) -> Region:
    return parse_polygon({"type": "Polygon", "coordinates": [[*corners, corners[0]]]}, WGS84)


def test_polygons_with_one_box_differ_and_a_polygon_from_another_vertex_does_not() -> None:
    lower, again = triangle([0, 0], [2, 0], [0, 1]), triangle([0, 1], [2, 0], [0, 0])
    upper = triangle([2, 1], [2, 0], [0, 1])
    regions = [lower, upper, again, Box(0.0, 0.0, 2.0, 1.0)]
    digests = content_digests(QueryBatch.of([query(each) for each in regions]))

    assert len({tuple(each) for each in digests.tolist()}) == 3
    assert digests[0].tolist() == digests[2].tolist()
    for i, each in enumerate(regions):  # whatever other queries are in the batch
        assert np.array_equal(content_digests(QueryBatch.of([query(each)]))[0], digests[i])
        back = QueryBatch.from_arrow(QueryBatch.of([query(each)]).to_arrow())
        assert np.array_equal(content_digests(back)[0], digests[i])
        assert back[0] == query(each)

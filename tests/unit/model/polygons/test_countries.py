"""Countries in TopoJSON are decoded as its specification has it; a few of them compared with the oracle."""

import numpy as np
import pytest

from tests.benchmarks.bench_pairs import check, valid
from tests.benchmarks.countries import FILE, countries, geometries

TOPOLOGY = {
    # two squares side by side, the second with a hole; their common border is one arc, which the second takes backwards
    "transform": {"scale": [0.5, 2], "translate": [10, -4]},
    "arcs": [
        [[4, 0], [0, 4]],
        [[4, 4], [-4, 0], [0, -4], [4, 0]],
        [[4, 0], [4, 0], [0, 4], [-4, 0]],
        [[5, 1], [0, 2], [2, 0], [0, -2], [-2, 0]],
    ],
    "objects": {
        "squares": {
            "type": "GeometryCollection",
            "geometries": [
                {"type": "Polygon", "arcs": [[0, 1]], "properties": {"name": "west"}},
                {"type": "MultiPolygon", "arcs": [[[2, -1], [3]]], "properties": {"name": "east"}},
                {"type": "Point", "coordinates": [0, 0], "properties": {"name": "capital"}},
            ],
        }
    },
}


def test_arcs_are_decoded_and_joined():
    west, east = geometries(TOPOLOGY, "squares")
    assert west == ("west", {"type": "Polygon", "coordinates": [[[12, -4], [12, 4], [10, 4], [10, -4], [12, -4]]]})
    shell, hole = east[1]["coordinates"]
    assert shell == [[12, -4], [14, -4], [14, 4], [12, 4], [12, -4]]
    assert hole == [[12.5, -2], [12.5, 2], [13.5, 2], [13.5, -2], [12.5, -2]]


def test_a_part_that_crosses_itself_is_left_out():
    square = [[[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]]
    bow = [[[0, 0], [1, 1], [1, 0], [0, 1], [0, 0]]]
    assert valid({"type": "MultiPolygon", "coordinates": [bow, square]})["coordinates"] == [square]


@pytest.mark.skipif(not FILE.is_file(), reason="scripts/console.sh has not fetched the countries")
def test_countries_with_holes_are_as_in_fractions():
    """A few thousand pairs; a million are `make bench ARGS=pairs`."""
    rng = np.random.default_rng(3)
    shapes = dict(countries())
    assert len(shapes) > 200
    inside = [
        check(valid(shapes[name]), rng, 300)[0] for name in ("Italy", "South Africa", "Kyrgyzstan", "Russia", "Fiji")
    ]
    assert all(60 < count < 260 for count in inside)

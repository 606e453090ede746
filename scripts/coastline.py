"""Make the outlines of land that the reports draw, from the npm package ``world-atlas`` (Natural Earth, public domain).

Use::

    npm pack world-atlas@2.0.2 && tar xzf world-atlas-2.0.2.tgz
    .venv/bin/python scripts/coastline.py package/land-50m.json jobs/src/spatialstream/web/static/land.json

The arcs of the TopoJSON are decoded, cut at the antimeridian, simplified (Douglas-Peucker, 0.06 degrees), rounded to
0.05 degrees and written as rings of integers in that unit: the first point, then differences. Islands that would be a
dot are dropped.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

from spatialstream.report.shapes import fold

UNIT = 20
"""Units of the result in one degree."""

TOLERANCE = 0.06
"""Degrees that an outline may move."""

SMALLEST = 0.03
"""Square degrees: islands that enclose less are dropped."""

Point = tuple[float, float]


def decode(topology: dict) -> list[list[Point]]:
    """The arcs of a TopoJSON in degrees (they are stored as quantised differences)."""
    (sx, sy), (dx, dy) = topology["transform"]["scale"], topology["transform"]["translate"]
    arcs = []
    for arc in topology["arcs"]:
        x = y = 0
        points = []
        for step_x, step_y in arc:
            x, y = x + step_x, y + step_y
            points.append((x * sx + dx, y * sy + dy))
        arcs.append(points)
    return arcs


def rings(topology: dict) -> list[list[Point]]:
    """All rings of the land, outer ones and lakes alike, as lists of points."""
    arcs = decode(topology)
    result = []
    for geometry in topology["objects"]["land"]["geometries"]:
        polygons = [geometry["arcs"]] if geometry["type"] == "Polygon" else geometry["arcs"]
        for polygon in polygons:
            for indices in polygon:
                ring: list[Point] = []
                for index in indices:
                    arc = arcs[index] if index >= 0 else arcs[~index][::-1]
                    ring.extend(arc[1:] if ring else arc)
                result.append(ring)
    return result


def simplify(points: list[Point], tolerance: float) -> list[Point]:
    """Douglas-Peucker: drop the points that lie within ``tolerance`` of the chord that replaces them."""
    keep = {0, len(points) - 1}
    stack = [(0, len(points) - 1)]
    while stack:
        first, last = stack.pop()
        (ax, ay), (bx, by) = points[first], points[last]
        length = math.hypot(bx - ax, by - ay)
        far, where = 0.0, -1
        for i in range(first + 1, last):
            px, py = points[i]
            if length:
                off = abs((bx - ax) * (ay - py) - (ax - px) * (by - ay)) / length
            else:
                off = math.hypot(px - ax, py - ay)
            if off > far:
                far, where = off, i
        if far > tolerance:
            keep.add(where)
            stack += [(first, where), (where, last)]
    return [points[i] for i in sorted(keep)]


def cut(ring: list[Point]) -> list[list[Point]]:
    """The parts of a ring on a map from -180 to 180 degrees; Antarctica is closed along the south pole."""
    jumps = [i for i in range(1, len(ring)) if abs(ring[i][0] - ring[i - 1][0]) > 180.0]
    if not jumps:
        return [ring]
    if len(jumps) % 2:  # once around the pole: begin at the antimeridian
        points = ring[:-1] if ring[0] == ring[-1] else ring
        points = points[jumps[0] :] + points[: jumps[0]]
        start, end = points[0], points[-1]
        edge = math.copysign(180.0, start[0])
        return [[(edge, start[1]), *points, (-edge, end[1]), (-edge, -90.0), (edge, -90.0)]]
    unwrapped = ring[:1]
    for x, y in ring[1:]:
        unwrapped.append((x - 360.0 * round((x - unwrapped[-1][0]) / 360.0), y))
    return fold(unwrapped)


def area(ring: list[Point]) -> float:
    """Square degrees that a ring encloses."""
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, ring[1:] + ring[:1], strict=True))) / 2


def pack(ring: list[Point]) -> list[int]:
    """A ring as integers in the result's unit: x0, y0, then differences; points that repeat are dropped."""
    numbers: list[int] = []
    x = y = 0
    for px, py in ring:
        step_x, step_y = round(px * UNIT) - x, round(py * UNIT) - y
        if numbers and step_x == step_y == 0:
            continue
        numbers += [step_x, step_y]
        x, y = x + step_x, y + step_y
    return numbers


def main() -> None:
    """Read the TopoJSON named first, write the outlines to the file named second."""
    source, target = map(Path, sys.argv[1:])
    topology = json.loads(source.read_text())
    parts = [part for ring in rings(topology) for part in cut(ring)]
    packed = [pack(simplify(part, TOLERANCE)) for part in parts if area(part) >= SMALLEST]
    packed = sorted((ring for ring in packed if len(ring) >= 8), key=len, reverse=True)
    land = {
        "source": f"Natural Earth {source.stem} (public domain), by way of the npm package world-atlas (ISC)",
        "unit": f"1/{UNIT} degree; each ring is x0, y0, then differences",
        "rings": packed,
    }
    target.write_text(json.dumps(land, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

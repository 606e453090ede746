"""Boxes of nodes as tuples, and their quarters."""

from __future__ import annotations

__all__ = ["BoxTuple", "quarter"]

BoxTuple = tuple[float, float, float, float]
"""(west, south, east, north)."""


def quarter(box: BoxTuple, child: int) -> BoxTuple:
    """The box of a child of a spatial node."""
    west, south, east, north = box
    x, y = 0.5 * (west + east), 0.5 * (south + north)
    return x if child & 1 else west, y if child & 2 else south, east if child & 1 else x, north if child & 2 else y

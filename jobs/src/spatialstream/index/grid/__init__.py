"""A uniform grid: equal cells that never change."""

from spatialstream.index.adjustment import Implementation
from spatialstream.index.grid.grid import Grid, build_grid

__all__ = ["IMPLEMENTATION"]

IMPLEMENTATION = Implementation(Grid, build_grid)

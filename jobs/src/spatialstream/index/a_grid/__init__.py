"""The Augmented Grid of Tornado: rectangles of cells of a fine grid, and their adjustment to the load."""

from spatialstream.index.a_grid.a_grid import AGrid
from spatialstream.index.a_grid.adjuster import shift, split_and_merge
from spatialstream.index.a_grid.construction import build_a_grid
from spatialstream.index.adjustment import Implementation

__all__ = ["IMPLEMENTATION"]

IMPLEMENTATION = Implementation(
    AGrid, build_a_grid, {"SM": split_and_merge, "SH": shift}, sampled=frozenset({"SM", "SH"})
)

"""The kd^t-tree of PS2Stream: cells of a kd-tree on the lines of a fine grid, of which some are divided by text."""

from spatialstream.index.adjustment import Implementation
from spatialstream.index.kd_t.adjuster import migrate_cells
from spatialstream.index.kd_t.construction import build_kd_t, lacking, place_kd_t
from spatialstream.index.kd_t.kd_t import KdT

__all__ = ["IMPLEMENTATION"]

IMPLEMENTATION = Implementation(
    KdT, build_kd_t, {"CM": migrate_cells}, sampled=frozenset({"CM"}), placed=place_kd_t, lacking=lacking
)

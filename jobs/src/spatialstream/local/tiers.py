"""Dynamic grids: continuous queries in tiers of immutable grids that are merged as they grow.

The logarithmic method of Bentley and Saxe ("Decomposable searching problems I", Journal of Algorithms, 1980).

New queries form a small grid of their own; while the last grid is not much smaller than the previous one, the two are
rebuilt as one. An entry is rebuilt O(log n) times, there are O(log n) grids, and no registration has to rebuild
everything at once. The owner of the rows provides their *current* regions, so a rebuilt grid (after a merge, or at the
owner's request) uses these: the radii of nearest-neighbour queries shrink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spatialstream.local.arrays import Codes
from spatialstream.local.grid.expression_grid import Grid, build_grid, grid_from_arrays
from spatialstream.local.grid.probing import posted_in
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import TermLists

__all__ = ["Tier", "Tiers"]

_RATIO = 4

Rows = Codes


@dataclass(slots=True)
class Tier:
    """One grid.

    Attributes:
        rows: the owner's row of each entry of the grid.
        grid: the grid over the regions that the rows had when it was built.
        wasted: number of its matches that were useless to the owner since it was built.
        name: name of its file; None until it is written.
    """

    rows: Rows
    grid: Grid
    wasted: int = 0
    name: str | None = None


class Tiers:
    """Entries (an owner's row, keywords) in tiers of grids.

    Args:
        space: the space of the regions.
        regions: returns the current regions of rows.
        alive: returns (as a mask) which rows are still in use.
    """

    def __init__(
        self, space: Space, regions: Callable[[Rows], Regions], alive: Callable[[Rows], npt.NDArray[np.bool_]]
    ) -> None:
        self._space = space
        self._regions = regions
        self._alive = alive
        self.tiers: list[Tier] = []

    @property
    def posted(self) -> tuple[str, ...]:
        """See :func:`posted_in`."""
        return posted_in(tier.grid for tier in self.tiers)

    def add(self, rows: Rows, keywords: TermLists) -> None:
        """Add entries."""
        if not len(rows):
            return
        parts = [(rows, keywords)]
        size = len(rows)
        while self.tiers and len(self.tiers[-1].rows) < _RATIO * size:
            last = self.tiers.pop()
            parts.insert(0, (last.rows, last.grid.keywords))
            size += len(last.rows)
        tier = self._build(parts)
        self.tiers += [] if tier is None else [tier]

    def keywords(self, rows: Rows) -> TermLists:
        """The keywords of rows, which are in use."""
        held = np.concatenate([np.empty(0, np.int32), *(tier.rows for tier in self.tiers)])
        order = np.argsort(held)
        at = order[np.searchsorted(held, rows, sorter=order)]
        return TermLists.concat([tier.grid.keywords for tier in self.tiers]).take(at)

    def rebuild(self, position: int) -> None:
        """Rebuild one tier over current regions, without rows that are no longer in use."""
        tier = self.tiers[position]
        anew = self._build([(tier.rows, tier.grid.keywords)])
        self.tiers[position : position + 1] = [] if anew is None else [anew]

    def compact(self, position: Codes) -> None:
        """Merge all tiers into one, after the owner has moved row i to ``position[i]`` (-1: dropped)."""
        parts = []
        for tier in self.tiers:
            kept = position[tier.rows] >= 0
            parts.append((position[tier.rows[kept]], tier.grid.keywords.take(kept)))
        tier_of_all = self._build(parts) if parts else None
        self.tiers = [] if tier_of_all is None else [tier_of_all]

    def _build(self, parts: Sequence[tuple[Rows, TermLists]]) -> Tier | None:
        rows = np.concatenate([rows for rows, _ in parts])
        keywords = TermLists.concat([keywords for _, keywords in parts])
        alive = self._alive(rows)
        if not alive.all():
            rows, keywords = rows[alive], keywords.take(alive)
        if not len(rows):
            return None
        return Tier(rows, build_grid(self._space, self._regions(rows), keywords))

    def checkpoint(self, write: WriteFile, kind: str) -> list[Manifest]:
        """Write new tiers; return a manifest for each tier."""
        for tier in self.tiers:
            if tier.name is None:
                arrays, meta = tier.grid.to_arrays()
                tier.name = write(kind, {**arrays, "tier_rows": tier.rows}, meta)
        return [{"name": tier.name, "wasted": tier.wasted} for tier in self.tiers]

    def restore(self, manifests: Sequence[Manifest], read: ReadFile) -> None:
        """Map the tiers of a checkpoint."""
        self.tiers = []
        for manifest in manifests:
            arrays, meta = read(manifest["name"])
            grid = grid_from_arrays(self._space, arrays, meta)
            self.tiers.append(Tier(arrays["tier_rows"], grid, manifest["wasted"], manifest["name"]))

"""The interface of global indexes: which leaf an object goes to, and which leaves a query concerns (SSTD, 4.2).

An index is immutable. Every router holds a copy, so it is small, consists of flat arrays, and is transferred as such.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from spatialstream.model.arrays import Array, Codes, Flags, Floats
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space

__all__ = ["GlobalIndex", "Leaves"]


@dataclass(frozen=True, slots=True, eq=False)
class Leaves:
    """The n leaves of an index as columns.

    Attributes:
        box: float64[n, 4] (west, south, east, north), closed: the objects of a leaf lie in its box.
        textual: bool[n]; whether the leaf is a textual share: other leaves hold objects of the same cell.
        objects: float64[n], number of objects of the sample that the index was built from.
        load: float64[n], the workload (Eqn 2) estimated when the index was built.
    """

    box: Floats
    textual: Flags
    objects: Floats
    load: Floats

    def __len__(self) -> int:
        """Number of leaves."""
        return len(self.load)


class GlobalIndex(ABC):
    """The contract of a global index.

    Each object goes to exactly one leaf. The leaf's box contains the object, and it depends only on the object and the
    index. Each query goes to every leaf that may hold an object of its region.
    """

    kind: ClassVar[str]
    """Name of the kind of index in files."""

    space: Space
    """The space that it covers."""

    leaves: Leaves
    """The leaves."""

    @abstractmethod
    def route_objects(self, objects: ObjectBatch) -> Codes:
        """The leaf of each of n objects, int32[n]."""

    def route_queries(self, queries: QueryBatch) -> tuple[Codes, Codes]:
        """The leaves of each query: (row int32[m], leaf int32[m]), ascending by (row, leaf) and without duplicates.

        Queries without a region (such as SKQs and CKQs) and cancellations concern all leaves. Every query concerns at
        least one leaf, provided that the centre of its circle lies in the space.
        """
        return self.route_regions(queries.regions)

    @abstractmethod
    def route_regions(self, regions: Regions) -> tuple[Codes, Codes]:
        """The leaves that each region intersects, in the format of :meth:`route_queries`."""

    @abstractmethod
    def nearest_leaves(self, at: Floats) -> Codes:
        """The leaf nearest to each of n points float64[n, 2], which receives an SKQ first (section 6.2): int32[n]."""

    @abstractmethod
    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Serialize the index as flat arrays and a JSON-serializable ``meta``."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> Self:
        """Deserialize the result of :meth:`to_arrays`; uses the arrays without a copy, e.g. memory-mapped ones."""

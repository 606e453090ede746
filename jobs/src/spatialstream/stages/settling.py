"""CKQs settle: they leave the slots that cannot have any of their k nearest objects (SSTD, section 6.3).

At first a CKQ concerns every slot. When MERGE knows its k-th distance over all slots, and whenever that has shrunk to
1/√2 of what it last was, the distance is written to a file of the round, which the record of the next round names. At
the beginning of that round each slot that has the query takes the distance as its *cap*, and drops the query if the
circle meets none of its leaves, under the active version and the one that is being prepared. Nothing farther can enter
the answer, ever: so the rows, and even their numbers, are the same without the slots that are left out.

The circle is then the query's region: by it the query moves between slots (:mod:`~spatialstream.stages.moves`). This
needs all slots to have the same cap for a query. So a slot remembers the radii of queries that it does not have, from
``prepare`` on until it has registered what was exported for it.

A query with a window does not settle, since objects leave its answer; nor does anything in a stream with one slot.

Cost: 16 bytes for each radius, and about a microsecond in each slot that has the query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from spatialstream.connectors.contracts import Storage
from spatialstream.index.version import RoutingVersion
from spatialstream.local.base import SettlingIndex
from spatialstream.model.geometry import CIRCLE
from spatialstream.model.kinds import Route, having
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Regions
from spatialstream.model.space import Space
from spatialstream.stages.messages import columns, numbers
from spatialstream.stages.routing import widened
from spatialstream.stages.state import Turn, get_records, put_records, turn_name

__all__ = [
    "EVERYWHERE",
    "RADII",
    "Radii",
    "drop_distant",
    "is_everywhere",
    "load_radii",
    "radii_name",
    "reach",
    "reaching",
    "save_radii",
]

RADII = "radii/"
"""Prefix of the names of the files."""

Radii = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Numbers of queries, ascending, and their radii."""

EVERYWHERE = having(lambda kind: kind.route is Route.EVERYWHERE)
"""By code: whether queries of a kind are on every slot when they are registered."""


def radii_name(turn: Turn, part: int) -> str:
    """The name of the file of a round and a part of MERGE."""
    return f"{RADII}{turn_name(turn)}-{part:04d}"


def save_radii(storage: Storage, turn: Turn, part: int, radii: Radii) -> None:
    """Write the file of a round and a part of MERGE."""
    number, radius = radii
    put_records(storage, radii_name(turn, part), columns(number=number, radius=radius))


def load_radii(storage: Storage, names: Iterable[str]) -> Radii:
    """The radii of several files; no query is in two of them."""
    records = [record for name in names for record in get_records(storage, name)]
    number = np.concatenate([np.empty(0, np.int64), *(numbers(each, "number") for each in records)])
    radius = np.concatenate([np.empty(0), *(numbers(each, "radius") for each in records)])
    order = np.argsort(number)
    return number[order], radius[order]


def is_everywhere(queries: QueryBatch) -> npt.NDArray[np.bool_]:
    """Which queries are on every slot: those of a kind that is routed everywhere, until they settle."""
    everywhere: npt.NDArray[np.bool_] = EVERYWHERE[queries.code] & (queries.regions.kind != CIRCLE)
    return everywhere


def reach(regions: Regions, space: Space) -> Regions:
    """Circles of queries that have settled, a little wider, so that rounding errors of distances to boxes are none."""
    shape = regions.shape.copy()
    shape[:, 2] = np.where(regions.kind == CIRCLE, widened(shape[:, 2], space), shape[:, 2])
    return Regions.plain(regions.kind, shape)


def reaching(queries: QueryBatch, space: Space) -> QueryBatch:
    """Queries of which none is everywhere, with the circles of those that have settled as :func:`reach` has them."""
    settled = np.flatnonzero(EVERYWHERE[queries.code])
    if not len(settled):
        return queries
    shape = queries.regions.shape.copy()
    shape[settled] = reach(queries.regions.take(settled), space).shape
    return replace(queries, regions=replace(queries.regions, shape=shape))


def drop_distant(
    slot: int, index: SettlingIndex, number: npt.NDArray[np.int64], versions: Iterable[RoutingVersion]
) -> None:
    """Drop the queries whose circles meet none of the slot's leaves.

    Args:
        slot: number of the slot.
        index: of the slot.
        number: int64[n], of queries; those that are not in the index are ignored.
        versions: those under which objects may come from now on.
    """
    number, circles = index.circles(number)
    circles, distant = reach(circles, index.space), np.ones(len(number), np.bool_)
    for version in versions:
        left = np.flatnonzero(distant)
        row, leaf = version.index.route_regions(circles.take(left))
        distant[left[row[version.mapping[leaf] == slot]]] = False
    index.drop(number[distant])

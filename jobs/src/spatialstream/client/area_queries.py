"""Registered queries of areas: which have another geometry than their area has now, and registering those anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from spatialstream.client.registered import RegisteredQueries
from spatialstream.model.areas import Area, AreaTable, GeometryState, renewed
from spatialstream.model.errors import Unavailable
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule

if TYPE_CHECKING:
    from spatialstream.client.record_writer import RecordWriter, Sent

__all__ = ["AreaQuery", "Refreshed", "area_queries", "refresh"]

_PAGE = 1_000
_PAUSE = 0.02
LOOK_SECONDS = 1.0
"""Seconds between two reads of the dead letters."""
MOST_VERTICES = 100_000
"""Vertices of the queries of a message, about: a vertex takes 40 bytes of JSON, and a message has 16 MB at most."""


class Listed(Protocol):
    """The part of a :class:`~spatialstream.client.stream.Stream` that lists queries.

    Attributes:
        space, rule: of the stream.
    """

    space: Space
    rule: TermRule

    def as_of(self, timeout: float = 10.0) -> dict[str, int] | None:
        """The newest round and its clock; None before the clock has started."""
        ...

    def queries(self, after: int = -1, limit: int = 100, timeout: float = 10.0) -> RegisteredQueries:
        """A page of the registered queries."""
        ...

    def query(self, id: str, timeout: float = 10.0) -> RegisteredQueries:
        """The query of an id, if it is registered."""
        ...


@dataclass(frozen=True, slots=True)
class AreaQuery:
    """A registered query of an area.

    Attributes:
        record: the query.
        area: the name of its area.
        geometry: whether its geometry is that of the area.
    """

    record: Mapping[str, Any]
    area: str
    geometry: GeometryState

    @property
    def id(self) -> str:
        """The query's id."""
        return str(self.record["id"])

    def without_geometry(self) -> AreaQuery:
        """The same without its polygon, which may be large; its region has the area's name and the margin."""
        region = {name: value for name, value in self.record["region"].items() if name != "polygon"}
        return AreaQuery({**self.record, "region": region}, self.area, self.geometry)


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Queries that have been registered anew.

    Attributes:
        queries: their ids.
        refused: of those that the stream has not taken, such as one that had just been cancelled, why.
    """

    queries: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


def area_queries(stream: Listed, areas: AreaTable) -> Iterator[AreaQuery]:
    """The registered queries of areas, in the order of registration.

    Raises:
        Unavailable: the stream does not answer in time.
    """
    after = -1
    while True:
        page = stream.queries(after, _PAGE)
        for record in page.queries:
            if (found := areas.geometry_state(record, stream.space)) is not None:
                yield AreaQuery(record, *found)
        if page.last is None or (len(page.queries) < _PAGE and not page.cut):
            return
        after = page.last


def refresh(stream: Listed, area: Area, areas: AreaTable, writer: RecordWriter, timeout: float = 60.0) -> Refreshed:
    """Register the queries anew that have another geometry of an area than it has now; returns when that is done.

    All of them end at one instant of the stream's time, and begin again at the same one, under their ids: no object
    is missed, none is matched by both, and a query ends when it would have. Windows of a CKQ and a CTQ begin empty.

    Args:
        stream: lists its queries.
        area: the area as it is now.
        areas: all of them.
        writer: sends records to the stream.
        timeout: seconds within which that must be done.

    Raises:
        Unavailable: the broker or the stream does not answer in time; some may be registered anew.
    """
    until = time.monotonic() + timeout
    outdated = [
        each.without_geometry()  # of which there are as many as queries, and none is needed
        for each in area_queries(stream, areas)
        if (each.area, each.geometry) == (area.name, GeometryState.OUTDATED)
    ]
    if not outdated:
        return Refreshed()
    as_of = stream.as_of(timeout)
    # queries may be of a later time than the clock, which then have not begun
    now = max([each.record["t"] for each in outdated] + ([] if as_of is None else [as_of["clock"]]))
    refused = dict[str, str]()
    size = max(1, MOST_VERTICES // len(area.polygon))
    for first in range(0, len(outdated), size):
        part = outdated[first : first + size]
        sent = writer.queries(*(record for each in part for record in renewed(each.record, area, now)))
        refused |= _awaited(stream, areas, part, partial(_refusals, writer, sent), until)
    return Refreshed(tuple(each.id for each in outdated if each.id not in refused), refused)


def _awaited(
    stream: Listed,
    areas: AreaTable,
    part: Sequence[AreaQuery],
    refusals: Callable[[], dict[int, str]],
    until: float,
) -> dict[str, str]:
    """Wait until the queries of a message are registered; returns the reasons of those that are not."""
    waiting, looked, refused = list(part), time.monotonic(), dict[str, str]()
    while waiting:
        last = stream.query(waiting[-1].id, max(1.0, until - time.monotonic())).queries
        if last and areas.geometry_state(last[0], stream.space) == (waiting[-1].area, GeometryState.CURRENT):
            waiting.pop()
            continue
        if time.monotonic() > looked + LOOK_SECONDS:
            looked = time.monotonic()
            refused |= {part[line // 2].id: reason for line, reason in refusals().items()}
            waiting = [each for each in waiting if each.id not in refused]
        elif time.monotonic() > until:
            raise Unavailable(f"the stream has not registered {len(waiting)} queries anew in time")
        time.sleep(_PAUSE)
    return refused


def _refusals(writer: RecordWriter, sent: Sent) -> dict[int, str]:
    """The reasons by the number of the record in its message, from 0."""
    writer.poll(sent)
    return {line - 1: reason for line, reason in sent.refused.items()}

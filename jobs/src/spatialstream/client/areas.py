"""The areas of a stream: kept in a topic of their own, so that every reader of the stream can read them.

The topic is compacted, and has one partition. The key of a message is an area's name, its value the geometry as GeoJSON
with its digest, and who keeps it, if that is known; a message without a value deletes the area. The revision of an area
is the offset of its message.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Message

from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_clients import offsets, read, send
from spatialstream.model.areas import Area, AreaTable, read_areas
from spatialstream.model.errors import RecordError, SettingError, Unavailable
from spatialstream.model.query_fields import check_by
from spatialstream.model.regions import check_area_name
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule

__all__ = ["MOST_VERTICES", "Areas", "Loaded"]

MOST_VERTICES = 2_000_000
"""Most vertices of all areas of a stream together, which each of its clients has in memory: 32 MB."""

_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading areas has changed.

    Attributes:
        new: names of areas that there were not before.
        changed: of those that had another geometry: queries of them keep it until they are registered anew.
        same: of those that had the same.
    """

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


class Areas:
    """Reads and writes the areas of a stream; safe for any number of threads.

    Each call reads what has been written since the last one.

    Args:
        connection: how to reach the broker.
        stream: the stream's name.
        space: of the stream.
        rule: of the stream: how many vertices a polygon may have.
    """

    def __init__(
        self, connection: Connection, stream: str, space: Space = WGS84, rule: TermRule = DEFAULT_RULE
    ) -> None:
        self._connection, self._topic = connection, connection.topics(stream).areas
        self.space, self.rule = space, rule
        self._lock = threading.Lock()
        self._next = 0
        self._found = dict[str, Area]()
        self._unusable = dict[str, str]()
        self._table = AreaTable()

    def table(self) -> AreaTable:
        """All areas as they are now.

        Raises:
            Unavailable: the broker does not answer, denies reading, or has no such topic.
        """
        with self._lock:
            self._read_on()
            return self._table

    def load(
        self,
        geojson: Any,
        id: str | None = None,
        *,
        name: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Loaded:
        """Read areas from GeoJSON, and keep them; all or none are valid. Areas that are not in it stay.

        Args:
            geojson: the parsed JSON: a FeatureCollection, a Feature, a Polygon or a MultiPolygon.
            id: the property that has a feature's name; None: its own id.
            name: of the only area; then it needs no id.
            force: whether to take over areas that a SpatialArea keeps.
            dry_run: whether to write nothing, and return what would change.

        Raises:
            SettingError: one of them is invalid, which names the feature and the place; a SpatialArea keeps it; or the
                stream would have areas of too many vertices.
            Unavailable: the broker may not have all of them.
        """
        try:
            found = read_areas(geojson, id, self.space, self.rule, name)
        except RecordError as error:
            raise SettingError("areas", str(error)) from None
        return self.put(found, force=force, dry_run=dry_run)

    def put(self, areas: Sequence[Area], by: str = "", *, force: bool = False, dry_run: bool = False) -> Loaded:
        """Keep areas, in place of those of their names; those that are as they were are not written again.

        Args:
            areas: the areas.
            by: who keeps them; empty: not known.
            force: whether to take over areas that somebody else keeps (:meth:`AreaTable.conflict
                <spatialstream.model.areas.AreaTable.conflict>`).
            dry_run: whether to write nothing, and return what would change.

        Raises:
            SettingError: somebody else keeps one of them, or the stream would have areas of more than
                :data:`MOST_VERTICES`; then none is written.
            Unavailable: the broker may not have all of them.
        """
        table, outcome, messages = self.table(), dict[str, list[str]](new=[], changed=[], same=[]), []
        _check_owner(table, [area.name for area in areas], by, force=force)
        _check_size(table, areas)
        for area in areas:
            before = table.get(area.name)
            how = "new" if before is None else "same" if before.polygon == area.polygon else "changed"
            outcome[how].append(area.name)
            if how != "same" or (force and table.conflict([area.name], by)):
                messages.append((self._topic, 0, area.name.encode(), _value(replace(area, by=by))))
        if messages and not dry_run:
            send(self._connection, messages)
        return Loaded(**{how: tuple(names) for how, names in outcome.items()})

    def delete(self, *names: str, by: str = "", force: bool = False) -> None:
        """Delete areas. Queries of them keep their geometry.

        Args:
            names: of the areas.
            by: who deletes them, as of :meth:`put`.
            force: whether to delete areas that somebody else keeps.

        Raises:
            SettingError: there is no area of one of the names, or somebody else keeps it; then none is deleted.
            Unavailable: the broker may not have all of it.
        """
        table = self.table()
        _check_owner(table, names, by, force=force)
        for name in names:
            if name not in table.unusable:
                _found(table, name)
        if names:
            send(self._connection, ((self._topic, 0, name.encode(), None) for name in names))

    def get(self, name: str) -> Area:
        """The area of a name.

        Raises:
            SettingError: there is none; the message has the nearest names.
            Unavailable: as in :meth:`table`.
        """
        return _found(self.table(), name)

    def _read_on(self) -> None:
        known = offsets(self._connection)
        if self._topic not in known.partitions([self._topic]):
            raise Unavailable(f"the broker has no topic {self._topic}; the router creates it")
        begin, end = (each[self._topic][0] for each in known.bounds({self._topic: 1}))
        if end < self._next:  # it was deleted, and is there again
            self._next, self._found, self._unusable = 0, {}, {}
        if end <= self._next:
            return
        for messages in read(self._connection, self._topic, 0, max(begin, self._next), end):
            for message in messages:
                self._take(message)
        self._next, self._table = end, AreaTable(self._found.values(), self._unusable)

    def _take(self, message: Message) -> None:
        name, value = (message.key() or b"").decode(errors="replace"), message.value()
        self._found.pop(name, None)
        self._unusable.pop(name, None)
        if value is None:
            return
        try:
            self._found[name] = self._parsed(name, value, int(message.offset() or 0))
        except RecordError as error:  # a message that somebody else has written
            self._unusable[name[:_LONGEST_SHOWN]] = str(error)

    def _parsed(self, name: str, value: bytes, revision: int) -> Area:
        check_area_name(name)
        try:
            record = json.loads(value)
        except (ValueError, RecursionError):
            raise RecordError("area", "is not JSON") from None
        if not isinstance(record, Mapping):
            raise RecordError("area", "is not a JSON object")
        (area,) = read_areas(record.get("geometry"), None, self.space, self.rule, name)
        return replace(area, revision=revision, by=check_by(record["by"]) if "by" in record else "")


def _value(area: Area) -> bytes:
    owner = {"by": area.by} if area.by else {}
    return json.dumps({"geometry": area.polygon.to_geojson(), "digest": area.polygon.digest} | owner).encode()


def _check_owner(table: AreaTable, names: Iterable[str], by: str, *, force: bool) -> None:
    if not force and (conflict := table.conflict(names, by)):
        raise SettingError("area", conflict)


def _check_size(table: AreaTable, areas: Iterable[Area]) -> None:
    """Refuse areas with which the stream would have too many vertices."""
    size = sum(len(each.polygon) for each in {each.name: each for each in (*table, *areas)}.values())
    if size > MOST_VERTICES:
        told = f"the stream's areas would have {size:,} vertices in all; the most is {MOST_VERTICES:,}"
        raise SettingError("areas", f"{told}: simplify their borders, or delete other areas first")


def _found(table: AreaTable, name: str) -> Area:
    try:
        return table.find(name)
    except RecordError as error:
        raise SettingError("area", error.problem) from None

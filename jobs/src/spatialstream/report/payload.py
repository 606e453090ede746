"""The content of the page as one JSON value: queries with their answers, places, counts over time.

Results arrive as a stream of rows. For each query the latest ``MOST_ROWS`` rows are kept (fewer if there are many
queries), of each row the first ``MOST_ITEMS`` objects or terms, and of the objects without a match ``MOST_PLACES``,
evenly chosen. Totals count everything, and the page says where it shows only a part. A ``title`` of a query or an
object replaces the page's own description. Cost: O(rows + objects), memory O(content kept).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from typing import Any

import numpy as np

from spatialstream.model.errors import RecordError
from spatialstream.model.expressions import Expression
from spatialstream.model.kinds import KINDS, TYPES, Kind
from spatialstream.model.lifetimes import endless
from spatialstream.model.properties.condition import text_of
from spatialstream.model.queries import Best, Cancellation, Nearest, Predicate, Query, parse_query
from spatialstream.model.regions import Box, Polygon, Region, Regions
from spatialstream.model.space import Space
from spatialstream.model.terms import ANY_WORDS, extract_terms
from spatialstream.model.times import TIME_LIMIT, format_duration, parse_time
from spatialstream.report.shapes import outline

__all__ = ["moment", "payload", "sentence"]

MOST_QUERIES, MOST_ROWS, MOST_ITEMS, MOST_PLACES = 300, 2_000, 1_000, 4_000
_ROWS_IN_ALL = 40_000
_BINS = 160
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)

Record = Mapping[str, Any]


@dataclass(slots=True)
class _Asked:
    """A query with its result rows."""

    query: Query
    record: Record
    end: int
    rows: deque[Record] = field(default_factory=deque)
    total: int = 0


def payload(
    space: Space, queries: Sequence[Record], objects: Sequence[Record], results: Iterable[Record]
) -> dict[str, Any]:
    """Build the JSON value that the page's script reads.

    Args:
        space: the stream's space.
        queries: records as in a query file; invalid ones are left out.
        objects: records as in an object file; those without a valid time or place are left out.
        results: result rows, in any order between queries and in order of time within each.
    """
    entries, by_id = _asked(queries, space)
    totals = _collect(results, by_id)
    shown = _choose(entries)
    places = _Places(space, objects)
    answered = [_query_value(each, space, places) for each in shown]
    places.sample()
    for value, each in zip(answered, shown, strict=True):
        if not each.query.kind.has_places:
            value["counted"] = places.inside(each.query.predicate)
    moments = [places.span, *((row["t"], row["t"]) for value in answered for row in value["rows"])]
    known = [moment for moment in moments if moment is not None]
    first = min((low for low, _ in known), default=0)
    last = max((high for _, high in known), default=0)
    return {
        "space": {"geographic": space.geographic, "bounds": _bounds(space, places)},
        "time": _histogram(places.times, first, last),
        "places": places.columns(),
        "objects": len(places.times),
        "queries": answered,
        "asked": len(entries),
        "totals": totals,
        "kinds": {kind.type: _kind_value(kind) for kind in KINDS},
    }


def _kind_value(kind: Kind) -> dict[str, Any]:
    return {
        "title": kind.wording.title,
        "summary": kind.wording.summary,
        "row": kind.wording.row or ("answer",),
        "continuous": kind.continuous,
        "rows": kind.rows,
    }


def _asked(records: Sequence[Record], space: Space) -> tuple[list[_Asked], dict[str, list[_Asked]]]:
    """The valid queries, in their order, and the same by id, with cancellations applied."""
    entries: list[_Asked] = []
    by_id: dict[str, list[_Asked]] = {}
    cancelled: dict[str, list[int]] = {}
    for record in records:
        try:
            query = parse_query(record, space, ANY_WORDS)
        except RecordError:
            continue
        if isinstance(query, Cancellation):
            cancelled.setdefault(query.id, []).append(query.t)
            continue
        end = query.t + query.lifetime.duration if query.lifetime.continuous else query.t
        entry = _Asked(query, record, end)
        entries.append(entry)
        by_id.setdefault(query.id, []).append(entry)
    for name, moments in cancelled.items():
        for entry in by_id.get(name, ()):
            entry.end = min([entry.end, *(t for t in moments if entry.query.t <= t)])
    return entries, by_id


def _collect(results: Iterable[Record], by_id: Mapping[str, list[_Asked]]) -> dict[str, int]:
    """Assign every row to its query; of several with the same id, to the latest one by the row's time."""
    totals: Counter[str] = Counter()
    queries = sum(map(len, by_id.values()))
    most = min(MOST_ROWS, max(100, _ROWS_IN_ALL // max(1, queries)))
    for row in results:
        totals[row["type"]] += 1
        candidates = by_id.get(row["query"])
        if not candidates:
            continue
        earlier = [one for one in candidates if one.query.t <= row["t"] and one.query.type == row["type"]]
        one = max(earlier, key=lambda one: one.query.t, default=candidates[0])
        one.rows.append(row)
        if len(one.rows) > most:
            one.rows.popleft()
        one.total += 1
    return {kind: totals[kind] for kind in TYPES if totals[kind]}


def _choose(asked: list[_Asked]) -> list[_Asked]:
    """Choose at most ``MOST_QUERIES``, ordered by type and then as given; of each type those with the most rows."""
    by_type: dict[str, list[_Asked]] = {}
    for one in asked:
        by_type.setdefault(one.query.type, []).append(one)
    most = MOST_QUERIES // max(1, len(by_type))
    chosen: list[_Asked] = []
    for kind in TYPES:
        several = by_type.get(kind, [])
        kept = {id(one) for one in sorted(several, key=lambda one: -one.total)[:most]}
        chosen += [one for one in several if id(one) in kept]
    return chosen


@dataclass(frozen=True, slots=True)
class _Place:
    """An object as the page draws it."""

    id: str
    t: int
    x: float
    y: float
    label: str
    text: str


class _Places:
    """The objects that the page draws: all that a result names, and a sample of the others."""

    def __init__(self, space: Space, objects: Sequence[Record]) -> None:
        self._space = space
        self._x, self._y = space.axes
        self._index: dict[tuple[str, int], int] = {}
        self._drawn: list[_Place] = []
        self._others: dict[tuple[str, int], _Place] = {}
        self.times: list[int] = []
        for record in objects:
            try:
                t = parse_time(record.get("t"))
                x, y = space.check_point(record.get(self._x), record.get(self._y), space.axes)
            except RecordError:
                continue
            self.times.append(t)
            text = record.get("text")
            text = str(text) if text is not None else " ".join(map(str, record.get("terms") or ()))
            place = _Place(str(record.get("id")), t, x, y, _title(record) or text, text)
            self._others[place.id, t] = place

    @property
    def span(self) -> tuple[int, int] | None:
        """First and last time of an object."""
        return (min(self.times), max(self.times)) if self.times else None

    def add(self, item: Record) -> int:
        """Add an object of a result row, if it is new; return its number."""
        key = item["id"], item["t"]
        if key not in self._index:
            self._index[key] = len(self._drawn)
            known = self._others.pop(key, None)
            self._drawn.append(known or _Place(item["id"], item["t"], item[self._x], item[self._y], "", ""))
        return self._index[key]

    def sample(self) -> None:
        """Add a sample of the objects that are in no result row."""
        others = list(self._others.values())
        if len(others) > MOST_PLACES:
            others = [others[i] for i in np.linspace(0, len(others) - 1, MOST_PLACES).astype(np.int64)]
        self._drawn += others

    def inside(self, predicate: Predicate) -> list[int]:
        """Numbers of the places that a predicate holds for; none if it asks of properties, which places do not have."""
        if predicate.where is not None:
            return []
        region, text = Regions.of([predicate.region]), predicate.expression
        anything = text == Expression()
        return [
            i
            for i, place in enumerate(self._drawn)
            if region.contain(self._space, 0, place.x, place.y) and (anything or text.holds(extract_terms(place.text)))
        ]

    def columns(self) -> dict[str, list[Any]]:
        """The places as columns."""
        return {name: [getattr(place, name) for place in self._drawn] for name in ("id", "t", "x", "y", "label")}


def _title(record: Record) -> str:
    title = record.get("title")
    return title if isinstance(title, str) else ""


def _query_value(one: _Asked, space: Space, places: _Places) -> dict[str, Any]:
    query = one.query
    lifetime = query.lifetime
    start = query.t if lifetime.continuous or lifetime.duration == endless(None) else query.t - lifetime.duration
    at = query.selection
    return {
        "id": query.id,
        "title": _title(one.record),
        "type": query.type,
        "t": query.t,
        "span": [start, one.end],
        "window": lifetime.window if lifetime.continuous else lifetime.duration,
        "rings": [] if query.predicate.region is None else _rounded(outline(space, query.predicate.region)),
        "at": [at.x, at.y] if isinstance(at, Nearest | Best) else None,
        "says": sentence(query, one.end, space),
        "record": dict(one.record),
        "total": one.total,
        "rows": [
            _row_value(row, query.kind.rows, places, space.distance_field)
            for row in sorted(one.rows, key=lambda row: int(row["t"]))
        ],
    }


def _row_value(row: Record, answer: str, places: _Places, distance: str) -> dict[str, Any]:
    """A row with places by number: ``o`` objects, ``d`` their distances, ``n`` how many there are in all.

    ``value`` is an answer that is neither objects nor terms.
    """
    if "terms" in row:
        return {"t": row["t"], "terms": [[term["term"], term["count"]] for term in row["terms"][:MOST_ITEMS]]}
    if "object" in row:
        return {"t": row["t"], "o": [places.add(row["object"])], "n": 1}
    if answer != "objects" and answer in row:
        return {"t": row["t"], "o": [], "n": 0, "value": row[answer]}
    items = row["objects"][:MOST_ITEMS]
    value: dict[str, Any] = {"t": row["t"], "o": [places.add(item) for item in items], "n": len(row["objects"])}
    if items and distance in items[0]:
        value["d"] = [item[distance] for item in items]
    return value


def _rounded(rings: list[list[tuple[float, float]]]) -> list[list[float]]:
    """Rings as flat lists x0, y0, x1, y1, ..., to nine significant digits."""
    return [[float(f"{number:.9g}") for point in ring for number in point] for ring in rings]


def _bounds(space: Space, places: _Places) -> list[float]:
    """The initial view of the map: the world, or the part of a plane that contains the objects."""
    columns = places.columns()
    if space.geographic or not columns["x"]:
        return list(space.bounds)
    west, east = min(columns["x"]), max(columns["x"])
    south, north = min(columns["y"]), max(columns["y"])
    if (east - west) * (north - south) > 0.05 * (space.east - space.west) * (space.north - space.south):
        return list(space.bounds)
    margin = 0.05 * max(east - west, north - south) or 0.01 * (space.east - space.west)
    return [west - margin, south - margin, east + margin, north + margin]


def _histogram(times: list[int], first: int, last: int) -> dict[str, Any]:
    """Counts of all objects in at most ``_BINS`` bins of a round width, aligned to it."""
    width = _bin_width(max(1, last - first))
    start = first // width * width
    counts = np.bincount((np.array(times, np.int64) - start) // width, minlength=(last - start) // width + 1)
    return {"first": first, "last": last, "start": start, "width": width, "counts": counts.tolist()}


def _bin_width(extent: int) -> int:
    """The smallest round number of ms of which ``_BINS`` cover ``extent``."""
    widths = chain(_STEPS, (1_000 * seconds for seconds in _SECONDS), (86_400_000 << i for i in count(1)))
    return next(width for width in widths if width * (_BINS - 1) >= extent)


def sentence(query: Query, end: int, space: Space) -> str:
    """Describe a query in words."""
    region = _region_words(query.predicate.region, space)
    having = _text_words(query.predicate.expression)
    lifetime, k = query.lifetime, query.k
    back = f"in the {format_duration(lifetime.duration)} up to {moment(query.t)}"
    life = f"from {moment(query.t)} " + (f"to {moment(end)}" if end <= TIME_LIMIT else "on")
    at = query.selection
    near = _point_words(at.x, at.y, space) if isinstance(at, Nearest | Best) else ""
    about = ""
    if at.ranking is not None:
        about = " or ".join(f"“{word}”" for word in at.ranking.words)
        if lifetime.duration == endless(None):
            back = f"up to {moment(query.t)}"
    over = f" of the last {format_duration(lifetime.window)}" if lifetime.window is not None else ""
    every = format_duration(lifetime.step or 0)
    words = {"near": near, "region": region, "having": having, "back": back, "life": life, "over": over, "every": every}
    return query.kind.wording.sentence.format(k=k, about=about, **words)


def _text_words(text: Expression) -> str:
    groups = [" and ".join(f"“{term}”" for term in group) for group in text.groups if group]
    none = " or ".join(f"“{term}”" for term in text.none)
    only = ", but" if len(groups) > 1 else ""  # what must be absent is so of all groups
    words = (f" with {', or '.join(groups)}" if groups else "") + (f"{only} without {none}" if none else "")
    return words + (f" where {text_of(text.where)}" if text.where else "")


def _region_words(region: Region | None, space: Space) -> str:
    if region is None:
        return "anywhere"
    if isinstance(region, Box):
        corners = _point_words(region.west, region.south, space), _point_words(region.east, region.north, space)
        return f"in the box from {corners[0]} to {corners[1]}"
    if isinstance(region, Polygon):
        west, south, east, north = region.box
        corners = _point_words(west, south, space), _point_words(east, north, space)
        named = f"{region.area}, " if region.area else ""
        # a line is kept as a ring that goes there and back, so its vertices are not those that were given
        what = "lines or points" if region.is_of_lines else f"a polygon of {len(region)} vertices"
        where = f"within {_distance_words(region.within, space)} of" if region.within else "in"
        return f"{where} {named}{what}, from {corners[0]} to {corners[1]}"
    return f"within {_distance_words(region.radius, space)} of {_point_words(region.x, region.y, space)}"


def _distance_words(distance: float, space: Space) -> str:
    if not space.geographic:
        return f"{distance:g}"
    return f"{distance / 1000:g} km" if distance >= 1_000 else f"{distance:g} m"


def _point_words(x: float, y: float, space: Space) -> str:
    if not space.geographic:
        return f"({x:g}, {y:g})"
    return f"{abs(y):.4g}°{'N' if y >= 0 else 'S'} {abs(x):.5g}°{'E' if x >= 0 else 'W'}"


def moment(t: int) -> str:
    """Format a time: UTC, with seconds and milliseconds only if they are not zero."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=t)
    except OverflowError:
        return f"{t} ms"
    if t % 60_000 == 0:
        return f"{moment:%Y-%m-%d %H:%M}"
    return f"{moment:%Y-%m-%d %H:%M:%S}" + (f".{t % 1000:03}" if t % 1000 else "")

"""Objects of streams in wgs84 for GIS tools: OGC API, Features, in GeoJSON and CRS84.

There are Part 1 (OGC 17-069r4), and of Part 3 (OGC 19-079r2) filters and the properties that they may name.

A stream is a collection, an object a feature. Items are sorted newest first, as the newest are the most relevant. A
page is found by querying a window of time that grows until it holds enough objects. The end of a page is encoded in the
link to the next one, so the gateway keeps no state, and new objects do not shift pages: an object that arrives in time
is newer than all pages.

Several objects may have one id, even at one time, and a record that was sent twice is two objects. So a feature's id is
made of all that it shows, and of objects that are the same in that, the second and further ones have their number, too:
``t@lon,lat.id``, ``t@lon,lat~2.id``. It is the same on whichever page it stands, whatever that was asked for, and says
where to look for the item. What GIS tools take for a property called ``id`` is the feature's (GDAL asks for the item of
that id), so the object's own is called ``object``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from spatialstream.client.stream import Stream
from spatialstream.gateway.access import Caller
from spatialstream.gateway.answers import PARSED, Pieces, Room
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.listing import number_of
from spatialstream.gateway.problems import Problem, of_error
from spatialstream.gateway.requests import check_parameters, wanted_form
from spatialstream.gateway.reviews import Reviewed
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import RecordError, SettingError, SpatialStreamError, TooLarge
from spatialstream.model.properties.declared import PropertyType
from spatialstream.model.times import parse_time

__all__ = [
    "CONFORMANCE",
    "CRS84",
    "MOST_ITEMS",
    "SCHEMA",
    "collection",
    "collections",
    "conformance",
    "item",
    "items",
    "landing",
    "queryables",
]

CONFORMANCE = (
    *(f"http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/{each}" for each in ("core", "geojson")),
    *(f"http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/{each}" for each in ("queryables", "filter")),
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/features-filter",
)
"""The classes that are implemented whole. Of CQL2 there is a subset, which is none of its classes."""
MOST_ITEMS = 10_000
_DEFAULT_ITEMS = 10
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_WORLD = (-180.0, -90.0, 180.0, 90.0)
_FIRST_WINDOW, _GROWTH, _WIDEST = 16, 8, 2**46
"""Window of time queried for a page, ms: the first, its factor of growth, and the size that covers all times."""
_CRS = {"Content-Crs": f"<{CRS84}>"}
_AHEAD = 1_000
"""ms that a clock goes on while a page is asked for, about."""
_OPENAPI = "application/vnd.oai.openapi+json;version=3.1"
_JSON, _HTML = "application/json", "text/html"
SCHEMA = "application/schema+json"
_QUERYABLES = "http://www.opengis.net/def/rel/ogc/1.0/queryables"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FORMS: dict[PropertyType, dict[str, str]] = {
    PropertyType.KEYWORD: {"type": "string"},
    PropertyType.NUMBER: {"type": "number"},
    PropertyType.TIME: {"type": "string", "format": "date-time"},
    PropertyType.BOOLEAN: {"type": "boolean"},
}
"""The types of properties as JSON Schema."""

_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")

_BARE_DAY = re.compile("(?<=^[0-9]{4}-[0-9]{2}-[0-9]{2})T$")
"""The suffix that GDAL appends to a date without a time."""

_Key = tuple[int, str, float, float]
"""What puts objects into their order: t, id, longitude, latitude. Those that have all in common show the same."""

_Place = tuple[_Key, int]
"""Where a page ends: a key, and how many objects of it have been given."""

_Item = tuple[_Key, int, Mapping[str, Any]]
"""An object: its key, its number among those of this key, and the fields that the stream keeps."""

_OWN = ("id", "t", "lon", "lat")
"""What every object of a row has."""

_FLOAT = r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_ITEM = re.compile(rf"(-?[0-9]{{1,16}})@({_FLOAT}),({_FLOAT})(?:~([0-9]{{1,9}}))?\.(.*)", re.DOTALL)

_ROWS = 8 << 20
"""Bytes of the rows that are looked through for a page, at most: of more, a shorter time is asked for."""


async def landing(request: Request) -> Response:
    """The landing page; for a browser, a redirect to the console."""
    check_parameters(request, "f")
    asked_for = request.headers.get("accept", "")
    if "f" not in request.query_params and _HTML in asked_for and wanted_form(request, (_JSON, _HTML)) == _HTML:
        return RedirectResponse("/console/", 307)
    links = [
        _link(request, "/", "self", _JSON, "this document"),
        _link(request, "/openapi.json", "service-desc", _OPENAPI, "the interface"),
        _link(request, "/conformance", "conformance", _JSON, "the conformance classes"),
        _link(request, "/collections", "data", _JSON, "the streams"),
    ]
    return JSONResponse({"title": "spatialstream", "description": "Live streams of objects", "links": links})


async def conformance(request: Request) -> Response:
    """The conformance classes of the standard."""
    check_parameters(request, "f")
    return JSONResponse({"conformsTo": list(CONFORMANCE)})


async def collections(request: Request, caller: Caller | Reviewed, streams: Mapping[str, ServedStream]) -> Response:
    """The streams in wgs84 that the caller may query and that can be reached."""
    check_parameters(request, "f")
    entries = list[dict[str, Any]]()
    for name, stream in sorted(streams.items()):
        if "ask" in await caller.rights_on(name):
            try:
                geographic = (await stream.opened()).space.geographic
            except (SpatialStreamError, Problem):
                continue  # an unavailable stream must not hide the others
            if geographic:
                entries.append(_described(request, name))
    links = [_link(request, "/collections", "self", _JSON, "this document")]
    return JSONResponse({"links": links, "collections": entries})


async def collection(request: Request, stream: ServedStream) -> Response:
    """A stream as a collection."""
    check_parameters(request, "f")
    await _check_globe(stream)
    return JSONResponse(_described(request, stream.name))


async def queryables(request: Request, stream: ServedStream) -> Response:
    """The properties that a filter may name, as JSON Schema."""
    check_parameters(request, "f")
    await _check_globe(stream)
    declared = (await stream.opened()).rule.properties
    path = f"/collections/{quote(stream.name, safe='')}/queryables"
    schema = {
        "$schema": _DIALECT,
        "$id": str(request.base_url).rstrip("/") + path,
        "title": stream.name,
        "type": "object",
        "properties": {name: {"title": name} | _FORMS[kind] for name, kind in declared.types},
        "additionalProperties": False,
    }
    return JSONResponse(schema, media_type=SCHEMA)


async def items(request: Request, stream: ServedStream, room: Room, held: ExitStack) -> Response:
    """Objects of a stream, newest first.

    Args:
        request: the request.
        stream: the stream.
        room: for what is looked through, and for the page.
        held: is closed when it has been sent.
    """
    known = ("f", "bbox", "bbox-crs", "q", "filter", "filter-crs", "filter-lang", "limit", "page")
    check_parameters(request, *known, many=["datetime"])
    limit = number_of(request, "limit", _DEFAULT_ITEMS, 1, MOST_ITEMS)
    parameters = request.query_params
    for name in ("bbox-crs", "filter-crs"):
        if parameters.get(name, CRS84) != CRS84:
            raise _wrong(name, f"must be {CRS84}")
    words = _words(parameters.get("q")) | _where(parameters.get("filter"), parameters.get("filter-lang", _TEXT))
    box = _box(parameters.get("bbox"))
    first, last = _intervals(parameters.getlist("datetime"))
    before = _page(parameters.get("page"))
    await _check_globe(stream)
    for end in _ends(parameters.getlist("datetime")):
        await stream.check_unit("datetime", end)
    objects, as_of = await stream.call(
        lambda opened: _newest(_Asking(opened, box, words, room), first, last, before, limit + 1)
    )
    path = f"/collections/{quote(stream.name, safe='')}"
    links = [
        _link(
            request, request.url.path + (f"?{request.url.query}" if request.url.query else ""), "self", GEOJSON, "this"
        ),
        _link(request, path, "collection", _JSON, stream.name),
    ]
    if len(objects) > limit:
        given = [(name, value) for name, value in parameters.multi_items() if name != "page"]
        key, number, _ = objects[limit - 1]
        page = json.dumps([*key, number], ensure_ascii=False, separators=(",", ":"))
        there = f"{path}/items?{urlencode([*given, ('page', page)])}"
        links.append(_link(request, there, "next", GEOJSON, "older ones"))
    returned = min(limit, len(objects))
    members = {
        "numberReturned": returned,
        "timeStamp": _iso(int(datetime.now(UTC).timestamp() * 1000)),
        "as_of": as_of,
        "links": links,
    }

    def pieces() -> Iterator[bytes]:
        yield b'{"type": "FeatureCollection", "features": ['
        for i, each in enumerate(objects[:limit]):
            yield (b", " if i else b"") + _encoded(_feature(*each))
        yield b"], " + _encoded(members)[1:]

    return Pieces(pieces(), GEOJSON, held.pop_all(), headers=_CRS)


async def item(request: Request, stream: ServedStream, room: Room) -> Response:
    """One object."""
    check_parameters(request, "f")
    name = request.path_params["item"]
    match = _ITEM.fullmatch(name)
    await _check_globe(stream)

    def found(opened: Stream) -> _Item | None:
        if match is None:
            return None
        key = int(match[1]), match[5], float(match[2]), float(match[3])
        number = int(match[4] or 1)
        on_globe = abs(key[2]) <= 180 and abs(key[3]) <= 90
        if not on_globe or _id(key, number) != name or (as_of := opened.as_of()) is None or key[0] > as_of["clock"]:
            return None
        box = key[2], key[3], key[2], key[3]
        there, _ = _Asking(opened, box, {}, room).objects(key[0], 1)
        alike = [said for each, said in there if each == key]
        return (key, number, alike[number - 1]) if len(alike) >= number else None

    there = await stream.call(found)
    if there is None:
        raise Problem("not-found", f"there is no item {name}, or retention has dropped it")
    path = f"/collections/{quote(stream.name, safe='')}"
    links = [
        _link(request, f"{path}/items/{quote(name, safe='')}", "self", GEOJSON, name),
        _link(request, path, "collection", _JSON, stream.name),
    ]
    return Response(_encoded(_feature(*there) | {"links": links}), headers=_CRS, media_type=GEOJSON)


# ------------------------------------------------------------------------------------------------------------ queries


def _newest(
    asking: _Asking, first: int | None, last: int | None, before: _Place | None, most: int
) -> tuple[list[_Item], dict[str, int] | None]:
    """The ``most`` newest objects from ``first`` to ``last`` ms and before a place; and what they are as of.

    They are all those that an SRQ has as of that round: what is looked at last is one answer, which has the whole page.
    """
    if (now := asking.opened.as_of()) is None:
        return [], None
    ends = [each for each in (last, before and before[0][0]) if each is not None]
    until = min(ends, default=None)
    if until is not None and until >= now["clock"]:
        until = None  # as of the clock, which may have gone on when it is asked; what is later is left out
    good, window, too_much, ahead = 0, _FIRST_WINDOW, _WIDEST + 1, _AHEAD
    while True:
        span = _WIDEST
        if first is not None:  # as of the clock from a little before, for it goes on while it is asked
            span = now["clock"] - first + 1 + ahead if until is None else until - first + 1
        if span <= 0:
            return [], now
        since = min(window, span, _WIDEST)
        try:
            rows, as_of = asking.objects(until, since)
        except TooLarge:
            too_much = since
        else:
            good, now = since, as_of
            found = _counted(rows, first, last, before)
            reached = since >= span and (until is not None or first is None or as_of["clock"] - since < first)
            if reached or len(found) >= most:
                return found[:most], as_of
            ahead *= _GROWTH if since >= span else 1  # it has gone on by more
        if too_much - good <= 1:
            told = f"a page of {most - 1} objects requires a scan that is too large"
            raise Problem("answer-too-large", f"{told}; give a smaller limit or bbox")
        window = good + (too_much - good) // 2 if too_much <= _WIDEST else good * _GROWTH


def _counted(
    seen: Sequence[tuple[_Key, Mapping[str, Any]]], first: int | None, last: int | None, before: _Place | None
) -> list[_Item]:
    """Objects, the newest first, with their numbers among those of the same key; without those of other pages."""
    places, key, number = list[_Item](), None, 0
    for each, said in sorted(seen, key=lambda pair: pair[0], reverse=True):
        number = number + 1 if each == key else 1
        key = each
        in_time = (first is None or each[0] >= first) and (last is None or each[0] <= last)
        if in_time and (before is None or each < before[0] or (each == before[0] and number > before[1])):
            places.append((each, number, said))
    return places


@dataclass(frozen=True, slots=True)
class _Asking:
    """What objects are asked for.

    Attributes:
        opened: the stream.
        box: in which.
        words: that they have, and the condition on their properties.
        room: for them.
    """

    opened: Stream
    box: tuple[float, ...]
    words: Mapping[str, Any]
    room: Room

    def objects(self, t: int | None, duration: int) -> tuple[list[tuple[_Key, Mapping[str, Any]]], dict[str, int]]:
        """Those with times in (t - duration, t], with their fields, and what they are as of; None: up to its clock.

        What was asked for before may be forgotten.

        Raises:
            TooLarge: they are more than can be looked through.
            Problem: there is no room.
        """
        record = {"type": "SRQ", "duration": duration, "region": {"box": list(self.box)}, **self.words}
        if t is not None:
            record["t"] = t
        bounds = replace(self.room.bounds, largest=min(_ROWS, self.room.largest // 2))
        try:
            (line,) = self.opened.snapshots.lines([("query", record)], bounds=bounds, sure=True)
        except SettingError as error:
            field, _, problem = error.problem.partition(": ")
            told = ("filter", problem) if field == "where" else ("q", error.problem)
            raise of_error(SettingError(*told)) from None
        try:
            self.room.hold((PARSED - 1) * len(line))
            row = json.loads(line)
            if "error" in row:  # it is longer than a row may be
                raise TooLarge(row["error"])
            return [(_key(each), _said(each)) for each in row["objects"]], row["as_of"]
        finally:
            self.room.hold(-PARSED * len(line))


def _box(text: str | None) -> tuple[float, ...]:
    """The box of a bbox, across the antimeridian if west is above east; heights are passed over, as there are none."""
    if text is None:
        return _WORLD
    parts = text.split(",")
    if len(parts) not in (4, 6) or not all(_NUMBER.fullmatch(each) for each in parts):
        raise _wrong("bbox", "must be 4 numbers, or 6 with heights: west, south, east, north")
    numbers = [float(each) for each in parts]
    west, south, east, north = numbers if len(numbers) == 4 else (*numbers[:2], *numbers[3:5])
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= 90 and -90 <= north <= 90):
        raise _wrong("bbox", "must be within -180,-90,180,90")
    if south > north:
        raise _wrong("bbox", f"south {south:g} is greater than north {north:g}")
    return west, south, east, north


def _words(text: str | None) -> dict[str, Any]:
    """The keyword expression of a text: all words of one of its parts between commas."""
    groups = [each.split() for each in (text or "").split(",") if each.strip()]
    if not groups:
        return {}
    return {"keywords": groups[0]} if len(groups) == 1 else {"any": groups}


_TEXT, _IN_JSON = "cql2-text", "cql2-json"
"""The languages of filters."""


def _where(text: str | None, language: str) -> dict[str, Any]:
    """The condition on properties of a filter."""
    if language not in (_TEXT, _IN_JSON):
        raise _wrong("filter-lang", f"must be {_TEXT} or {_IN_JSON}")
    if text is None or language == _TEXT:
        return {} if text is None else {"where": text}
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        form = None
    if not isinstance(form, dict):
        raise _wrong("filter", "is not a JSON object, as cql2-json is")
    return {"where": form}


def _intervals(texts: Iterable[str]) -> tuple[int | None, int | None]:
    """First and last ms of the intersection of several datetimes; None: open. GDAL gives each end by itself."""
    found = [_interval(each) for each in texts]
    firsts, lasts = [first for first, _ in found if first is not None], [last for _, last in found if last is not None]
    return max(firsts, default=None), min(lasts, default=None)


def _ends(texts: Iterable[str]) -> list[str]:
    """The times of datetimes."""
    return [_BARE_DAY.sub("", end) for text in texts for end in text.split("/") if end not in ("", "..")]


def _interval(text: str) -> tuple[int | None, int | None]:
    """First and last ms of a datetime; None: open."""
    ends = text.split("/")
    if len(ends) > 2:
        raise _wrong("datetime", "must be a time, or two separated by a slash")
    try:
        times = [None if len(ends) == 2 and each in ("", "..") else _time(each) for each in ends]
    except RecordError as error:
        raise _wrong("datetime", error.problem) from None
    if None not in times and times[-1] < times[0]:  # type: ignore[operator]
        raise _wrong("datetime", "ends before it begins")
    return times[0], times[-1]


def _time(text: str) -> int:
    return parse_time(_BARE_DAY.sub("", text))


def _page(text: str | None) -> _Place | None:
    """Parse the key in the link to a page."""
    if text is None:
        return None
    try:
        t, name, x, y, number = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise _wrong("page", "is not a valid page; follow the link next") from None
    right = type(t) is int and abs(t) <= 2**53 and type(name) is str and not {type(x), type(y)} - {int, float}
    if not right or not (-180 <= x <= 180 and -90 <= y <= 90) or type(number) is not int or number < 1:
        raise _wrong("page", "is not a valid page; follow the link next")
    return (t, name, float(x), float(y)), number


def _wrong(name: str, problem: str) -> Problem:
    return Problem("invalid", f"{name}: {problem}", [{"parameter": name, "detail": problem}])


async def _check_globe(stream: ServedStream) -> None:
    if not (await stream.opened()).space.geographic:
        raise Problem("not-found", f"{stream.name} has a planar space; only streams in wgs84 are collections")


# ------------------------------------------------------------------------------------------------------------ answers


def _key(each: Mapping[str, Any]) -> _Key:
    return each["t"], each["id"], float(each["lon"]), float(each["lat"])


def _said(each: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in each.items() if name not in _OWN}


def _id(key: _Key, number: int) -> str:
    t, name, x, y = key
    return f"{t}@{x!r},{y!r}{f'~{number}' if number > 1 else ''}.{name}"


def _feature(key: _Key, number: int, said: Mapping[str, Any]) -> dict[str, Any]:
    t, name, x, y = key
    return {
        "type": "Feature",
        "id": _id(key, number),
        "geometry": {"type": "Point", "coordinates": [x, y]},
        "properties": {**said, "object": name, "t": t, "time": _iso(t)},
    }


def _iso(t: int) -> str | None:
    try:
        return datetime.fromtimestamp(t / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None  # beyond the years that ISO 8601 can express


def _described(request: Request, name: str) -> dict[str, Any]:
    path = f"/collections/{quote(name, safe='')}"
    return {
        "id": name,
        "title": name,
        "itemType": "feature",
        "crs": [CRS84],
        "extent": {
            "spatial": {"bbox": [list(_WORLD)], "crs": CRS84},
            "temporal": {"interval": [[None, None]]},
        },
        "links": [
            _link(request, path, "self", _JSON, name),
            _link(request, f"{path}/items", "items", GEOJSON, f"the objects of {name}, newest first"),
            _link(request, f"{path}/queryables", _QUERYABLES, SCHEMA, "the properties that a filter may name"),
        ],
    }


def _link(request: Request, path: str, rel: str, form: str, title: str) -> dict[str, str]:
    return {"href": str(request.base_url).rstrip("/") + path, "rel": rel, "type": form, "title": title}


def _encoded(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode(errors="replace")

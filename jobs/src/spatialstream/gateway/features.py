"""Objects of streams on the globe for GIS tools: OGC API, Features, Part 1 (OGC 17-069r4), in GeoJSON and CRS84.

A stream is a collection, an object a feature. Items come newest first, as what is newest is what is wanted of a stream,
and a page takes what it needs: the objects of a window of time that grows until it holds a page of them. Where a page
ends is in the link to the next one, so nothing is kept, and what comes meanwhile moves nothing: an object that comes in
time is newer than all pages.

Several objects may have one id, so a feature's id is that of its object behind its time. What GIS tools take for a
property called ``id`` is the feature's (GDAL asks for the item of that id), so the object's own is called ``object``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from spatialstream.client.stream import Stream
from spatialstream.gateway.access import Caller
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.listing import number_of
from spatialstream.gateway.problems import Problem, of_error
from spatialstream.gateway.requests import check_parameters, wanted_form
from spatialstream.gateway.reviews import Reviewed
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import RecordError, SettingError, SpatialStreamError
from spatialstream.model.times import parse_time

__all__ = ["CONFORMANCE", "CRS84", "MOST_ITEMS", "collection", "collections", "conformance", "item", "items", "landing"]

CONFORMANCE = tuple(f"http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/{each}" for each in ("core", "geojson"))
MOST_ITEMS = 10_000
_DEFAULT_ITEMS = 10
CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_WORLD = (-180.0, -90.0, 180.0, 90.0)
_FIRST_WINDOW, _GROWTH, _WIDEST = 16, 8, 2**46
"""ms of time that is looked through for a page at first, how it grows, and when it is all there is."""
_OPENAPI = "application/vnd.oai.openapi+json;version=3.1"
_JSON, _HTML = "application/json", "text/html"

_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")

_BARE_DAY = re.compile("(?<=^[0-9]{4}-[0-9]{2}-[0-9]{2})T$")
"""What GDAL writes behind a date that has no time."""

_Key = tuple[int, str, float, float]
"""What puts objects into their order, and tells them apart: t, id, longitude, latitude."""


async def landing(request: Request) -> Response:
    """What is here; for a browser, the console."""
    check_parameters(request, "f")
    asked_for = request.headers.get("accept", "")
    if "f" not in request.query_params and _HTML in asked_for and wanted_form(request, (_JSON, _HTML)) == _HTML:
        return RedirectResponse("/console/", 307)
    links = [
        _link(request, "/", "self", _JSON, "this document"),
        _link(request, "/openapi.json", "service-desc", _OPENAPI, "the interface"),
        _link(request, "/conformance", "conformance", _JSON, "what it conforms to"),
        _link(request, "/collections", "data", _JSON, "the streams"),
    ]
    return JSONResponse({"title": "spatialstream", "description": "Live streams of objects", "links": links})


async def conformance(request: Request) -> Response:
    """The classes of the standard that it conforms to."""
    check_parameters(request, "f")
    return JSONResponse({"conformsTo": list(CONFORMANCE)})


async def collections(request: Request, caller: Caller | Reviewed, streams: Mapping[str, ServedStream]) -> Response:
    """The streams on the globe that the caller may ask, as far as they can be reached."""
    check_parameters(request, "f")
    found = list[dict[str, Any]]()
    for name, stream in sorted(streams.items()):
        if "ask" in await caller.rights_on(name):
            try:
                geographic = (await stream.opened()).space.geographic
            except (SpatialStreamError, Problem):
                continue  # one that is away is nothing to the others
            if geographic:
                found.append(_described(request, name))
    links = [_link(request, "/collections", "self", _JSON, "this document")]
    return JSONResponse({"links": links, "collections": found})


async def collection(request: Request, stream: ServedStream) -> Response:
    """A stream as a collection."""
    check_parameters(request, "f")
    await _check_globe(stream)
    return JSONResponse(_described(request, stream.name))


async def items(request: Request, stream: ServedStream) -> Response:
    """Objects of a stream, newest first."""
    check_parameters(request, "f", "bbox", "bbox-crs", "q", "limit", "page", many=["datetime"])
    limit = number_of(request, "limit", _DEFAULT_ITEMS, 1, MOST_ITEMS)
    parameters = request.query_params
    if parameters.get("bbox-crs", CRS84) != CRS84:
        raise _wrong("bbox-crs", f"has to be {CRS84}")
    boxes, words = _boxes(parameters.get("bbox")), _words(parameters.get("q"))
    first, last = _intervals(parameters.getlist("datetime"))
    before = _page(parameters.get("page"))
    await _check_globe(stream)

    def found(opened: Stream) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
        as_of = opened.as_of()
        if as_of is None:
            return [], None
        until = min(each for each in (as_of["clock"], last, before and before[0]) if each is not None)
        return _newest(opened, boxes, words, first, until, before, limit + 1), as_of

    objects, as_of = await stream.call(found)
    path = f"/collections/{quote(stream.name, safe='')}"
    links = [
        _link(
            request, request.url.path + (f"?{request.url.query}" if request.url.query else ""), "self", GEOJSON, "this"
        ),
        _link(request, path, "collection", _JSON, stream.name),
    ]
    if len(objects) > limit:
        given = [(name, value) for name, value in parameters.multi_items() if name != "page"]
        page = json.dumps(_key(objects[limit - 1]), ensure_ascii=False, separators=(",", ":"))
        there = f"{path}/items?{urlencode([*given, ('page', page)])}"
        links.append(_link(request, there, "next", GEOJSON, "older ones"))
    features = [_feature(each) for each in objects[:limit]]
    record = {
        "type": "FeatureCollection",
        "features": features,
        "numberReturned": len(features),
        "timeStamp": _iso(int(datetime.now(UTC).timestamp() * 1000)),
        "as_of": as_of,
        "links": links,
    }
    return _geojson(record)


async def item(request: Request, stream: ServedStream) -> Response:
    """One object."""
    check_parameters(request, "f")
    name = request.path_params["item"]
    match = re.fullmatch(r"(-?[0-9]{1,16})\.(.*)", name, re.DOTALL)
    await _check_globe(stream)

    def found(opened: Stream) -> list[dict[str, Any]]:
        as_of = opened.as_of()
        if match is None or as_of is None or int(match[1]) > as_of["clock"]:
            return []
        objects = _asked(opened, [_WORLD], {}, int(match[1]), 1)
        return [each for each in objects if each["id"] == match[2]]

    objects = await stream.call(found)
    if not objects:
        raise Problem("not-found", f"there is no item {name}, or it is not kept any more")
    path = f"/collections/{quote(stream.name, safe='')}"
    links = [
        _link(request, f"{path}/items/{quote(name, safe='')}", "self", GEOJSON, name),
        _link(request, path, "collection", _JSON, stream.name),
    ]
    return _geojson(_feature(objects[0]) | {"links": links})


# ------------------------------------------------------------------------------------------------------ what is asked


def _newest(
    opened: Stream,
    boxes: list[tuple[float, ...]],
    words: Mapping[str, Any],
    first: int | None,
    until: int,
    before: _Key | None,
    most: int,
) -> list[dict[str, Any]]:
    """The newest objects, so many at most, from ``first`` to ``until`` ms and before a key."""
    window = _FIRST_WINDOW
    while True:
        whole = window >= (_WIDEST if first is None else until - first + 1)
        since = window if first is None else min(window, until - first + 1)
        if since <= 0:
            return []
        objects = {_key(each): each for each in _asked(opened, boxes, words, until, since)}
        keys = sorted((key for key in objects if before is None or key < before), reverse=True)[:most]
        if whole or len(keys) == most:
            return [objects[key] for key in keys]
        window *= _GROWTH


def _asked(
    opened: Stream, boxes: Iterable[tuple[float, ...]], words: Mapping[str, Any], t: int, duration: int
) -> list[dict[str, Any]]:
    """The objects in some boxes with times in (t - duration, t]."""
    asked = [{"type": "SRQ", "t": t, "duration": duration, "region": {"box": list(box)}, **words} for box in boxes]
    try:
        return [each for row in opened.ask(asked) for each in row["objects"]]
    except SettingError as error:
        raise of_error(SettingError("q", error.problem)) from None


def _boxes(text: str | None) -> list[tuple[float, ...]]:
    """The boxes of a bbox, two where it crosses the antimeridian; heights are passed over, as objects have none."""
    if text is None:
        return [_WORLD]
    parts = text.split(",")
    if len(parts) not in (4, 6) or not all(_NUMBER.fullmatch(each) for each in parts):
        raise _wrong("bbox", "has to be 4 numbers, or 6 with heights: west, south, east, north")
    numbers = [float(each) for each in parts]
    west, south, east, north = numbers if len(numbers) == 4 else (*numbers[:2], *numbers[3:5])
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= 90 and -90 <= north <= 90):
        raise _wrong("bbox", "has to be within -180,-90,180,90")
    if south > north:
        raise _wrong("bbox", f"south {south:g} is greater than north {north:g}")
    if west <= east:
        return [(west, south, east, north)]
    return [(west, south, 180.0, north), (-180.0, south, east, north)]


def _words(text: str | None) -> dict[str, Any]:
    """What a text asks for: all words of one of the parts between commas."""
    groups = [each.split() for each in (text or "").split(",") if each.strip()]
    if not groups:
        return {}
    return {"keywords": groups[0]} if len(groups) == 1 else {"any": groups}


def _intervals(texts: Iterable[str]) -> tuple[int | None, int | None]:
    """First and last ms of what is in all of several times; None: open. GDAL gives each end by itself."""
    found = [_interval(each) for each in texts]
    firsts, lasts = [first for first, _ in found if first is not None], [last for _, last in found if last is not None]
    return max(firsts, default=None), min(lasts, default=None)


def _interval(text: str) -> tuple[int | None, int | None]:
    """First and last ms of a datetime; None: open."""
    ends = text.split("/")
    if len(ends) > 2:
        raise _wrong("datetime", "has to be a time, or two with a slash between")
    try:
        times = [None if len(ends) == 2 and each in ("", "..") else _time(each) for each in ends]
    except RecordError as error:
        raise _wrong("datetime", error.problem) from None
    if None not in times and times[-1] < times[0]:  # type: ignore[operator]
        raise _wrong("datetime", "ends before it begins")
    return times[0], times[-1]


def _time(text: str) -> int:
    return parse_time(_BARE_DAY.sub("", text))


def _page(text: str | None) -> _Key | None:
    """What the link to a page says."""
    if text is None:
        return None
    try:
        t, name, x, y = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise _wrong("page", "is not one that was given here") from None
    right = type(t) is int and abs(t) <= 2**53 and type(name) is str and not {type(x), type(y)} - {int, float}
    if not right or not (-180 <= x <= 180 and -90 <= y <= 90):
        raise _wrong("page", "is not one that was given here")
    return t, name, float(x), float(y)


def _wrong(name: str, told: str) -> Problem:
    return Problem("invalid", f"{name}: {told}", [{"parameter": name, "detail": told}])


async def _check_globe(stream: ServedStream) -> None:
    if not (await stream.opened()).space.geographic:
        raise Problem("not-found", f"{stream.name} is on a plane, and so no collection of places on the globe")


# ------------------------------------------------------------------------------------------------------ what is given


def _key(each: Mapping[str, Any]) -> _Key:
    return each["t"], each["id"], float(each["lon"]), float(each["lat"])


def _feature(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "Feature",
        "id": f"{each['t']}.{each['id']}",
        "geometry": {"type": "Point", "coordinates": [each["lon"], each["lat"]]},
        "properties": {"object": each["id"], "t": each["t"], "time": _iso(each["t"])},
    }


def _iso(t: int) -> str | None:
    try:
        return datetime.fromtimestamp(t / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None  # of a year that there is no word for


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
        ],
    }


def _link(request: Request, path: str, rel: str, form: str, title: str) -> dict[str, str]:
    return {"href": str(request.base_url).rstrip("/") + path, "rel": rel, "type": form, "title": title}


def _geojson(record: Mapping[str, Any]) -> Response:
    headers = {"Content-Crs": f"<{CRS84}>"}
    content = json.dumps(record, ensure_ascii=False).encode(errors="replace")
    return Response(content, headers=headers, media_type=GEOJSON)

"""The areas that a stream knows by name, over HTTP, and the queries of requests that name one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spatialstream.client.area_queries import Refreshed
from spatialstream.client.areas import Loaded
from spatialstream.client.stream import Stream
from spatialstream.gateway.answers import Pieces, Room
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.requests import check_parameters, wanted_form
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.areas import Area, asked_area, read_areas, with_area
from spatialstream.model.errors import RecordError, SettingError, Unavailable
from spatialstream.model.query_fields import check_by
from spatialstream.model.regions import check_area_name

__all__ = ["delete", "geometry_states", "listed", "load", "owner", "put", "refresh", "resolved", "show"]

JSON = "application/json"

_REASONS = 100
"""Most queries whose reasons are told when they could not be registered anew."""

_VERTEX = 200
"""Bytes that a vertex takes as two numbers of JSON that are parsed, and as their text."""


async def listed(request: Request, stream: ServedStream, room: Room, held: ExitStack) -> Response:
    """The areas: their names and sizes, or as GeoJSON their geometries too. They are made one by one, as they are sent.

    Args:
        request: the request.
        stream: its stream.
        room: for the largest of them.
        held: is closed when they have been sent.
    """
    check_parameters(request)
    form = wanted_form(request, (JSON, GEOJSON))
    table = await stream.call(lambda opened: opened.areas.table())
    if form == GEOJSON:
        room.hold(_VERTEX * max((len(each.polygon) for each in table), default=0))
        made = _collected('{"type": "FeatureCollection", "features": [', (each.to_feature() for each in table), "]}")
    else:
        rest = json.dumps(table.unusable, ensure_ascii=False)
        made = _collected('{"areas": [', (each.to_record() for each in table), f'], "unusable": {rest}}}')
    return Pieces(made, form, held.pop_all())


def _collected(begin: str, records: Iterable[Any], end: str) -> Iterator[bytes]:
    """The text of a list, piece by piece."""
    yield begin.encode()
    for number, each in enumerate(records):
        yield (", " if number else "").encode() + json.dumps(each, ensure_ascii=False).encode(errors="replace")
    yield end.encode(errors="replace")


async def show(request: Request, stream: ServedStream) -> Response:
    """An area as a GeoJSON feature."""
    check_parameters(request)
    found = await stream.call(lambda opened: _found(opened, request.path_params["area"]))
    return JSONResponse(found.to_feature(), media_type=GEOJSON)


def owner(request: Request, registrars: Collection[str]) -> str:
    """Who keeps the areas of a request: its caller, unless it names somebody else and may do so, as the operator does.

    Raises:
        Problem: it may not, or the name cannot be stored.
    """
    caller, by = request.scope["state"]["caller"], request.query_params.get("by")
    if by is not None and caller not in registrars:
        told = f"is set by the gateway, to the caller {caller}; leave it out"
        raise Problem("invalid", f"by: {told}", [{"parameter": "by", "detail": told}])
    try:
        return check_by(caller if by is None else by)
    except RecordError as error:
        raise Problem("forbidden", f"the caller's name cannot be stored with an area: {error.problem}") from None


async def load(request: Request, stream: ServedStream, given: Any, by: str) -> Response:
    """Keep the areas of a FeatureCollection, all or none; areas that are not in it stay."""
    check_parameters(request, "id")
    name_from = request.query_params.get("id")

    def work(opened: Stream) -> Loaded:
        return _put(opened, read_areas(given, name_from, opened.space, opened.rule), by)

    return JSONResponse(_outcome(await stream.call(lambda opened: _checked(opened, work))))


async def put(request: Request, stream: ServedStream, given: Any, by: str) -> Response:
    """Keep an area: 201 if there was none of its name, 200 if there was."""
    check_parameters(request, "by")
    name = request.path_params["area"]

    def work(opened: Stream) -> Loaded:
        return _put(opened, read_areas(given, None, opened.space, opened.rule, check_area_name(name)), by)

    def kept(opened: Stream) -> tuple[Loaded, Area]:
        return _checked(opened, work), _found(opened, name)

    loaded, area = await stream.call(kept)
    return JSONResponse(_outcome(loaded) | {"area": area.to_record()}, 201 if loaded.new else 200)


async def refresh(request: Request, stream: ServedStream, refreshing: Lock, timeout: float) -> Response:
    """Register the queries anew that have another geometry of an area than it has now.

    Args:
        request: the request.
        stream: its stream.
        refreshing: held meanwhile: what two such requests found outdated would be registered anew twice.
        timeout: seconds within which that must be done.
    """
    name = request.path_params["area"]

    def work(opened: Stream) -> Refreshed:
        _found(opened, name)
        if not refreshing.acquire(blocking=False):
            raise Problem("try-again", "queries of an area of this stream are being registered anew already", retry=1)
        try:
            return opened.refresh(name, timeout=timeout)
        finally:
            refreshing.release()

    done = await stream.call(work)
    refused = dict(islice(done.refused.items(), _REASONS))
    return JSONResponse({"area": name, "refreshed": len(done.queries), "refused": refused})


async def delete(request: Request, stream: ServedStream, by: str) -> Response:
    """Delete an area; queries of it keep their geometry."""
    check_parameters(request, "by")
    name = request.path_params["area"]

    def work(opened: Stream) -> None:
        if name not in opened.areas.table().unusable:
            _found(opened, name)
        _check_owner(opened, [name], by)
        opened.areas.delete(name, by=by)

    await stream.call(work)
    return JSONResponse({"deleted": name})


async def resolved(
    stream: ServedStream, places: Sequence[tuple[str, Any]], room: Room | None = None
) -> list[tuple[str, Any]]:
    """Queries of a request, each with its place, with the polygons of the areas that they name.

    Args:
        stream: the stream.
        places: the queries, each with its place.
        room: for the polygons, which may have any number of times the size of the request; None: there are few.

    Raises:
        Problem: there is no room for them.
        SettingError: the stream does not know one; names the place.
        Unavailable: the areas cannot be read.
    """
    names = [_named(place, each) for place, each in places]
    if not any(names):
        return list(places)

    def work(opened: Stream) -> list[tuple[str, Any]]:
        table, with_areas = opened.areas.table(), list[tuple[str, Any]]()
        if room is not None:
            _hold(room, sum(len(area.polygon) for name in names if name and (area := table.get(name))))
        for place, each in places:
            try:
                with_areas.append((place, with_area(each, lambda: table)))
            except RecordError as error:
                raise SettingError(place, str(error)) from None
        return with_areas

    return await stream.call(work)


def _hold(room: Room, vertices: int) -> None:
    """Have room for the polygons of queries.

    Raises:
        Problem: there is none, or there never is.
    """
    try:
        room.hold(_VERTEX * vertices)
    except Problem as problem:
        if problem.kind != "answer-too-large":
            raise
        told = f"the areas of these queries have {vertices} vertices in all; ask fewer queries of areas at a time"
        raise Problem("too-large", told) from None


def geometry_states(opened: Stream, records: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """What a listing says of the geometry of each registered query, if it is of an area; nothing if nobody knows."""
    if not any("area" in (each.get("region") or {}) for each in records):
        return [{} for _ in records]
    try:
        table = opened.areas.table()
    except (Unavailable, SettingError):
        return [{} for _ in records]
    found = [table.geometry_state(each, opened.space) for each in records]
    return [{} if each is None else {"geometry": each[1].value} for each in found]


def _named(place: str, record: Any) -> str | None:
    try:
        return asked_area(record)
    except RecordError as error:
        raise SettingError(place, str(error)) from None


def _outcome(loaded: Loaded) -> dict[str, Any]:
    return {"new": loaded.new, "changed": loaded.changed, "same": loaded.same}


def _put(opened: Stream, areas: Sequence[Area], by: str) -> Loaded:
    _check_owner(opened, [each.name for each in areas], by)
    return opened.areas.put(areas, by)


def _check_owner(opened: Stream, names: Sequence[str], by: str) -> None:
    """Refuse what would take an area from somebody else.

    Raises:
        Problem: a SpatialArea keeps one of them, or the caller is one and somebody else keeps it.
    """
    if conflict := opened.areas.table().conflict(names, by):
        raise Problem("conflict", conflict)


def _checked(opened: Stream, work: Callable[[Stream], Loaded]) -> Loaded:
    try:
        return work(opened)
    except RecordError as error:
        raise Problem("invalid", str(error), [{"pointer": "#", "detail": str(error)}]) from None


def _found(opened: Stream, name: str) -> Area:
    try:
        return opened.areas.table().find(name)
    except RecordError as error:
        raise Problem("not-found", error.problem) from None

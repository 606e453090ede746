"""The areas that a stream knows by name, over HTTP, and the queries of requests that name one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spatialstream.client.areas import Loaded
from spatialstream.client.stream import Stream
from spatialstream.gateway.geojson import GEOJSON
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.requests import check_parameters, wanted_form
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.areas import Area, asked_area, read_areas, with_area
from spatialstream.model.errors import RecordError, SettingError, Unavailable
from spatialstream.model.regions import check_area_name

__all__ = ["delete", "listed", "load", "put", "resolved", "show", "standings"]

JSON = "application/json"


async def listed(request: Request, stream: ServedStream) -> Response:
    """The areas: their names and sizes, or as GeoJSON their geometries too."""
    check_parameters(request)
    form = wanted_form(request, (JSON, GEOJSON))
    table = await stream.call(lambda opened: opened.areas.table())
    if form == GEOJSON:
        return JSONResponse(
            {"type": "FeatureCollection", "features": [each.to_feature() for each in table]}, media_type=GEOJSON
        )
    return JSONResponse({"areas": [each.to_record() for each in table], "unusable": table.unusable})


async def show(request: Request, stream: ServedStream) -> Response:
    """An area as a GeoJSON feature."""
    check_parameters(request)
    found = await stream.call(lambda opened: _found(opened, request.path_params["area"]))
    return JSONResponse(found.to_feature(), media_type=GEOJSON)


async def load(request: Request, stream: ServedStream, given: Any) -> Response:
    """Keep the areas of a FeatureCollection, all or none; areas that are not in it stay."""
    check_parameters(request, "id")
    name_from = request.query_params.get("id")

    def work(opened: Stream) -> Loaded:
        return opened.areas.put(read_areas(given, name_from, opened.space, opened.rule))

    loaded = await stream.call(lambda opened: _checked(opened, work))
    return JSONResponse({"new": loaded.new, "changed": loaded.changed, "same": loaded.same})


async def put(request: Request, stream: ServedStream, given: Any) -> Response:
    """Keep an area: 201 if there was none of its name, 200 if there was."""
    check_parameters(request)
    name = request.path_params["area"]

    def work(opened: Stream) -> Loaded:
        return opened.areas.put(read_areas(given, None, opened.space, opened.rule, check_area_name(name)))

    loaded = await stream.call(lambda opened: _checked(opened, work))
    return JSONResponse({"new": loaded.new, "changed": loaded.changed, "same": loaded.same}, 201 if loaded.new else 200)


async def delete(request: Request, stream: ServedStream) -> Response:
    """Delete an area; queries of it keep their geometry."""
    check_parameters(request)
    name = request.path_params["area"]

    def work(opened: Stream) -> None:
        if name not in opened.areas.table().unusable:
            _found(opened, name)
        opened.areas.delete(name)

    await stream.call(work)
    return JSONResponse({"deleted": name})


async def resolved(stream: ServedStream, places: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Queries of a request, each with its place, with the polygons of the areas that they name.

    Raises:
        SettingError: the stream does not know one; names the place.
        Unavailable: the areas cannot be read.
    """
    if all(_named(place, each) is None for place, each in places):
        return list(places)

    def work(opened: Stream) -> list[tuple[str, Any]]:
        table, found = opened.areas.table(), list[tuple[str, Any]]()
        for place, each in places:
            try:
                found.append((place, with_area(each, lambda: table)))
            except RecordError as error:
                raise SettingError(place, str(error)) from None
        return found

    return await stream.call(work)


def standings(opened: Stream, records: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """What a listing says of the geometry of each registered query, if it is of an area; nothing if nobody knows."""
    if not any("area" in (each.get("region") or {}) for each in records):
        return [{} for _ in records]
    try:
        table = opened.areas.table()
    except (Unavailable, SettingError):
        return [{} for _ in records]
    found = [table.standing(each, opened.space) for each in records]
    return [{} if each is None else {"geometry": each[1].value} for each in found]


def _named(place: str, record: Any) -> str | None:
    try:
        return asked_area(record)
    except RecordError as error:
        raise SettingError(place, str(error)) from None


def _checked(opened: Stream, work: Any) -> Loaded:
    try:
        loaded: Loaded = work(opened)
    except RecordError as error:
        raise Problem("invalid", str(error), [{"pointer": "#", "detail": str(error)}]) from None
    return loaded


def _found(opened: Stream, name: str) -> Area:
    try:
        return opened.areas.table().find(name)
    except RecordError as error:
        raise Problem("not-found", error.problem) from None

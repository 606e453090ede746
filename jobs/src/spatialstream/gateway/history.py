"""Past rows of one query: the rows of a time range in pages, and their numbers in its parts."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import chain
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spatialstream.client.cursor import Cursor
from spatialstream.client.history import History, Log
from spatialstream.gateway.answers import Lines, Pieces, Room, as_json
from spatialstream.gateway.listing import number_of
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.requests import check_parameters
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.errors import RecordError
from spatialstream.model.times import parse_time

__all__ = ["MOST_PARTS", "MOST_ROWS", "counts", "rows"]

MOST_ROWS = 10_000
MOST_PARTS = 240
_DEFAULT_ROWS = 1_000
_DEFAULT_PARTS = 60
_DEFAULT_SPAN = 3_600_000


async def rows(request: Request, stream: ServedStream, room: Room, held: ExitStack) -> Response:
    """The rows of a query that arrived in a time range.

    Args:
        request: the request.
        stream: the stream.
        room: for the rows.
        held: is closed when they have been sent.
    """
    check_parameters(request, "query", "since", "until", "limit", "position")
    query, since, until = _asked(request)
    limit = number_of(request, "limit", _DEFAULT_ROWS, 1, MOST_ROWS)
    word = request.query_params.get("position")
    place = None if word is None else Cursor.parse(word)

    def found(log: Log) -> tuple[list[bytes], Cursor | None]:
        page = History(log, query).rows(since, until, limit, place)
        lines = [b'{"at": %d, "row": %s}' % (at, row.line) for at, row in page.rows]
        room.hold(sum(map(len, lines)))
        return lines, page.next

    lines, after = await stream.look_back(found)
    said: dict[str, object] = {"query": query, "since": since, "until": until}
    if after is not None:
        asked = said | {"limit": limit, "position": str(after)}
        said["next"] = f"{request.url.path}?{urlencode(asked)}"
    head = bytes(JSONResponse(said).body)[:-1] + b', "rows": '
    pieces, size = as_json(Lines(lines, room), many=True)
    return Pieces(chain([head], pieces, [b"}"]), "application/json", held.pop_all(), len(head) + size + 1)


async def counts(request: Request, stream: ServedStream) -> Response:
    """The number of rows of a query that arrived in each part of a time range."""
    check_parameters(request, "query", "since", "until", "parts")
    query, since, until = _asked(request)
    parts = number_of(request, "parts", _DEFAULT_PARTS, 1, MOST_PARTS)
    history = await stream.look_back(lambda log: History(log, query).counts(since, until, parts))
    parts = len(history.counts)
    counted = [
        {"since": since + (until - since) * part // parts, "rows": number, "exact": exact}
        for part, (number, exact) in enumerate(history.counts)
    ]
    said = {"query": query, "since": since, "until": until, "kept_since": history.kept, "counts": counted}
    return JSONResponse(said, headers={"Cache-Control": "no-store"})


def _asked(request: Request) -> tuple[str, int, int]:
    """The query and the time range of a request, by default the last hour.

    Raises:
        Problem: there is not exactly one query, or the range is invalid.
    """
    queries = request.query_params.getlist("query")
    if len(queries) != 1:
        raise _wrong("query", f"given {len(queries)} times; give exactly one")
    until = _time(request, "until", time.time_ns() // 1_000_000)
    since = _time(request, "since", until - _DEFAULT_SPAN)
    if since >= until:
        raise _wrong("since", "must be before until")
    return queries[0], since, until


def _time(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        return parse_time(text, name)
    except RecordError as error:
        raise _wrong(name, error.problem) from None


def _wrong(parameter: str, problem: str) -> Problem:
    return Problem("invalid", f"{parameter}: {problem}", [{"parameter": parameter, "detail": problem}])

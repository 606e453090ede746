"""Listings: the streams, the state of one, and its registered queries.

A gateway stores none of this. Registered queries are read, in pages and as of a round, from the actors of MERGE, which
keep each query complete (:mod:`spatialstream.local.catalogue`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spatialstream.client.stream import RegisteredQueries, Stream
from spatialstream.gateway.access import Caller
from spatialstream.gateway.areas import geometry_states
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.requests import check_parameters
from spatialstream.gateway.reviews import Reviewed
from spatialstream.gateway.streams import ServedStream

__all__ = ["MOST_LISTED", "number_of", "queries", "query", "state", "streams"]

MOST_LISTED = 1_000
_DEFAULT_LISTED = 100


async def streams(request: Request, caller: Caller | Reviewed, names: Iterable[str]) -> Response:
    """The streams on which a caller has any right, with the rights."""
    check_parameters(request)
    may = {name: sorted(await caller.rights_on(name)) for name in sorted(names)}
    return JSONResponse({"streams": [{"name": name, "rights": rights} for name, rights in may.items() if rights]})


async def state(request: Request, stream: ServedStream) -> Response:
    """The progress of a stream, and its routing version."""
    check_parameters(request)

    def found(opened: Stream) -> dict[str, Any]:
        read_point = opened.snapshots.read_point()
        clock = read_point.clock if read_point.begun else None
        version = read_point.routing.active
        return {
            "name": stream.name,
            "space": str(opened.space),
            "round": read_point.round[0],
            "clock": clock,
            # for a stream of current times, this is its delay
            "behind": None if clock is None else max(0, time.time_ns() // 1_000_000 - clock),
            "version": version.number,
            "slots": version.slots,
        }

    return JSONResponse(await stream.call(found))


async def queries(request: Request, stream: ServedStream) -> Response:
    """A page of the registered queries, in the order of registration."""
    check_parameters(request, "after", "limit")
    limit = number_of(request, "limit", _DEFAULT_LISTED, 1, MOST_LISTED)
    after = number_of(request, "after", -1, -1, 2**63 - 1)
    found = await stream.call(lambda opened: _listed(opened, opened.queries(after, limit)))
    record: dict[str, Any] = {"queries": found.queries, "so_far": found.so_far, "as_of": found.as_of}
    if len(found.queries) == limit or found.cut:
        record["next"] = f"{request.url.path}?after={found.last}&limit={limit}"
    return JSONResponse(record)


async def query(request: Request, stream: ServedStream) -> Response:
    """One registered query."""
    check_parameters(request)
    name = request.path_params["query"]
    found = await stream.call(lambda opened: _listed(opened, opened.query(name)))
    if not found.queries:
        raise Problem("not-found", f"no query with the id {name} is registered")
    return JSONResponse({"query": found.queries[0], "so_far": found.so_far[0], "as_of": found.as_of})


def _listed(opened: Stream, found: RegisteredQueries) -> RegisteredQueries:
    """A page with what there is to say of the geometries of areas."""
    said = geometry_states(opened, found.queries)
    return replace(found, so_far=[{**each, **more} for each, more in zip(found.so_far, said, strict=True)])


def number_of(request: Request, name: str, default: int, least: int, most: int) -> int:
    """Parse a parameter that is a whole number; a number above ``most`` is reduced to it.

    Raises:
        Problem: it is not a whole number, or less than ``least``.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not re.fullmatch("-?[0-9]{1,4000}", text) or int(text) < least:
        told = f"must be a whole number of at least {least}"
        raise Problem("invalid", f"{name}: {told}", [{"parameter": name, "detail": told}])
    return min(int(text), most)

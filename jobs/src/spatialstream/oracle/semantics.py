"""The right answers: each kind of query by brute force, directly from its definition.

Meaning follows the paper (SSTD, section 3.1) and, where the paper is silent, the documentation of query semantics.
Rows come in canonical order: by time; at one instant the expiries of CKQ windows, then the objects, then snapshot
queries, then steps. Cost: O(queries x objects), less what a query's time range excludes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import Space
from spatialstream.oracle.kinds import ORACLES
from spatialstream.oracle.objects import Accepted, AllObjects, Row

__all__ = ["Row", "answers"]


def answers(
    objects: Iterable[SpatialObject],
    queries: Iterable[Query | Cancellation],
    space: Space,
    retention: int | None = None,
    interval: int = 300_000,
) -> tuple[list[Row], list[tuple[int, str]]]:
    """Compute every result row of a stream, and the queries that are rejected.

    Args:
        objects: the objects, in any order.
        queries: queries and cancellations in input order; they take effect in order of ``t``, ties in input order.
        space: the stream's space.
        retention: how far back snapshot queries can look, in ms; None: without limit.
        interval: Δ, ms: ranked queries count words up to a multiple of it.

    Returns:
        The rows in canonical order, and (position in ``queries``, reason) of each query whose id is in use and of each
        cancellation that finds no active continuous query, by position.
    """
    queries = list(queries)
    stream = AllObjects(objects, space, retention, interval)
    last = max([*stream.times[-1:], *(query.t for query in queries)], default=0)
    lives, refused = _lifetimes(queries)
    rows = [keyed for life in lives for keyed in ORACLES[life.query.type](stream, life, last)]
    rows.sort(key=lambda keyed: keyed[0])
    return [each for _, each in rows], sorted(refused)


def _lifetimes(queries: Sequence[Query | Cancellation]) -> tuple[list[Accepted], list[tuple[int, str]]]:
    """The accepted queries with their cancellations, and the rejected ones with their reasons."""
    lives: list[Accepted] = []
    refused: list[tuple[int, str]] = []
    latest: dict[str, Accepted] = {}
    for position, query in sorted(enumerate(queries), key=lambda pair: pair[1].t):
        holder = latest.get(query.id)
        if holder is not None and not holder.uses_its_id(query.t):
            holder = None
        if isinstance(query, Cancellation):
            if holder is None or not holder.query.lifetime.continuous:
                refused.append((position, f"id: no continuous query {query.id!r} is active"))
            else:
                holder.cancelled = query.t
        elif holder is not None and _is_repeated(holder.query, query):
            continue
        elif holder is not None:
            refused.append((position, f"id: {query.id!r} is in use by a query that lives until {holder.until}"))
        else:
            life = latest[query.id] = Accepted(query)
            lives.append(life)
    return lives, refused


def _is_repeated(first: Query, again: Query) -> bool:
    """Whether two queries of one id are the same one, however their keywords are spelled."""
    plain = [replace(each, predicate=replace(each.predicate, keywords=(), none=())) for each in (first, again)]
    texts = [({*each.predicate.keywords}, {*each.predicate.none}) for each in (first, again)]
    return plain[0] == plain[1] and texts[0] == texts[1]

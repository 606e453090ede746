"""The oracle for records: what a small input has as its answers, without Spark, files or servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.objects import parse_object
from spatialstream.model.queries import parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.model.typed_queries import TypedQuery, as_record
from spatialstream.oracle.semantics import answers

__all__ = ["brute_force"]


def brute_force(
    objects: Iterable[Mapping[str, Any]],
    queries: Iterable[TypedQuery | Mapping[str, Any]],
    space: Space | str = "wgs84",
    rule: TermRule = DEFAULT_RULE,
) -> list[dict[str, Any]]:
    """Compute every result row by brute force: each query is compared with each object, in plain Python.

    It gives the rows that :func:`~spatialstream.answer` gives, for tests and to try out a query; an input of some
    thousand objects takes seconds.

    Args:
        objects: in the JSON form of objects, in any order.
        queries: queries and cancellations, as dataclasses or in their JSON form, in input order.
        space: a space, or its text: ``"wgs84"`` or ``"planar:x0,y0,x1,y1"``.
        rule: term extraction.

    Returns:
        The rows in canonical order.

    Raises:
        RecordError: a record is unusable: the reason with which a run rejects it.
        SettingError: the text is not a space.
    """
    known, given = Space.of(space), list(queries)
    parsed = [parse_query(dict(as_record(each)), known, rule) for each in given]
    rows, refused = answers([parse_object(dict(each), known, rule) for each in objects], parsed, known)
    for _, reason in refused:
        field, _, problem = reason.partition(": ")
        raise RecordError(field, problem)
    return rows

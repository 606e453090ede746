"""Result rows for notebooks: the query in words, and its objects on a map or its terms as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.space import Space
from spatialstream.model.terms import ANY_WORDS
from spatialstream.report.map import Map, clean
from spatialstream.report.payload import moment, sentence

__all__ = ["answer_html"]

_MOST_TERMS = 20
_CELL = "padding:0 8px 0 0;text-align:left;border:0"


def answer_html(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any], space: Space) -> str:
    """Build self-contained HTML.

    Args:
        rows: rows of one query, the latest last; for a CRQ the objects of all rows are shown, else the last row.
        record: the query's record; without ``t`` its time is that of the first row.
        space: the stream's space.
    """
    heading = _said(rows, record, space)
    if not rows:
        return f"{heading}{_map((), record, space)}<p>no rows yet</p>"
    last = rows[-1]
    if "error" in last:
        return f"{heading}<p>no answer: {clean(last['error'])}</p>"
    if "terms" in last:
        return heading + _bars(last) + _map((), record, space)
    if "object" not in last and "objects" not in last:
        value = ", ".join(f"{name}: {last[name]}" for name in last if name not in ("query", "type", "t"))
        return f"{heading}<p>{clean(value)}, as of {moment(last['t'])}</p>" + _map((), record, space)
    found = [row["object"] for row in rows if "object" in row] if "object" in last else last["objects"]
    many = f"{len(found):,} object{'' if len(found) == 1 else 's'}"
    return heading + _map(found, record, space, f"{many}, as of {moment(last['t'])}")


def _said(rows: Sequence[Mapping[str, Any]], record: Mapping[str, Any], space: Space) -> str:
    try:
        known = {"t": rows[0]["t"]} if rows else {}
        query = parse_query({"id": "", **known, **record}, space, ANY_WORDS, timed=False)
    except RecordError:
        return ""
    if not isinstance(query, Query):
        return ""
    return f"<p>{clean(sentence(query, query.t + query.lifetime.duration, space))}</p>"


def _map(found: Sequence[Mapping[str, Any]], record: Mapping[str, Any], space: Space, title: str = "") -> str:
    return Map(found, [record], space, title)._repr_html_()


def _bars(row: Mapping[str, Any]) -> str:
    """The terms of a row, each with its number of objects."""
    terms = row["terms"][:_MOST_TERMS]
    most = max((each["count"] for each in terms), default=1)
    lines = "".join(
        f'<tr><th scope="row" style="{_CELL}">{clean(each["term"])}</th><td style="{_CELL}">{each["count"]:,}</td>'
        f'<td style="{_CELL}"><div style="height:10px;background:#2b6cb0;width:{300 * each["count"] / most:.0f}px">'
        "</div></td></tr>"
        for each in terms
    )
    told = f"{len(row['terms']):,} terms, as of {moment(row['t'])}"
    return f'<table style="border-collapse:collapse"><caption style="text-align:left">{told}</caption>{lines}</table>'

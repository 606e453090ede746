"""A row that is made by itself is, to the byte, the one that is made column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spatialstream.model.kinds import KINDS, Kind
from spatialstream.model.queries import Query, parse_query
from spatialstream.model.space import WGS84, Space
from spatialstream.stages.kinds import terms as kinds_terms
from spatialstream.stages.kinds.base import Columns, stack
from spatialstream.stages.messages import columns
from spatialstream.stages.snapshots import SHORT, rows_of, short_row

PLANE = Space.planar(-1e150, -1e150, 1e150, 1e150)
SNAPSHOTS = {kind.type: kind for kind in KINDS if not kind.continuous}

texts = st.text(max_size=6) | st.sampled_from(["a", "b", '"', "\\", "\x7f", "\u2028", "ß"])
times = st.integers(0, 3) | st.integers(-(2**62), 2**62)
places = st.floats(-1e150, 1e150) | st.sampled_from(
    [0.0, -0.0, 1.0, 0.1, 1e-7, 9.9e-5, 1e-4, 123456789.125, -9999999999.5, 1e10]
)
objects = st.lists(st.tuples(texts, times, places, places, st.sampled_from([0.0, 1.0, 2.5e-9]) | st.floats(0, 1e150)))
counts = st.lists(st.tuples(texts, st.integers(1, 3) | st.integers(1, 2**40)), unique_by=lambda each: each[0])


def asked(kind: Kind, name: str, k: int) -> Query:
    record: dict[str, Any] = {"id": name, "type": kind.type, "t": 5_000, "duration": 4_000}
    record |= {"at": [0.0, 0.0]} if "at" in kind.required else {"region": {"box": [0.0, 0.0, 1.0, 1.0]}}
    query = parse_query(record | ({"k": k} if "k" in kind.required else {}), WGS84)
    assert isinstance(query, Query)
    return query


def by_columns(query: Query, parts: list[Columns], after: int | None, space: Space) -> str:
    head = columns(
        number=np.array([7]),
        id=pa.array([query.id]),
        t=np.array([query.t]),
        k=np.array([query.k], np.int32),
        since=np.array([0 if after is None else after]),
        whole=np.array([after is None]),
    )
    found = stack(parts)
    (line,) = rows_of(SNAPSHOTS[query.type], head, [found] if len(found) else [], space, None).lines.to_pylist()
    return str(line)


def part_of_objects(found: list[tuple[str, int, float, float, float]]) -> Columns:
    ids, t, x, y, distance = zip(*found, strict=True) if found else ([], [], [], [], [])
    floats = {"x": x, "y": y, "distance": distance}
    return {
        "number": np.full(len(found), 7),
        "id": pa.array(list(ids), pa.string()),
        "t": np.array(t, np.int64),
        **{name: np.array(values, float) for name, values in floats.items()},
    }


@given(
    kind=st.sampled_from(["SRQ", "SKQ"]),
    name=st.text(min_size=1, max_size=4),
    k=st.integers(1, 5),
    slots=st.lists(objects, min_size=1, max_size=3),
    after=st.none() | st.integers(0, 4_000),
    space=st.sampled_from([WGS84, PLANE]),
)
@example("SKQ", "q", 2, [[("b", 1, 0.0, 0.0, 1.0), ("a", 1, 0.0, 0.0, 1.0)], [("a", 2, 5.0, 0.0, 1.0)]], None, WGS84)
@example("SRQ", "q", 1, [[("b", 1, 1.0, 2.0, 0.0), ("b", 1, 1.0, -2.0, 0.0)], [("a", 1, 1e-5, 1e15, 0.0)]], 3, PLANE)
def test_of_objects(
    kind: str,
    name: str,
    k: int,
    slots: list[list[tuple[str, int, float, float, float]]],
    after: int | None,
    space: Space,
) -> None:
    query, parts = asked(SNAPSHOTS[kind], name, k), [part_of_objects(found) for found in slots]
    assert short_row(query, parts, after, space) == by_columns(query, parts, after, space)


@given(
    name=st.text(min_size=1, max_size=4),
    k=st.integers(1, 4),
    slots=st.lists(counts, min_size=1, max_size=3),
    after=st.none() | st.integers(0, 4_000),
    short=st.sampled_from([0, SHORT]),
)
@example("q", 1, [[("b", 2), ("a", 1)], [("a", 1)]], None, 0)
@example("q", 1, [[("b", 2), ("a", 1)], [("a", 1)]], None, SHORT)
def test_of_terms(name: str, k: int, slots: list[list[tuple[str, int]]], after: int | None, short: int) -> None:
    query = asked(SNAPSHOTS["STQ"], name, k)
    parts = [
        {
            "number": np.full(len(found), 7),
            "term": pa.array([term for term, _ in found], pa.string()),
            "count": np.array([count for _, count in found], np.int64),
        }
        for found in slots
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kinds_terms, "_FEW", short)  # of more they are not counted one by one
        assert short_row(query, parts, after, WGS84) == by_columns(query, parts, after, WGS84)

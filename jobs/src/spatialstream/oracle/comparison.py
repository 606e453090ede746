"""Comparison of two multisets of result rows: missing, unexpected and different rows.

Rows are equal if all their values are, distances to a relative 1e-9 (another platform's libm may round differently).
Cost: O(rows), whatever their order.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from spatialstream.oracle.semantics import Row

__all__ = ["TOLERANCE", "Difference", "check"]

TOLERANCE = 1e-9
"""Relative difference of distances that still counts as equal."""

_DISTANCES = ("distance_m", "distance")


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the results and the expected rows.

    Attributes:
        problem: ``"missing"``, ``"unexpected"`` or ``"different"``.
        expected: the row that should be there; None if none should.
        found: the row that is there; None if none is.
    """

    problem: str
    expected: Row | None
    found: Row | None

    def __str__(self) -> str:
        """Describe the difference; for two rows, where they first differ."""
        if self.expected is None or self.found is None:
            return f"{self.problem}: {_shown(self.expected or self.found)}"
        path, wanted, found = _first_difference(self.expected, self.found, "")
        return f"{self.problem}: {_title(self.expected)}: {path} is {_shown(found)}, expected {_shown(wanted)}"


def check(results: Iterable[Row], expected: Iterable[Row], limit: int | None = None) -> list[Difference]:
    """Compare two collections of rows as multisets.

    Args:
        results: the rows of the run, in any order.
        expected: the rows of :func:`spatialstream.oracle.answers`.
        limit: most differences to report; None: all.

    Returns:
        Rows that differ (the same query, type, time and, for a CRQ, object id), then the missing, then the unexpected.
    """
    missing, unexpected = _unmatched(*_not_identical(list(expected), list(results)))
    candidates: dict[Hashable, list[Row]] = defaultdict(list)
    for row in reversed(unexpected):
        candidates[_identity(row)].append(row)
    different, alone = [], []
    for row in missing:
        rivals = candidates[_identity(row)]
        if rivals:
            different.append(Difference("different", row, rivals.pop()))
        else:
            alone.append(Difference("missing", row, None))
    rest = [Difference("unexpected", None, row) for rows in candidates.values() for row in reversed(rows)]
    return [*different, *alone, *rest][:limit]


def _not_identical(expected: Sequence[Row], actual: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Remove pairs of rows with the same JSON from both; this is quick, and nearly always removes all rows."""
    written: dict[str, list[Row]] = defaultdict(list)
    for row in expected:
        written[json.dumps(row, sort_keys=True)].append(row)
    unexpected = []
    for row in actual:
        twins = written[json.dumps(row, sort_keys=True)]
        if twins:
            twins.pop()
        else:
            unexpected.append(row)
    return [row for rows in written.values() for row in rows], unexpected


def _unmatched(expected: Sequence[Row], actual: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Remove pairs of equal rows from both; return the rest."""
    groups: dict[Hashable, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((expected, actual)):
        for row in rows:
            groups[_exact(row)][side].append(row)
    missing: list[Row] = []
    unexpected: list[Row] = []
    for expected_rows, surplus in groups.values():
        # All values but the distances are equal here. Sorted by distance, equal rows are aligned.
        expected_rows.sort(key=_distances)
        surplus.sort(key=_distances)
        while expected_rows and surplus:
            if _near(_distances(expected_rows[-1]), _distances(surplus[-1])):
                expected_rows.pop(), surplus.pop()
            elif _distances(expected_rows[-1]) > _distances(surplus[-1]):
                missing.append(expected_rows.pop())
            else:
                unexpected.append(surplus.pop())
        missing += expected_rows
        unexpected += surplus
    return missing, unexpected


def _exact(value: Any) -> Hashable:
    """A JSON value as a hashable one, without its distances."""
    if isinstance(value, dict):
        return frozenset((name, _exact(each)) for name, each in value.items() if not _is_distance(name, each))
    if isinstance(value, list):
        return tuple(_exact(each) for each in value)
    return value if isinstance(value, str) or value is None else (type(value) is bool, value)


def _is_distance(name: str, value: object) -> bool:
    return name in _DISTANCES and isinstance(value, float | int) and not isinstance(value, bool)


def _distances(row: Row) -> list[float]:
    """The distances in a row, in their order."""
    objects = row.get("objects")
    return [
        each[name]
        for each in (objects if isinstance(objects, list) else ())
        if isinstance(each, dict)
        for name in _DISTANCES
        if _is_distance(name, each.get(name))
    ]


def _near(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(
        math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(some, others, strict=True)
    )


def _identity(row: Row) -> Hashable:
    """The key by which rows are paired as different: query, type, time and object id."""
    placed = row.get("object")
    name = placed.get("id") if isinstance(placed, dict) else None
    return _exact([row.get("query"), row.get("type"), row.get("t"), name])


def _title(row: Row) -> str:
    return f"{row.get('type')} {row.get('query')!r} at {row.get('t')}"


def _shown(value: object, most: int = 300) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[:most] + " ..."


def _first_difference(expected: Any, actual: Any, path: str) -> tuple[str, Any, Any]:
    """The first difference of two JSON values: (path, expected value, found value)."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            here = f"{path}.{name}" if path else name
            if name not in expected or name not in actual:
                return here, expected.get(name), actual.get(name)
            if not _same(name, expected[name], actual[name]):
                return _first_difference(expected[name], actual[name], here)
    if isinstance(expected, list) and isinstance(actual, list):
        for i, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if not _same("", one, other):
                return _first_difference(one, other, f"{path}[{i}]")
        return f"the number of {path}", len(expected), len(actual)
    return path, expected, actual


def _same(name: str, one: Any, other: Any) -> bool:
    if _is_distance(name, one) and _is_distance(name, other):
        return math.isclose(one, other, rel_tol=TOLERANCE)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(key, one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same("", a, b) for a, b in zip(one, other, strict=True))
    return _exact(one) == _exact(other)

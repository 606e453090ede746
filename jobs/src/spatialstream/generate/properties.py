"""Properties of synthetic objects, and conditions on them and fields of synthetic queries.

Values depend on the type alone: a keyword is one of 40 by Zipf's law (``country0``, ``country1``, ...), a number whole
from 1 to 5, a time up to a day before the object's own, a boolean as often true as false. One value in ten is missing.
A condition holds for the object that its query is centred on. Cost: O(1) an object; some microseconds a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Ints
from spatialstream.model.expressions import Expression, fields_literal
from spatialstream.model.kinds import having
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.condition import Condition, Test, all_of
from spatialstream.model.properties.declared import ARROW, PropertyType, Value
from spatialstream.model.terms import TermLists

__all__ = ["Asked", "asked_of", "property_columns", "with_asked"]

_CONDITIONAL = having(lambda kind: "where" in kind.fields)
_SHOWING = having(lambda kind: "fields" in kind.fields)

_KEYWORDS = 40
_SHARES = np.cumsum(1.0 / np.arange(1, _KEYWORDS + 1))
_NUMBERS = 5
_DAY_MS = 86_400_000
_MISSING = 0.1


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query asks of properties and stored fields.

    Attributes:
        where: the condition; None: none.
        fields: those that its rows show; None: all that the stream keeps.
    """

    where: Condition | None = None
    fields: tuple[str, ...] | None = None

    @property
    def literals(self) -> tuple[str, ...]:
        """The literals of both."""
        return (*Expression(where=self.where).literals, *fields_literal(self.fields))


def property_columns(settings: GenerateSettings, chunk: int, t: Ints) -> PropertyColumns:
    """The properties of the objects of a chunk.

    Args:
        settings: with the declared properties.
        chunk: number of the chunk.
        t: int64[n], times of its objects.
    """
    random, n = settings.random("properties", chunk), len(t)
    columns = dict[str, pa.Array]()
    for name, kind in settings.properties.types:
        drawn, missing = random.random(n), random.random(n) < _MISSING
        match kind:
            case PropertyType.KEYWORD:
                rank = np.searchsorted(_SHARES, drawn * _SHARES[-1], side="right").astype(np.int32)
                words = pa.array([f"{name}{each}" for each in range(_KEYWORDS)], pa.string())
                columns[name] = words.take(pa.array(rank, mask=missing))
            case PropertyType.NUMBER:
                columns[name] = pa.array(1.0 + np.floor(drawn * _NUMBERS), mask=missing)
            case PropertyType.TIME:
                before = t - np.floor(drawn * _DAY_MS).astype(np.int64)
                columns[name] = pa.array(before, mask=missing).cast(ARROW[kind])
            case PropertyType.BOOLEAN:
                columns[name] = pa.array(drawn < 0.5, mask=missing)
    return PropertyColumns(n, columns)


def asked_of(settings: GenerateSettings, objects: ObjectBatch, code: npt.NDArray[np.int8]) -> list[Asked]:
    """What queries of these kinds ask, that are centred on these objects.

    Args:
        settings: with the share of queries that have a condition, and the fields that the stream keeps.
        objects: n objects.
        code: int8[n], kinds of the queries.
    """
    random = settings.random("conditions")
    wanted = (random.random(len(code)) < settings.where) & _CONDITIONAL[code]
    fields = random.random((len(code), len(settings.fields))) < 0.5
    return [
        Asked(
            _condition(settings, random, objects.properties[row]) if wanted[row] else None,
            _some(settings.fields, fields[row].tolist()) if _SHOWING[code[row]] else None,
        )
        for row in range(len(code))
    ]


def with_asked(lists: TermLists, asked: Sequence[Asked]) -> TermLists:
    """The literals of queries with those of what they ask besides."""
    if not any(each.literals for each in asked):
        return lists
    return TermLists.of([(*lists[row], *each.literals) for row, each in enumerate(asked)])


def _some(fields: tuple[str, ...], chosen: Sequence[bool]) -> tuple[str, ...] | None:
    """The chosen fields; None if these are all."""
    return None if all(chosen) else tuple(name for name, taken in zip(fields, chosen, strict=True) if taken)


def _condition(
    settings: GenerateSettings, random: np.random.Generator, values: tuple[tuple[str, Value], ...]
) -> Condition:
    """A condition on one or two of an object's properties, which holds; that one is missing, if it has none."""
    if not values:
        name, kind = settings.properties.types[int(random.integers(len(settings.properties.types)))]
        return Test(name, kind, "null")
    count = min(len(values), int(random.integers(1, 3)))
    rows = random.permutation(len(values))[:count].tolist()
    return all_of(_test(settings, random, *values[row]) for row in rows)


def _test(settings: GenerateSettings, random: np.random.Generator, name: str, value: Value) -> Test:
    kind, form = settings.properties.type_of[name], int(random.integers(4))
    match kind:
        case PropertyType.KEYWORD:
            others = random.integers(0, _KEYWORDS, 2).tolist()
            if form == 0:
                return Test(name, kind, "like", (cast(str, value)[: len(name) + 1],))
            listed = {cast(str, value), *(f"{name}{other}" for other in others)} if form == 1 else {cast(str, value)}
            return Test(name, kind, "in", tuple(sorted(listed)))
        case PropertyType.BOOLEAN:
            return Test(name, kind, "in", (value,))
    return Test(name, kind, ">=" if form else "<=", (value,))

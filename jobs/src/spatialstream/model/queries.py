"""Queries: a predicate, what to select, and for how long.

The paper's six types are presets of these three parts (:mod:`spatialstream.model.kinds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Floats, Ints, numpy_view
from spatialstream.model.batches import Batch
from spatialstream.model.errors import RecordError, StateError
from spatialstream.model.kinds import CANCEL, CODE, KINDS, NAMES, QueryType, Selects
from spatialstream.model.regions import Box, Circle, Region, Regions, parse_region
from spatialstream.model.schema import QUERIES, QUERY_FIELDS
from spatialstream.model.space import Space
from spatialstream.model.terms import DEFAULT_RULE, TermLists, TermRule, extract_terms
from spatialstream.model.times import FOREVER, TIME_LIMIT, parse_duration, parse_time

__all__ = [
    "MOST_STEPS",
    "Cancellation",
    "Everything",
    "Lifetime",
    "Nearest",
    "Predicate",
    "Query",
    "QueryBatch",
    "TopTerms",
    "coded",
    "endless",
    "named",
    "parse_query",
]


MOST_STEPS = 10_000_000
"""Steps that a CTQ may have: each is a row, so one line of input is never more than about a gigabyte of results."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """Which objects: those in the region (None: anywhere) that have all the keywords (none: whatever the text)."""

    region: Region | None = None
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Everything:
    """Select every object."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """Select the k objects nearest to (x, y); ties by (distance, timestamp descending, id)."""

    x: float
    y: float
    k: int


@dataclass(frozen=True, slots=True)
class TopTerms:
    """Select the k terms found in most objects; ties by term."""

    k: int


Selection = Everything | Nearest | TopTerms

_SELECTS = {Everything: Selects.OBJECTS, Nearest: Selects.NEAREST, TopTerms: Selects.TERMS}
_NAMES = pa.array(NAMES)
_TYPES = {(kind.selects, kind.standing): kind.type for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When, in ms.

    Attributes:
        duration: τ. A snapshot looks back over (t-τ, t]; a continuous query lives in [t, t+τ), see :func:`endless`.
        continuous: whether the query stands.
        window: objects count for this long (T of a CTQ; optional for a CKQ); None: as long as the query lives.
        step: a CTQ reports every ``step`` (δ).
    """

    duration: int
    continuous: bool = False
    window: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A query: id, time of issue in ms, and its three parts."""

    id: str
    t: int
    predicate: Predicate
    selection: Selection
    lifetime: Lifetime

    @property
    def type(self) -> QueryType:
        """The preset that this query is."""
        return _TYPES[_SELECTS[type(self.selection)], self.lifetime.continuous]

    @property
    def k(self) -> int:
        """K of the selection; 0 when everything is selected."""
        return 0 if isinstance(self.selection, Everything) else self.selection.k

    def to_record(self) -> dict[str, Any]:
        """The JSON form that :func:`parse_query` reads; times and durations in ms."""
        record: dict[str, Any] = {"id": self.id, "type": self.type.value, "t": self.t}
        match self.predicate.region:
            case Box(west, south, east, north):
                record["region"] = {"box": [west, south, east, north]}
            case Circle(x, y, radius):
                record["region"] = {"circle": [x, y, radius]}
        if isinstance(self.selection, Nearest):
            record["at"] = [self.selection.x, self.selection.y]
        if self.predicate.keywords:
            record["keywords"] = list(self.predicate.keywords)
        if self.k:
            record["k"] = self.k
        if self.lifetime.duration <= TIME_LIMIT:
            record["duration"] = self.lifetime.duration
        if self.lifetime.window is not None:
            record["window"] = self.lifetime.window
        if self.lifetime.step is not None:
            record["step"] = self.lifetime.step
        return record


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Ends the continuous query ``id`` at ``t``: objects with o.t < t still count."""

    id: str
    t: int

    def to_record(self) -> dict[str, Any]:
        """The JSON form that :func:`parse_query` reads."""
        return {"id": self.id, "type": "CANCEL", "t": self.t}


def parse_query(record: object, space: Space, rule: TermRule = DEFAULT_RULE) -> Query | Cancellation:
    """A query or cancellation from its JSON form, strictly.

    ``{"id", "type", "t", "region", "at", "keywords", "k", "duration", "window", "step"}``: which of them a type takes
    is in the documentation of query semantics. Fields that are no query field at all are ignored; one that this type
    does not take is an error, because ignoring it would answer another question than the one asked.

    Raises:
        RecordError: a field is missing or unusable; names it and says what would be right.
    """
    if not isinstance(record, dict):
        raise RecordError("record", "is not a JSON object")
    name = record.get("id")
    if not isinstance(name, str):
        raise RecordError("id", "is required; give a string" if name is None else f"{name!r} is not a string")
    if record.get("type") is None:
        raise RecordError("type", f"is required; give {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    if record.get("t") is None:
        raise RecordError("t", "is required; give milliseconds or ISO 8601")
    t = parse_time(record["t"])
    if record["type"] == "CANCEL":
        return Cancellation(name, t)
    try:
        kind = KINDS[CODE[QueryType(record["type"])]]
    except ValueError:
        raise RecordError("type", f"{record['type']!r} is not one of {', '.join(NAMES)}") from None
    given = {field for field in QUERY_FIELDS if record.get(field) is not None}
    required = {"id", "type", "t", *kind.required}
    for field in sorted(given - required - {*kind.optional}):
        raise RecordError(field, f"{kind.type} takes no {field}; leave it out")
    for field in sorted(required - given):
        raise RecordError(field, f"{kind.type} requires {field}")

    region = parse_region(record["region"], space) if "region" in given else None
    predicate = Predicate(region, _keywords(record.get("keywords"), rule))
    selection: Selection = Everything()
    if kind.selects is Selects.TERMS:
        selection = TopTerms(_count(record["k"]))
    elif kind.selects is Selects.NEAREST:
        k, at = _count(record["k"]), record["at"]
        if not isinstance(at, list) or len(at) != 2:
            raise RecordError("at", f"must be a list of 2 numbers, [{', '.join(space.axes)}]")
        selection = Nearest(*space.check_point(at[0], at[1], ("at", "at")), k)
    step = parse_duration(record["step"], "step") if "step" in given else None
    if step == 0:
        raise RecordError("step", "is 0; a step is at least 1 ms")
    duration = parse_duration(record["duration"]) if "duration" in given else endless(step)
    if step is not None and duration // step > MOST_STEPS:
        problem = f"{record['step']!r} is too short for a duration of {record['duration']!r}: {duration // step} steps"
        least = duration // (MOST_STEPS + 1) + 1
        right = f"a CTQ has at most {MOST_STEPS}; give a step of at least {least} ms, or a shorter duration"
        raise RecordError("step", f"{problem}, and {right}")
    lifetime = Lifetime(
        duration,
        kind.standing,
        parse_duration(record["window"], "window") if "window" in given else None,
        step,
    )
    return Query(name, t, predicate, selection, lifetime)


def endless(step: int | None) -> int:
    """The duration of a continuous query without one, which lives until it is cancelled.

    A CTQ ends by itself after :data:`MOST_STEPS` steps. Beyond :data:`~spatialstream.model.times.TIME_LIMIT` it cannot
    be written down, and need not be: no duration is the same.
    """
    return FOREVER if step is None else min(FOREVER, step * MOST_STEPS)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError("k", f"{value!r} is not an integer")
    if not 1 <= value < 2**31:
        raise RecordError("k", f"{value} is out of range; k must be at least 1")
    return value


def _keywords(value: object, rule: TermRule) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(keyword, str) for keyword in value):
        raise RecordError("keywords", f"{value!r} is not a list of strings")
    result: dict[str, None] = {}
    for keyword in value:
        terms = extract_terms(keyword, rule)
        if not terms:
            raise RecordError("keywords", f"{keyword!r} has no term: no word character is left after term extraction")
        result.update(dict.fromkeys(terms))
    return tuple(result)


def named(code: npt.NDArray[np.int8]) -> pa.DictionaryArray:
    """Codes as they are stored and sent: by name."""
    return pa.DictionaryArray.from_arrays(pa.array(code), _NAMES)


def coded(names: pa.DictionaryArray) -> npt.NDArray[np.int8]:
    """The codes of :func:`named`, in this process: a view, as long as both know the same kinds.

    Raises:
        StateError: there is a name that is no kind's.
    """
    code: npt.NDArray[np.int8] = numpy_view(names.indices)
    if names.dictionary.equals(_NAMES):
        return code
    known = pc.index_in(names.dictionary, _NAMES)
    if known.null_count:
        raise StateError(f"of queries, {names.dictionary.to_pylist()} are not all known: these are of another release")
    translated: npt.NDArray[np.int8] = numpy_view(known).astype(np.int8)[code]
    return translated


@dataclass(frozen=True, slots=True, eq=False)
class QueryBatch(Batch):
    """n queries and cancellations as columns.

    Attributes:
        ids: Arrow utf8[n].
        code: int8[n], see :mod:`spatialstream.model.kinds`.
        t: int64[n], ms.
        duration: int64[n], ms.
        window, step: int64[n], ms; -1 where absent.
        k: int32[n]; 0 where absent.
        at: float64[n, 2]; 0 where absent.
        regions: n regions.
        keywords: n term sets.
    """

    ids: pa.StringArray
    code: npt.NDArray[np.int8]
    t: Ints
    duration: Ints
    window: Ints
    step: Ints
    k: Codes
    at: Floats
    regions: Regions
    keywords: TermLists

    def __getitem__(self, index: int) -> Query | Cancellation:
        """One row as a query or a cancellation."""
        name, t, code = self.ids[index].as_py(), int(self.t[index]), int(self.code[index])
        if code == CANCEL:
            return Cancellation(name, t)
        kind, k = KINDS[code], int(self.k[index])
        selection: Selection = Everything()
        if kind.selects is Selects.NEAREST:
            selection = Nearest(float(self.at[index, 0]), float(self.at[index, 1]), k)
        elif kind.selects is Selects.TERMS:
            selection = TopTerms(k)
        window, step = int(self.window[index]), int(self.step[index])
        return Query(
            name,
            t,
            Predicate(self.regions[index], tuple(self.keywords[index])),
            selection,
            Lifetime(
                int(self.duration[index]), kind.standing, None if window < 0 else window, None if step < 0 else step
            ),
        )

    @classmethod
    def of(cls, queries: Sequence[Query | Cancellation]) -> QueryBatch:
        """Columns of a sequence."""
        n = len(queries)
        code = np.full(n, CANCEL, np.int8)
        duration, k = np.zeros(n, np.int64), np.zeros(n, np.int32)
        window, step = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        at = np.zeros((n, 2))
        for i, query in enumerate(queries):
            if isinstance(query, Query):
                lifetime = query.lifetime
                code[i], duration[i], k[i] = CODE[query.type], lifetime.duration, query.k
                window[i] = -1 if lifetime.window is None else lifetime.window
                step[i] = -1 if lifetime.step is None else lifetime.step
                if isinstance(query.selection, Nearest):
                    at[i] = query.selection.x, query.selection.y
        return cls(
            pa.array([query.id for query in queries], pa.string()),
            code,
            np.array([query.t for query in queries], np.int64),
            duration,
            window,
            step,
            k,
            at,
            Regions.of([query.predicate.region if isinstance(query, Query) else None for query in queries]),
            TermLists.of([query.predicate.keywords if isinstance(query, Query) else () for query in queries]),
        )

    def to_arrow(self) -> pa.RecordBatch:
        """The wire form, see :data:`spatialstream.model.schema.QUERIES`."""
        words = pa.DictionaryArray.from_arrays(pa.array(self.keywords.codes), self.keywords.vocabulary)
        return pa.RecordBatch.from_arrays(
            [
                self.ids,
                named(self.code),
                *(pa.array(column) for column in (self.t, self.duration, self.window, self.step, self.k)),
                pa.FixedSizeListArray.from_arrays(pa.array(self.at.reshape(-1)), 2),
                pa.array(self.regions.kind),
                pa.FixedSizeListArray.from_arrays(pa.array(self.regions.shape.reshape(-1)), 4),
                pa.ListArray.from_arrays(pa.array(self.keywords.offsets), words),
            ],
            schema=QUERIES,
        )

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> QueryBatch:
        """From the wire form; columns are views of the Arrow buffers."""
        from spatialstream.model.objects import terms_from_arrow

        ids, names, *plain, at, kind, shape, keywords = batch.columns
        t, duration, window, step, k = (numpy_view(column) for column in plain)
        return cls(
            ids,
            coded(names),
            t,
            duration,
            window,
            step,
            k,
            numpy_view(at.flatten()).reshape(-1, 2),
            Regions(numpy_view(kind), numpy_view(shape.flatten()).reshape(-1, 4)),
            terms_from_arrow(keywords),
        )

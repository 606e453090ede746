"""Queries: a predicate, a selection and a lifetime.

The paper's six types are combinations of these three parts (:mod:`spatialstream.model.kinds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Floats, Ints, numpy_view
from spatialstream.model.batches import Batch
from spatialstream.model.errors import RecordError, StateError
from spatialstream.model.expressions import Expression, fields_literal, fields_of
from spatialstream.model.ids import parse_id
from spatialstream.model.kind import TEXT
from spatialstream.model.kinds import CANCEL, CODE, KINDS, NAMES, Kind, kind_of
from spatialstream.model.lifetimes import Lifetime, endless, parse_lifetime
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.properties.condition import Condition
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.query_fields import (
    Faults,
    FieldReader,
    TextParts,
    check_by,
    parse_count,
    parse_point,
    parse_text,
    unknown_fields,
)
from spatialstream.model.ranking.asked import FIELDS, Ranking, parse_ranking
from spatialstream.model.regions import Box, Circle, Region, Regions, parse_region
from spatialstream.model.schema import BY, QUERIES, QUERY_FIELDS, RANKING
from spatialstream.model.selections import Best, Everything, Nearest, Selection, TopTerms
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import parse_chosen
from spatialstream.model.terms import DEFAULT_RULE, SUBSCRIPTIONS, TermLists, TermRule
from spatialstream.model.times import parse_time

__all__ = [
    "Best",
    "Cancellation",
    "Everything",
    "Lifetime",
    "Nearest",
    "Predicate",
    "Query",
    "QueryBatch",
    "TopTerms",
    "coded",
    "named",
    "nobody",
    "not_served",
    "parse_query",
]


POLYGON_FIELD = pa.field("polygon", pa.dictionary(pa.int32(), pa.binary()))
"""The column of batches that have polygons."""

_NO_TEXT: TextParts = (), (), ()
_FIELDS = frozenset(QUERY_FIELDS)


@dataclass(frozen=True, slots=True)
class Predicate:
    """The condition on objects: the region (None: anywhere) and the keyword expression.

    ``keywords``, ``any``, ``none`` and ``where`` are the parts of an
    :class:`~spatialstream.model.expressions.Expression`; if the first three are empty, there is no condition on the
    text, and if ``where`` is None, there is none on properties.
    """

    region: Region | None = None
    keywords: tuple[str, ...] = ()
    any: tuple[tuple[str, ...], ...] = ()
    none: tuple[str, ...] = ()
    where: Condition | None = None

    @property
    def expression(self) -> Expression:
        """The condition on text and properties."""
        return Expression(self.keywords, self.any, self.none, self.where)


_NAMES = pa.array(NAMES)
_KINDS = {(kind.selection, kind.continuous): kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Query:
    """A query: id, time of issue in ms, and its three parts.

    Attributes:
        by: who registered the query, or "" if unknown. It is ignored when queries are compared.
        fields: those of the fields that the stream keeps that rows show of objects; None: all.
    """

    id: str
    t: int
    predicate: Predicate
    selection: Selection
    lifetime: Lifetime
    by: str = field(default="", compare=False)
    fields: tuple[str, ...] | None = None

    @property
    def kind(self) -> Kind:
        """The kind of this query."""
        return _KINDS[type(self.selection), self.lifetime.continuous]

    @property
    def type(self) -> str:
        """The name of its kind."""
        return self.kind.type

    @property
    def k(self) -> int:
        """K of the selection; 0 if it has none."""
        return self.selection.columns[0]

    def at(self, t: int) -> Query:
        """This query as of another time, ms.

        Raises:
            RecordError: it is about an interval that ends later.
        """
        ranking = self.selection.ranking
        if ranking is None or ranking.between is None:
            return replace(self, t=t)
        ranking.check_interval(t)
        return replace(self, t=t, lifetime=replace(self.lifetime, duration=t - ranking.between[0] + 1))

    def to_record(self) -> dict[str, Any]:
        """The JSON form that :func:`parse_query` reads; times and durations in ms."""
        record: dict[str, Any] = {"id": self.id, "type": self.type, "t": self.t}
        ranking = self.selection.ranking
        match self.predicate.region:
            case Box(west, south, east, north):
                record["region"] = {"box": [west, south, east, north]}
            case Circle(x, y, radius) if ranking is None:
                record["region"] = {"circle": [x, y, radius]}
            case Polygon() as polygon:
                record["region"] = polygon.to_region()
        k, x, y = self.selection.columns
        if "at" in self.kind.fields:
            record["at"] = [x, y]
        record |= self.predicate.expression.to_record()
        if k:
            record["k"] = k
        if ranking is not None:
            record |= {name: value for name, value in ranking.to_record().items() if name in self.kind.fields}
        lifetime = self.lifetime
        half_life = ranking.half_life if ranking is not None and lifetime.continuous else None
        is_endless = lifetime.duration == endless(lifetime.step, half_life)
        is_endless &= lifetime.continuous or ranking is not None
        if not is_endless and (ranking is None or ranking.between is None):
            record["duration"] = self.lifetime.duration
        if self.lifetime.window is not None:
            record["window"] = self.lifetime.window
        if self.lifetime.step is not None:
            record["step"] = self.lifetime.step
        if self.fields is not None:
            record["fields"] = [*self.fields]
        if self.by:
            record["by"] = self.by
        return record


@dataclass(frozen=True, slots=True)
class Cancellation:
    """Ends the continuous query ``id`` at ``t``: objects with o.t < t still count."""

    id: str
    t: int

    def to_record(self) -> dict[str, Any]:
        """The JSON form that :func:`parse_query` reads."""
        return {"id": self.id, "type": "CANCEL", "t": self.t}


def parse_query(
    record: object, space: Space, rule: TermRule = DEFAULT_RULE, *, timed: bool = True
) -> Query | Cancellation:
    """Parse and validate a query or cancellation in its JSON form.

    ``{"id", "type", "t", "region", "at", "keywords", "any", "none", "where", "fields", "k", "duration", "window",
    "step", "by"}``, and those of :mod:`spatialstream.model.ranking.asked`: the documentation of query semantics says
    which of them each type takes; ``title`` is ignored. Any other field is an error, and so is a field that the type
    does not take: ignoring it could answer a different query than intended.

    Args:
        record: the JSON value.
        space: of the stream.
        rule: of the stream.
        timed: whether it has to have a ``t``. One without has the time 0, until it gets another one (:meth:`Query.at`).

    Raises:
        RecordError: fields are missing or unusable; names the first and says what would be right, and then of all
            others that can be told without it.
    """
    if not isinstance(record, dict):
        raise RecordError("record", "is not a JSON object")
    faults = Faults()
    name, t = _identity(record, faults, timed)
    if record.get("type") == "CANCEL":
        faults.check()
        return Cancellation(name, t or 0)
    kind = _known_kind(record, faults, rule)
    read = FieldReader(record, _present(record, kind, faults), faults)
    predicate, selection = _predicate(read, space, rule), _selection(read, kind, space)
    ranking = _ranking(read, kind, t, space, rule)
    if ranking is not None:
        _, x, y = selection.columns
        selection, predicate = selection.ranked(ranking), replace(predicate, region=Circle(x, y, ranking.reach))
    lifetime = parse_lifetime(read, kind, t, ranking)
    by = read("by", "", check_by)
    fields = read("fields", None, parse_chosen, rule.fields)
    faults.check()
    return Query(name, t or 0, predicate, selection, lifetime, by, fields)


def _identity(record: Mapping[str, Any], faults: Faults, timed: bool) -> tuple[str, int | None]:
    """Id, and time if it is known; and what is wrong with fields that every record may have."""
    name = faults.of("", parse_id, record.get("id"))
    if record.get("type") is None:
        faults.add("type", f"is required; give {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    faults += unknown_fields(record)
    if not isinstance(record.get("title", ""), str | None):
        faults.add("title", f"{record['title']!r} is not a string")
    if record.get("t") is not None:
        return name, faults.of(None, parse_time, record["t"])
    if timed:
        faults.add("t", "is required; give milliseconds or ISO 8601")
    return name, None


def _known_kind(record: Mapping[str, Any], faults: Faults, rule: TermRule) -> Kind:
    """The kind of a query. Without one nothing more can be told: it says which other fields there have to be."""
    kind = kind_of(record.get("type"))
    if kind is None:
        if record.get("type") is not None:
            faults.add("type", f"{record['type']!r} is not one of {', '.join(NAMES)}")
        raise RecordError.of(faults)
    if not kind.continuous and rule.serves == SUBSCRIPTIONS:
        faults.add("type", not_served(kind))
    return kind


def not_served(kind: Kind) -> str:
    """Why a stream that serves subscriptions only refuses a kind of snapshot query."""
    same = next((each.type for each in KINDS if each.continuous and each.selection is kind.selection), "")
    instead = f"register a {same}" if same else "register a continuous query"
    return f"{kind.type} is a snapshot query, and the stream stores no objects: it serves subscriptions; {instead}"


def _present(record: Mapping[str, Any], kind: Kind, faults: Faults) -> set[str]:
    """The fields of a query that its kind takes."""
    present = {field for field, value in record.items() if value is not None and field in _FIELDS}
    required, taken = _field_sets(kind.required, kind.optional)
    for each in sorted(present - taken):
        faults.add(each, f"{kind.type} takes no {each}; remove it")
    for each in sorted(required - present - {"id", "t"}):  # of those it is known
        faults.add(each, f"{kind.type} requires {each}")
    return present & taken


@lru_cache(64)
def _field_sets(required: Sequence[str], optional: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The fields that a query of a kind has to have, and those that it may have."""
    all_required = frozenset(("id", "type", "t", *required))
    return all_required, all_required | {*optional}


def _predicate(read: FieldReader, space: Space, rule: TermRule) -> Predicate:
    region: Region | None = read("region", None, parse_region, space, "region", rule.polygon_vertices)
    where = read("where", None, parse_where, rule.properties)
    text = read.faults.of(_NO_TEXT, parse_text, read.among(TEXT), rule)
    return Predicate(region, *text, where)


def _selection(read: FieldReader, kind: Kind, space: Space) -> Selection:
    k = read("k", 1, parse_count)
    return kind.selection.of(k, *read("at", (0.0, 0.0), parse_point, space))


def _ranking(read: FieldReader, kind: Kind, t: int | None, space: Space, rule: TermRule) -> Ranking | None:
    """By what a query ranks; None if it does not, or what it requires for that is missing."""
    if not kind.is_ranked or not {*kind.required} & {*FIELDS} <= {*read.present}:
        return None
    if not rule.ranking:
        read.faults.add("type", f"{kind.type} needs a stream that counts words; start it with --ranking")
    parse = partial(parse_ranking, continuous=kind.continuous)
    return read.faults.of(None, parse, read.among(FIELDS), t, space, rule)


def named(code: npt.NDArray[np.int8]) -> pa.DictionaryArray:
    """Encode kinds by name, the form in which they are stored and sent."""
    return pa.DictionaryArray.from_arrays(pa.array(code), _NAMES)


def coded(names: pa.DictionaryArray) -> npt.NDArray[np.int8]:
    """Decode :func:`named` to this process's codes: a view if the writer has the same table of kinds.

    Raises:
        StateError: a name is not that of a kind.
    """
    code: npt.NDArray[np.int8] = numpy_view(names.indices)
    if names.dictionary.equals(_NAMES):
        return code
    known = pc.index_in(names.dictionary, _NAMES)
    if known.null_count:
        raise StateError(f"unknown query types among {names.dictionary.to_pylist()}: written by another release")
    translated: npt.NDArray[np.int8] = numpy_view(known).astype(np.int8)[code]
    return translated


def nobody(n: int) -> pa.StringArray:
    """The column ``by``, or ``ranking``, of n queries without that field: n empty strings."""
    return pa.StringArray.from_buffers(n, pa.py_buffer(np.zeros(n + 1, np.int32)), pa.py_buffer(b""))


@dataclass(frozen=True, slots=True, eq=False)
class QueryBatch(Batch):
    """n queries and cancellations as columns.

    Attributes:
        ids: Arrow utf8[n].
        code: int8[n], see :mod:`spatialstream.model.kinds`.
        t: times of issue, int64[n], ms.
        duration: int64[n], ms.
        window, step: int64[n], ms; -1 where absent.
        k: int32[n]; 0 where absent.
        at: float64[n, 2]; 0 where absent.
        regions: n regions.
        keywords: n sets of literals (:mod:`spatialstream.model.expressions`), with the fields that rows show.
        by: Arrow utf8[n], who registered each query; "" where unknown. No index stores it.
        ranking: Arrow utf8[n], by what each ranks (:attr:`~spatialstream.model.ranking.asked.Ranking.text`); "" where
            by nothing.
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
    by: pa.StringArray
    ranking: pa.StringArray

    def __getitem__(self, index: int) -> Query | Cancellation:
        """The query or cancellation in one row."""
        name, t, code = self.ids[index].as_py(), int(self.t[index]), int(self.code[index])
        if code == CANCEL:
            return Cancellation(name, t)
        kind, k = KINDS[code], int(self.k[index])
        selection = kind.selection.of(k, float(self.at[index, 0]), float(self.at[index, 1]))
        if ranking := self.ranking[index].as_py():
            selection = selection.ranked(Ranking.of_text(ranking))
        window, step = int(self.window[index]), int(self.step[index])
        literals = self.keywords[index]
        text = Expression.of(literals)
        return Query(
            name,
            t,
            Predicate(self.regions[index], text.keywords, text.any, text.none, text.where),
            selection,
            Lifetime(
                int(self.duration[index]), kind.continuous, None if window < 0 else window, None if step < 0 else step
            ),
            self.by[index].as_py(),
            fields_of(literals),
        )

    @classmethod
    def of(cls, queries: Sequence[Query | Cancellation]) -> QueryBatch:
        """Build the columns of a sequence of queries and cancellations."""
        n = len(queries)
        code = np.full(n, CANCEL, np.int8)
        duration, k = np.zeros(n, np.int64), np.zeros(n, np.int32)
        window, step = np.full(n, -1, np.int64), np.full(n, -1, np.int64)
        at = np.zeros((n, 2))
        for i, query in enumerate(queries):
            if isinstance(query, Query):
                lifetime = query.lifetime
                code[i], duration[i] = CODE[query.type], lifetime.duration
                k[i], *at[i] = query.selection.columns
                window[i] = -1 if lifetime.window is None else lifetime.window
                step[i] = -1 if lifetime.step is None else lifetime.step
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
            TermLists.of([_literals(each) if isinstance(each, Query) else () for each in queries]),
            pa.array([query.by if isinstance(query, Query) else "" for query in queries], pa.string()),
            pa.array([_ranking_text(query) for query in queries], pa.string()),
        )

    def to_arrow(self) -> pa.RecordBatch:
        """The wire form, see :data:`~spatialstream.model.schema.QUERIES`, and ``BY`` and ``RANKING`` there."""
        words = pa.DictionaryArray.from_arrays(pa.array(self.keywords.codes), self.keywords.vocabulary)
        record = pa.RecordBatch.from_arrays(
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
        if self.regions.polygons.distinct:
            record = record.append_column(POLYGON_FIELD, self.regions.polygons.to_arrow())
        for field_, column in ((BY, self.by), (RANKING, self.ranking)):
            if pc.sum(pc.binary_length(column)).as_py():
                record = record.append_column(field_, column)
        return record

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> QueryBatch:
        """Read the wire form; columns are views of the Arrow buffers."""
        from spatialstream.model.objects import terms_from_arrow

        polygons = PolygonColumn.none(batch.num_rows)
        if "polygon" in batch.schema.names:
            polygons = PolygonColumn.from_arrow(batch.column("polygon"))
        by, ranking = (
            batch.column(name) if name in batch.schema.names else nobody(batch.num_rows) for name in ("by", "ranking")
        )
        ids, names, *plain, at, kind, shape, keywords = batch.columns[: len(QUERIES)]
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
            Regions(numpy_view(kind), numpy_view(shape.flatten()).reshape(-1, 4), polygons),
            terms_from_arrow(keywords),
            by,
            ranking,
        )


def _literals(query: Query) -> tuple[str, ...]:
    """The column ``keywords`` of a query."""
    return (*query.predicate.expression.literals, *fields_literal(query.fields))


def _ranking_text(query: Query | Cancellation) -> str:
    """The column ``ranking`` of a query."""
    ranking = query.selection.ranking if isinstance(query, Query) else None
    return "" if ranking is None else ranking.text

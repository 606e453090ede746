"""Queries: a predicate, a selection and a lifetime.

The paper's six types are combinations of these three parts (:mod:`spatialstream.model.kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import Codes, Floats, Ints, numpy_view
from spatialstream.model.batches import Batch
from spatialstream.model.errors import RecordError, StateError
from spatialstream.model.expressions import (
    MOST_GIVEN,
    MOST_GROUPS,
    Expression,
    absorbed,
    fields_literal,
    fields_of,
)
from spatialstream.model.ids import parse_id
from spatialstream.model.kinds import CANCEL, CODE, KINDS, NAMES, Kind, kind_of
from spatialstream.model.polygons.column import PolygonColumn
from spatialstream.model.polygons.polygon import Polygon
from spatialstream.model.properties.condition import Condition
from spatialstream.model.properties.cql2 import parse_where
from spatialstream.model.ranking.asked import FIELDS, Ranking, parse_ranking
from spatialstream.model.ranking.scores import LONGEST_LIFE
from spatialstream.model.regions import Box, Circle, Region, Regions, parse_region
from spatialstream.model.schema import BY, LARGEST_K, LONGEST_BY, QUERIES, QUERY_FIELDS, QUERY_JSON, RANKING
from spatialstream.model.selections import Best, Everything, Nearest, Selection, TopTerms
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import parse_chosen
from spatialstream.model.terms import DEFAULT_RULE, SUBSCRIPTIONS, TermLists, TermRule, extract_terms
from spatialstream.model.times import FOREVER, parse_duration, parse_time

__all__ = [
    "ENDLESS_HALF_LIFE",
    "MOST_STEPS",
    "Best",
    "Cancellation",
    "Everything",
    "Lifetime",
    "Nearest",
    "Predicate",
    "Query",
    "QueryBatch",
    "TopTerms",
    "check_by",
    "check_fields",
    "coded",
    "endless",
    "endless_durations",
    "named",
    "nobody",
    "not_served",
    "parse_query",
]


T = TypeVar("T")

POLYGON_FIELD = pa.field("polygon", pa.dictionary(pa.int32(), pa.binary()))
"""The column of batches that have polygons."""

MOST_STEPS = 10_000_000
"""Maximum number of steps of a CTQ: each is a row, so one line of input yields about a gigabyte of results at most."""

ENDLESS_HALF_LIFE = 3_600_000
"""Shortest half-life, in ms, of a continuous query without a duration."""

_NO_TEXT: tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]] = (), (), ()
_KNOWN = dict.fromkeys(QUERY_JSON["properties"])
_LONGEST_NAME = 40


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
class Lifetime:
    """The time range of a query, in ms.

    Attributes:
        duration: τ. A snapshot query covers (t-τ, t]; a continuous query is active in [t, t+τ), see :func:`endless`.
        continuous: whether the query is continuous.
        window: for how long an object counts (T; required for a CTQ, optional for a CKQ and a CBQ); None: until the
            query ends.
        step: interval at which a CTQ reports (δ).
    """

    duration: int
    continuous: bool = False
    window: int | None = None
    step: int | None = None


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


def parse_query(record: object, space: Space, rule: TermRule = DEFAULT_RULE) -> Query | Cancellation:
    """Parse and validate a query or cancellation in its JSON form.

    ``{"id", "type", "t", "region", "at", "keywords", "any", "none", "where", "fields", "k", "duration", "window",
    "step", "by"}``, and those of :mod:`spatialstream.model.ranking.asked`: the documentation of query semantics says
    which of them each type takes; ``title`` is ignored. Any other field is an error, and so is a field that the type
    does not take: ignoring it could answer a different query than intended.

    Raises:
        RecordError: fields are missing or unusable; names the first and says what would be right, and then of all
            others that can be told without it.
    """
    if not isinstance(record, dict):
        raise RecordError("record", "is not a JSON object")
    faults = _Faults()
    name = faults.of("", parse_id, record.get("id"))
    if record.get("type") is None:
        faults.add("type", f"is required; give {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    faults += _unknown(record)
    if not isinstance(record.get("title", ""), str | None):
        faults.add("title", f"{record['title']!r} is not a string")
    if record.get("t") is None:
        faults.add("t", "is required; give milliseconds or ISO 8601")
        t = 0
    else:
        t = faults.of(0, parse_time, record["t"])
    if record.get("type") == "CANCEL":
        faults.check()
        return Cancellation(name, t)
    kind = kind_of(record.get("type"))
    if kind is None:
        if record.get("type") is not None:
            faults.add("type", f"{record['type']!r} is not one of {', '.join(NAMES)}")
        raise RecordError.of(faults)  # which other fields there have to be, it says
    if not kind.continuous and rule.serves == SUBSCRIPTIONS:
        faults.add("type", not_served(kind))
    present = {field for field in QUERY_FIELDS if record.get(field) is not None}
    required = {"id", "type", "t", *kind.required}
    for each in sorted(present - required - {*kind.optional}):
        faults.add(each, f"{kind.type} takes no {each}; remove it")
    for each in sorted(required - present - {"id", "t"}):  # of those it is known
        faults.add(each, f"{kind.type} requires {each}")
    present &= required | {*kind.optional}

    ranking: Ranking | None = None
    region: Region | None = None
    if "region" in present:
        region = faults.of(None, parse_region, record["region"], space, "region", rule.polygon_vertices)
    text = {field: record[field] for field in ("keywords", "any", "none") if field in present}
    where = faults.of(None, parse_where, record["where"], rule.properties) if "where" in present else None
    predicate = Predicate(region, *faults.of(_NO_TEXT, _expression, text, rule), where)
    k = faults.of(1, _count, record["k"]) if "k" in present else 1
    at = faults.of((0.0, 0.0), _point, record["at"], space) if "at" in present else (0.0, 0.0)
    selection = kind.selection.of(k, *at)
    if kind.is_ranked and {*kind.required} & {*FIELDS} <= present:
        if not rule.ranking:
            faults.add("type", f"{kind.type} needs a stream that counts words; start it with --ranking")
        asked = {field: record[field] for field in FIELDS if field in present}
        parse = partial(parse_ranking, continuous=kind.continuous)
        ranking = faults.of(None, parse, asked, t, space, rule)
        if ranking is not None:
            selection = selection.ranked(ranking)
            predicate = replace(predicate, region=Circle(*at, ranking.reach))
    step = faults.of(None, _step, record["step"]) if "step" in present else None
    half_life = ranking.half_life if ranking is not None and kind.continuous else None
    duration = endless(step, half_life)
    if "duration" in present:
        duration = faults.of(duration, parse_duration, record["duration"])
        if "between" in present:
            faults.add("duration", "cannot be combined with between; remove one of the two")
    elif ranking is not None and ranking.between is not None:
        duration = t - ranking.between[0] + 1
    if half_life is not None:
        faults += _lives(record, half_life, duration)
    if step is not None and duration // step > MOST_STEPS:
        problem = f"{record['step']!r} is too short for a duration of {record['duration']!r}: {duration // step} steps"
        least = duration // (MOST_STEPS + 1) + 1
        right = f"a {kind.type} has at most {MOST_STEPS}; give a step of at least {least} ms, or a shorter duration"
        faults.add("step", f"{problem}, and {right}")
    window = faults.of(None, parse_duration, record["window"], "window") if "window" in present else None
    by = faults.of("", check_by, record["by"]) if "by" in present else ""
    fields = faults.of(None, parse_chosen, record["fields"], rule.fields) if "fields" in present else None
    faults.check()
    return Query(name, t, predicate, selection, Lifetime(duration, kind.continuous, window, step), by, fields)


def not_served(kind: Kind) -> str:
    """Why a stream that serves subscriptions only refuses a kind of snapshot query."""
    same = next((each.type for each in KINDS if each.continuous and each.selection is kind.selection), "")
    instead = f"register a {same}" if same else "register a continuous query"
    return f"{kind.type} is a snapshot query, and the stream stores no objects: it serves subscriptions; {instead}"


def _lives(record: Mapping[str, Any], half_life: int, duration: int) -> Iterator[RecordError]:
    """What is wrong with the half-life of a continuous query, of which its life has too many."""
    given, most = record["halfLife"], half_life * LONGEST_LIFE
    if record.get("duration") is None and half_life < ENDLESS_HALF_LIFE:
        problem = f"{given!r} is too short for a query without a duration, which lasts {LONGEST_LIFE} half-lives"
        yield RecordError("halfLife", f"{problem}; give at least 1h, or a duration of at most {most} ms")
    elif record.get("duration") is not None and duration > most:
        problem = f"{record['duration']!r} is more than {LONGEST_LIFE} half-lives of {given!r}"
        yield RecordError("duration", f"{problem}; give at most {most} ms, or a longer halfLife")


class _Faults(list[RecordError]):
    """What is wrong with a record, in the order in which it is found."""

    def add(self, field: str, problem: str) -> None:
        self.append(RecordError(field, problem))

    def of(self, default: T, parse: Callable[..., T], *given: Any) -> T:
        """What a function makes of a part of the record; the default where it cannot."""
        try:
            return parse(*given)
        except RecordError as error:
            self.append(error)
            return default

    def check(self) -> None:
        """Raise all of it, if there is any."""
        if self:
            raise RecordError.of(self)


def check_fields(names: Iterable[object]) -> None:
    """Refuse names that are not query fields, even if the field is null: it may be a misspelt condition.

    Raises:
        RecordError: for the first unknown name; the message suggests the closest field.
    """
    for fault in _unknown(names):
        raise fault


def _unknown(names: Iterable[object]) -> Iterator[RecordError]:
    for name in map(str, names):
        if name not in _KNOWN:
            short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
            yield RecordError(short, f"is not a query field; {_meant(short)}")


@lru_cache(256)
def _meant(name: str) -> str:
    near = get_close_matches(name.lower(), _KNOWN, 1)
    return f"did you mean {near[0]}?" if near else f"the fields are {', '.join(_KNOWN)}"


def endless(step: int | None, half_life: int | None = None) -> int:
    """The duration of a continuous query that is given without one, and so is active until it is cancelled.

    A CTQ ends by itself after :data:`MOST_STEPS` steps, and a CBQ after
    :data:`~spatialstream.model.ranking.scores.LONGEST_LIFE` half-lives; with a half-life of less than
    :data:`ENDLESS_HALF_LIFE` it has to have a duration. It is not written down: no duration is the same.
    """
    if half_life is not None and half_life >= ENDLESS_HALF_LIFE:
        return min(FOREVER, half_life * LONGEST_LIFE)
    return FOREVER if step is None else min(FOREVER, step * MOST_STEPS)


def endless_durations(step: Ints, half_life: Ints | None = None) -> Ints:
    """As :func:`endless`, int64[n], of n steps and half-lives of which -1 is none."""
    steps: Ints = np.where((step < 0) | (step > FOREVER // MOST_STEPS), FOREVER, step * MOST_STEPS)
    if half_life is None:
        return steps
    lives = np.minimum(half_life, FOREVER // LONGEST_LIFE + 1) * LONGEST_LIFE
    return np.where(half_life >= ENDLESS_HALF_LIFE, np.minimum(lives, FOREVER), steps)


def check_by(value: object) -> str:
    """Validate the field ``by``: who registered a query.

    Raises:
        RecordError: ``value`` is not Unicode text of 1 to :data:`~spatialstream.model.schema.LONGEST_BY` bytes.
    """
    if not isinstance(value, str):
        raise RecordError("by", f"{value!r} is not a string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise RecordError("by", f"{value!r} holds half of a surrogate pair; give Unicode text") from None
    if not 1 <= size <= LONGEST_BY:
        raise RecordError("by", f"has {size} bytes; give 1 to {LONGEST_BY} bytes of UTF-8")
    return value


def _point(value: object, space: Space) -> tuple[float, float]:
    if not isinstance(value, list) or len(value) != 2:
        raise RecordError("at", f"must be a list of 2 numbers, [{', '.join(space.axes)}]")
    return space.check_point(value[0], value[1], ("at", "at"))


def _step(value: object) -> int:
    step = parse_duration(value, "step")
    if step == 0:
        raise RecordError("step", "is 0; a step is at least 1 ms")
    return step


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError("k", f"{value!r} is not an integer")
    if not 1 <= value <= LARGEST_K:
        raise RecordError("k", f"{value} is out of range; give 1 to {LARGEST_K}")
    return value


def _expression(
    record: Mapping[str, Any], rule: TermRule
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Parse the keywords, groups and forbidden terms, in canonical form."""
    keywords, none = _terms(record, "keywords", rule), _terms(record, "none", rule)
    any_groups = record.get("any")
    if any_groups is None:
        _check_words(len(keywords), 0, len(none), rule)
        return keywords, (), none
    if keywords:
        raise RecordError("any", "cannot be combined with keywords; give one of the two")
    if not isinstance(any_groups, list) or not all(isinstance(group, list) for group in any_groups):
        raise RecordError("any", f"{any_groups!r} is not a list of groups, each a list of strings")
    if not 1 <= len(any_groups) <= MOST_GIVEN:
        raise RecordError("any", f"has {len(any_groups)} groups; give 1 to {MOST_GROUPS}, or remove it")
    if not all(any_groups):
        raise RecordError("any", "has an empty group, which would match every text; remove the group")
    groups = absorbed(_terms({"any": group}, "any", rule) for group in any_groups)
    if len(groups) > MOST_GROUPS:
        raise RecordError("any", f"has {len(groups)} groups after removing redundant ones; give at most {MOST_GROUPS}")
    _check_words(0, sum(map(len, groups)), len(none), rule)
    return (*groups, (), none) if len(groups) == 1 else ((), groups, none)


def _check_words(keywords: int, groups: int, none: int, rule: TermRule) -> None:
    """Refuse more words in all than a query may have; the part with the most of them is named."""
    count, field = max((keywords, "keywords"), (groups, "any"), (none, "none"))
    if (total := keywords + groups + none) > rule.query_words:
        of_all = "" if count == total else f" of {total} in all"
        problem = f"has {count} words{of_all}; a query may have {rule.query_words}"
        raise RecordError(field, f"{problem} (setting query-words)")


def _terms(record: Mapping[str, Any], field: str, rule: TermRule) -> tuple[str, ...]:
    """Extract the distinct terms of a field that is a list of strings."""
    value = record.get(field)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(keyword, str) for keyword in value):
        raise RecordError(field, f"{value!r} is not a list of strings")
    result: dict[str, None] = {}
    for keyword in value:
        terms = extract_terms(keyword, rule)
        if not terms:
            raise RecordError(field, f"{keyword!r} has no term: no word character is left after term extraction")
        result.update(dict.fromkeys(terms))
    return tuple(result)


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

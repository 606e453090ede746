"""Objects of the stream: single objects (as in records and results) and columns of objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Floats, Ints, numpy_view
from spatialstream.model.batches import Batch, joined
from spatialstream.model.errors import RecordError
from spatialstream.model.ids import parse_id
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import Value
from spatialstream.model.space import Space
from spatialstream.model.stored_fields import TEXT, StoredFields, check_text, fragment
from spatialstream.model.terms import DEFAULT_RULE, TermLists, TermRule, occurrences, term_sequence
from spatialstream.model.times import parse_time

__all__ = ["ObjectBatch", "SpatialObject", "parse_object"]


@dataclass(frozen=True, slots=True)
class SpatialObject:
    """An object o = (φ, ρ, t) of the paper (section 3.1): terms, place, timestamp in ms; an id, and properties.

    ``properties`` are names and values, without missing ones; ``stored`` are the fields that its stream keeps
    (:mod:`~spatialstream.model.stored_fields`), None if it keeps none. ``counts`` are how often the text has each of
    the terms, empty if its stream does not count that.
    """

    id: str
    t: int
    x: float
    y: float
    terms: tuple[str, ...]
    properties: tuple[tuple[str, Value], ...] = ()
    stored: str | None = None
    counts: tuple[int, ...] = ()

    @property
    def said(self) -> tuple[str, ...]:
        """The terms, each as often as it is counted."""
        if not self.counts:
            return self.terms
        return tuple(term for term, count in zip(self.terms, self.counts, strict=True) for _ in range(count))


def parse_object(record: object, space: Space, rule: TermRule = DEFAULT_RULE) -> SpatialObject:
    """Parse and validate an object in its JSON form.

    ``{"id": str | int, "t": ms | ISO 8601, "lon": deg, "lat": deg, "text": str}`` (``x``, ``y`` in planar spaces;
    ``"terms": [str, ...]`` in place of ``text``: each string goes through the same term extraction); and the properties
    that the rule declares, each a value of its type, or null or absent. Other fields are ignored.

    Raises:
        RecordError: a field is missing or invalid; the message names the field and says what would be valid.
    """
    if not isinstance(record, dict):
        raise RecordError("record", "is not a JSON object")
    name = parse_id(record.get("id"))
    if record.get("t") is None:
        raise RecordError("t", "is required; give milliseconds or ISO 8601")
    t = parse_time(record["t"])
    x_name, y_name = space.axes
    x, y = space.check_point(record.get(x_name), record.get(y_name), space.axes)
    text, terms = record.get("text"), record.get("terms")
    properties = rule.properties.read(record)
    if text is not None and terms is not None:
        raise RecordError("terms", "give either text or terms, not both")
    if terms is not None:
        if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms):
            raise RecordError("terms", f"{terms!r} is not a list of strings")
        found = _counted(terms, rule)
        return SpatialObject(name, t, x, y, found[0], properties, _stored(rule, None, properties), found[1])
    if text is None:
        raise RecordError("text", "is required; give a string, or a list of strings as terms")
    if not isinstance(text, str):
        raise RecordError("text", f"{text!r} is not a string")
    found, stored = _counted([text], rule), _stored(rule, text, properties)
    return SpatialObject(name, t, x, y, found[0], properties, stored, found[1])


def _counted(texts: Sequence[str], rule: TermRule) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The terms of an object, and how often it has each, if its stream counts that."""
    found = occurrences(term for text in texts for term in term_sequence(text, rule))
    return tuple(found), tuple(found.values()) if rule.counts else ()


def _stored(rule: TermRule, text: str | None, properties: tuple[tuple[str, Value], ...]) -> str | None:
    """The fields of an object that its stream keeps; None if it keeps none."""
    if not rule.fields:
        return None
    if text is not None and TEXT in rule.fields:
        check_text(text)
    return fragment(rule.fields, text, properties)


_NOT_GIVEN = PropertyColumns.none(0)
_NOT_STORED = StoredFields.none(0)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectBatch(Batch):
    """n objects as columns.

    Attributes:
        ids: Arrow utf8[n].
        t: timestamps, int64[n], ms.
        x, y: coordinates, float64[n].
        terms: n term sets, with counts if the stream counts them.
        properties: of n objects; by default none.
        stored: the fields of n objects that their stream keeps; by default none.
    """

    ids: pa.StringArray
    t: Ints
    x: Floats
    y: Floats
    terms: TermLists
    properties: PropertyColumns = _NOT_GIVEN
    stored: StoredFields = _NOT_STORED

    def __post_init__(self) -> None:
        if self.properties is _NOT_GIVEN:
            object.__setattr__(self, "properties", PropertyColumns.none(len(self.t)))
        if self.stored is _NOT_STORED:
            object.__setattr__(self, "stored", StoredFields.none(len(self.t)))

    def __getitem__(self, index: int) -> SpatialObject:
        """The object in one row."""
        return SpatialObject(
            self.ids[index].as_py(),
            int(self.t[index]),
            float(self.x[index]),
            float(self.y[index]),
            tuple(self.terms[index]),
            self.properties[index],
            self.stored[index],
            self.terms.counts_of(index),
        )

    @classmethod
    def of(cls, objects: Sequence[SpatialObject]) -> ObjectBatch:
        """Build the columns of a sequence of objects."""
        terms = TermLists.of([o.terms for o in objects])
        if any(o.counts for o in objects):
            counts = [count for o in objects for count in o.counts or (1,) * len(o.terms)]
            terms = replace(terms, counts=np.array(counts, np.uint8))
        return cls(
            pa.array([o.id for o in objects], pa.string()),
            np.array([o.t for o in objects], np.int64),
            np.array([o.x for o in objects], np.float64),
            np.array([o.y for o in objects], np.float64),
            terms,
            PropertyColumns.of([o.properties for o in objects]),
            StoredFields.of([o.stored for o in objects]),
        )

    def slice(self, first: int, last: int) -> ObjectBatch:
        """The objects from ``first`` up to ``last`` (exclusive); copies only their offsets."""
        if first == 0 and last == len(self):
            return self
        return ObjectBatch(
            self.ids.slice(first, last - first),
            self.t[first:last],
            self.x[first:last],
            self.y[first:last],
            self.terms.slice(first, last),
            self.properties.slice(first, last),
            self.stored.slice(first, last),
        )

    @classmethod
    def concat(cls, parts: Sequence[ObjectBatch]) -> ObjectBatch:
        """Concatenate the objects of ``parts`` in order; an empty batch if there are no parts."""
        return joined(parts or [cls.of([])])

    def to_arrow(self) -> pa.RecordBatch:
        """The wire form: :data:`spatialstream.model.schema.OBJECTS`, and then what not every stream has.

        That are properties as a column of structs, the fields that the stream keeps, and how often texts have their
        terms (``counts``, in the order of ``terms``).
        """
        from spatialstream.model.schema import OBJECTS

        coded = pa.DictionaryArray.from_arrays(pa.array(self.terms.codes), self.terms.vocabulary)
        lists = pa.ListArray.from_arrays(pa.array(self.terms.offsets), coded)
        batch = pa.RecordBatch.from_arrays(
            [self.ids, pa.array(self.t), pa.array(self.x), pa.array(self.y), lists], schema=OBJECTS
        )
        if self.properties.columns:
            batch = batch.append_column("properties", self.properties.to_arrow())
        if self.stored.column is not None:
            batch = batch.append_column("stored", self.stored.column)
        if self.terms.counts is None:
            return batch
        counts = pa.ListArray.from_arrays(lists.offsets, pa.array(self.terms.counts))
        return batch.append_column("counts", counts)

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> ObjectBatch:
        """Read the wire form; columns are views of the Arrow buffers."""
        ids, t, x, y, lists, *others = batch.columns
        more = dict(zip(batch.schema.names[-len(others) :], others, strict=True)) if others else {}
        properties = PropertyColumns.from_arrow(more["properties"]) if "properties" in more else _NOT_GIVEN
        stored = StoredFields(len(ids), more["stored"]) if "stored" in more else _NOT_STORED
        terms = terms_from_arrow(lists)
        if "counts" in more:
            terms = replace(terms, counts=numpy_view(more["counts"].flatten()))
        return cls(ids, numpy_view(t), numpy_view(x), numpy_view(y), terms, properties, stored)


def terms_from_arrow(lists: pa.ListArray) -> TermLists:
    """Read the term sets of a ``list<dictionary<int32, string>>`` column without nulls."""
    offsets = numpy_view(lists.offsets)
    values = lists.values
    if len(lists) == 0:
        return TermLists.empty(0)
    first, last = int(offsets[0]), int(offsets[-1])
    coded = values.slice(first, last - first)
    return TermLists(offsets - np.int32(first) if first else offsets, numpy_view(coded.indices), coded.dictionary)

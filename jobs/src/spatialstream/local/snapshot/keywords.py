"""Which keywords of properties have postings in a segment.

A value that few objects have costs a segment its string and a place in the hash table, besides a posting for each
object: 38 bytes, if each object has another value of 12 characters, and a search that knows such a value asks for one
object. So a property has postings where its values have at least :data:`ALIKE` objects on
average. A segment of few objects does not tell: the same cities that are different in each object of a small epoch come
again in the next one. So it is decided with at least :data:`ENOUGH` objects, and segments follow a larger one of their
store.

A search decides it for each segment: a test of a property is a term of those that have postings of it, and is checked
on candidates of the others.

Cost: a hash for each keyword; of a property that gets no postings, for each keyword until there are too many values.
Postings are 4 bytes, and strings at most about 3 bytes an object and property.
"""

from __future__ import annotations

from collections.abc import Iterator

from spatialstream.model.arrays import Array
from spatialstream.model.keyword_terms import with_few_values
from spatialstream.model.properties.columns import PropertyColumns
from spatialstream.model.properties.declared import ARROW, PropertyType
from spatialstream.model.properties.table import PropertyTable
from spatialstream.model.terms import TermLists

__all__ = ["ALIKE", "ENOUGH", "Decided", "decided_in", "flags_of", "keyword_names", "with_postings"]

ALIKE = 16
"""Objects that a value of a property with postings has, on average."""

ENOUGH = 8_192
"""Number of objects from which on a property may have no postings."""

Decided = dict[str, bool]
"""Of each property of keywords, by name, whether it has postings."""


def keyword_names(table: PropertyTable | None) -> Iterator[str]:
    """The properties of a table that are keywords."""
    if table is not None:
        yield from (name for name, kind in table.types if kind is PropertyType.KEYWORD)


def with_postings(terms: TermLists, columns: PropertyColumns, given: Decided) -> tuple[TermLists, Decided]:
    """The terms of n objects, after each those of its keywords that get postings; and which do.

    Args:
        terms: those of the texts, which keep their codes.
        columns: the objects' properties.
        given: what is decided already.
    """
    found = Decided()
    for name, column in columns.columns.items():
        if column.type != ARROW[PropertyType.KEYWORD]:
            continue
        found[name] = given.get(name, True)
        if not found[name]:
            continue
        objects = len(column) - column.null_count
        few = objects if name in given or objects < ENOUGH else objects // ALIKE
        more = with_few_values(terms, column, name, few)
        found[name] = more is not None
        terms = terms if more is None else more
    return terms, found


def flags_of(table: PropertyTable | None, decided: Decided) -> list[bool]:
    """What is decided, by the properties of a table in their order."""
    return [] if table is None else [decided.get(name, False) for name, _ in table.types]


def decided_in(table: PropertyTable | None, flags: Array | None) -> Decided:
    """What :func:`flags_of` was given; nothing is decided in files of an earlier format, which have no flags (None)."""
    if table is None or flags is None:
        return {}
    names, there = {*keyword_names(table)}, flags.astype(bool).tolist()
    return {name: flag for (name, _), flag in zip(table.types, there, strict=True) if name in names}

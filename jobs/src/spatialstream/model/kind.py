"""A kind of query: what the model, and all code that treats kinds alike, has to know of it.

What a layer does for a kind is a row in a table of that layer, under the name of the kind; ``docs/query-types.md``
lists the tables. So a layer knows the parts of kinds below it, and no kind has to be known by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from spatialstream.model.selections import Selection

__all__ = ["CONDITIONS", "CONTINUOUS", "FIELDS", "TEXT", "Kind", "Route", "Wording"]

TEXT = ("keywords", "any", "none")
"""The fields of a condition on the text."""

CONDITIONS = (*TEXT, "where")
"""The fields of conditions on what an object says: on its text, and on its properties."""

FIELDS = "fields"
"""The field that says which fields of objects rows show, of kinds whose rows have objects."""

CONTINUOUS = (*CONDITIONS, "duration", "by")
"""The optional fields of every continuous query."""

SelectionClass = type[Selection]


class Route(Enum):
    """Which slots a query is sent to.

    Attributes:
        REGION: the slots with a leaf that intersects the query's region.
        NEAREST: the slot of the leaf nearest to ρ, then the slots within the radius of its answer (section 6.2).
        EVERYWHERE: all slots, including those without a leaf.
    """

    REGION = auto()
    NEAREST = auto()
    EVERYWHERE = auto()


@dataclass(frozen=True, slots=True)
class Wording:
    """What people read of a kind.

    Attributes:
        title: what it is called.
        summary: what its rows say, as a noun phrase.
        sentence: describes a query, as a template with ``{k}``, ``{near}`` (the point), ``{region}``, ``{having}`` (the
            text), ``{back}`` or ``{life}`` (the time range), ``{over}`` (the window), ``{every}`` (the step) and
            ``{about}`` (the words by which it ranks).
        row: what one row is, in the singular and the plural; empty if there is one row for a query.
    """

    title: str
    summary: str
    sentence: str
    row: tuple[str, str] | tuple[()] = ()


@dataclass(frozen=True)
class Kind:
    """A kind of query.

    Attributes:
        type: its name, in capitals and distinct from those of other kinds, by which records identify it.
        selection: what it selects. No two snapshot kinds select the same, and no two continuous ones.
        continuous: whether it is registered and matched against each arriving object; a snapshot is answered once.
        route: which slots the router stage sends it to. Only a continuous kind may be routed everywhere, and only a
            snapshot kind to the nearest.
        index: the index that answers it in the worker stage, a name in :data:`spatialstream.local.indexes.INDEXES`:
            ``objects`` for a snapshot kind, one of its own for a continuous kind.
        required: required fields, besides id, type and t.
        optional: optional fields.
        rows: the field of its rows that has the answer.
        wording: what people read of it.
        steps: whether it reports at steps, the last of which may coincide with the end of its lifetime.
    """

    type: str
    selection: SelectionClass
    continuous: bool
    route: Route
    index: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    rows: str
    wording: Wording
    steps: bool = False

    @cached_property
    def fields(self) -> frozenset[str]:
        """All fields that it takes, besides id, type and t."""
        return frozenset((*self.required, *self.optional))

    @property
    def has_point(self) -> bool:
        """Whether it is about a point (ρ), and not about a region, nor about a disk around the point."""
        return "at" in self.required and not self.is_ranked

    @property
    def is_ranked(self) -> bool:
        """Whether it ranks by words, among others; only in streams that count how rare words are."""
        return "words" in self.required

    @property
    def has_second_phase(self) -> bool:
        """Whether the answer of the slot that is asked first determines which other slots are asked."""
        return self.route is Route.NEAREST

    @property
    def has_places(self) -> bool:
        """Whether its answer is objects, which have coordinates."""
        return self.rows in ("objects", "object")

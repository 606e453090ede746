"""The kinds of queries, as the rows of one table: the fields, routing and index of each.

The kinds are the paper's six types (section 3.1). All code that depends on a query's kind reads this table; the order
of its rows has no meaning. In columns, a kind is a *code*, its row number, which is valid only within a process: stored
and sent data identifies kinds by name (:data:`NAMES`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

import numpy as np
import numpy.typing as npt

__all__ = ["CANCEL", "CODE", "KINDS", "NAMES", "STANDING", "TYPES", "Kind", "QueryType", "Route", "Selects", "having"]


class QueryType(StrEnum):
    """The six types: snapshot or continuous, combined with range-keyword, k nearest or top-k terms."""

    SRQ = "SRQ"
    SKQ = "SKQ"
    STQ = "STQ"
    CRQ = "CRQ"
    CKQ = "CKQ"
    CTQ = "CTQ"


class Selects(Enum):
    """What a query selects from the objects that match its predicate."""

    OBJECTS = auto()
    NEAREST = auto()
    TERMS = auto()


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
class Kind:
    """A row of the table.

    Attributes:
        type: the query type.
        selects: what it selects.
        continuous: whether it is registered and matched against each arriving object; a snapshot is answered once.
        route: which slots the router stage sends it to.
        index: the index that answers it in the worker stage, a name in :data:`spatialstream.local.indexes.INDEXES`.
        required: required fields, besides id, type and t.
        optional: optional fields.
        steps: whether it reports at steps, the last of which may coincide with the end of its lifetime.
    """

    type: QueryType
    selects: Selects
    continuous: bool
    route: Route
    index: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    steps: bool = False


_TEXT = ("keywords", "any", "none")
_STANDING = (*_TEXT, "duration", "by")

KINDS = (
    Kind(QueryType.SRQ, Selects.OBJECTS, False, Route.REGION, "objects", ("region", "duration"), _TEXT),
    Kind(QueryType.SKQ, Selects.NEAREST, False, Route.NEAREST, "objects", ("at", "k", "duration"), _TEXT),
    Kind(QueryType.STQ, Selects.TERMS, False, Route.REGION, "objects", ("region", "k", "duration"), _TEXT),
    Kind(QueryType.CRQ, Selects.OBJECTS, True, Route.REGION, "range", ("region",), _STANDING),
    Kind(
        *(QueryType.CKQ, Selects.NEAREST, True, Route.EVERYWHERE, "nearest"),
        required=("at", "k"),
        optional=(*_STANDING, "window"),
    ),
    Kind(
        *(QueryType.CTQ, Selects.TERMS, True, Route.REGION, "terms"),
        required=("region", "k", "window", "step"),
        optional=_STANDING,
        steps=True,
    ),
)
"""The table."""

TYPES = tuple(kind.type for kind in KINDS)
"""The type of each code."""

CODE = {kind: code for code, kind in enumerate(TYPES)}
"""The code of each type."""

CANCEL = len(KINDS)
"""The code of a cancellation, which is not a kind of query."""

NAMES = (*(kind.value for kind in TYPES), "CANCEL")
"""The name of each code, as used in records."""


def having(test: Callable[[Kind], bool]) -> npt.NDArray[np.bool_]:
    """Whether ``test`` holds for the kind of each code, bool[codes]: to be indexed with a column of codes.

    False for cancellations.
    """
    return np.array([*map(test, KINDS), False])


STANDING = having(lambda kind: kind.continuous)
"""Whether each code is of a continuous query, bool[codes]."""

"""The kinds of queries: what each is asked with, where it goes, and what is done for it, as the rows of one table.

The paper's six types (section 3.1) are all that there is. Whatever depends on a query's kind asks the table; nothing
hangs on the order of its rows. In columns a kind is a *code*, its row, which is the same within a process only: what is
stored or sent names kinds (:data:`NAMES`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto

import numpy as np
import numpy.typing as npt

__all__ = ["CANCEL", "CODE", "KINDS", "NAMES", "STANDING", "TYPES", "Kind", "QueryType", "Route", "Selects", "having"]


class QueryType(StrEnum):
    """The six presets: snapshot or continuous, times range-keyword, k nearest, or top-k terms."""

    SRQ = "SRQ"
    SKQ = "SKQ"
    STQ = "STQ"
    CRQ = "CRQ"
    CKQ = "CKQ"
    CTQ = "CTQ"


class Selects(Enum):
    """What a query wants of the objects that its predicate holds for."""

    OBJECTS = auto()
    NEAREST = auto()
    TERMS = auto()


class Route(Enum):
    """Which slots a query concerns.

    Attributes:
        REGION: those with a leaf that its region meets.
        NEAREST: that of the leaf nearest to ρ, and then those within the radius that it gives (section 6.2).
        EVERYWHERE: all, whether or not they have a leaf.
    """

    REGION = auto()
    NEAREST = auto()
    EVERYWHERE = auto()


@dataclass(frozen=True, slots=True)
class Kind:
    """A row.

    Attributes:
        type: its name.
        selects: what it selects.
        continuous: whether it stands and meets each object that comes; otherwise it is a snapshot, answered once.
        route: where ROUTE sends it.
        index: what answers it in WORK, a name in :data:`spatialstream.local.indexes.INDEXES`.
        required: the fields that it must have, besides id, type and t.
        optional: those that it may have.
        steps: whether it reports at steps, the last of which may fall on the end of its life.
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
"""The code of a cancellation, which is no kind of query."""

NAMES = (*(kind.value for kind in TYPES), "CANCEL")
"""The name of each code, as records have it."""


def having(test: Callable[[Kind], bool]) -> npt.NDArray[np.bool_]:
    """Which codes are of a kind for which the test holds, bool[codes]: to be indexed with a column of codes.

    It holds for no cancellation.
    """
    return np.array([*map(test, KINDS), False])


STANDING = having(lambda kind: kind.continuous)
"""Which codes are of continuous queries."""

"""The kinds of queries, as the rows of one table.

Six of them are the types of SSTD (section 3.1), SBQ is the first query of Pastri (section 3), and CBQ its continuous
form. All code that depends
on a query's kind reads this table, or a table of its own layer by the names in this one; the order of the rows has no
meaning. In columns, a kind is a *code*, its row number, which is valid only within a process: stored and sent data
identifies kinds by name (:data:`NAMES`).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from spatialstream.model.kind import CONDITIONS, CONTINUOUS, FIELDS, Kind, Route, Wording
from spatialstream.model.plugins import plugged
from spatialstream.model.selections import Best, Everything, Nearest, TopTerms

__all__ = [
    "CANCEL",
    "CODE",
    "IS_CONTINUOUS",
    "KINDS",
    "NAMES",
    "TYPES",
    "Kind",
    "QueryType",
    "Route",
    "having",
    "kind_of",
    "listed",
]


class QueryType(StrEnum):
    """The types of the first paper: snapshot or continuous, combined with range-keyword, k nearest or top-k terms.

    They are named where a formula of the paper, or a benchmark, is about one of them. Other code takes any name in
    :data:`TYPES`.
    """

    SRQ = "SRQ"
    SKQ = "SKQ"
    STQ = "STQ"
    CRQ = "CRQ"
    CKQ = "CKQ"
    CTQ = "CTQ"


KINDS: tuple[Kind, ...] = (
    Kind(
        *("SRQ", Everything, False, Route.REGION, "objects"),
        required=("region", "duration"),
        optional=(*CONDITIONS, FIELDS),
        rows="objects",
        wording=Wording(
            "Range, once",
            "objects in a region",
            "Objects {region}{having}, {back}.",
            ("match", "matches"),
        ),
    ),
    Kind(
        *("SKQ", Nearest, False, Route.NEAREST, "objects"),
        required=("at", "k", "duration"),
        optional=(*CONDITIONS, FIELDS),
        rows="objects",
        wording=Wording(
            "Nearest, once", "the k objects nearest to a point", "The {k} objects nearest to {near}{having}, {back}."
        ),
    ),
    Kind(
        *("STQ", TopTerms, False, Route.REGION, "objects"),
        required=("region", "k", "duration"),
        optional=CONDITIONS,
        rows="terms",
        wording=Wording(
            "Top words, once",
            "the k most frequent words in a region",
            "The {k} terms found in most objects {region}{having}, {back}.",
        ),
    ),
    Kind(
        *("CRQ", Everything, True, Route.REGION, "range"),
        required=("region",),
        optional=(*CONTINUOUS, FIELDS),
        rows="object",
        wording=Wording(
            "Range, continuous",
            "each object in a region, as it arrives",
            "Each object {region}{having}, as it arrives, {life}.",
            ("match", "matches"),
        ),
    ),
    Kind(
        *("CKQ", Nearest, True, Route.EVERYWHERE, "nearest"),
        required=("at", "k"),
        optional=(*CONTINUOUS, "window", FIELDS),
        rows="objects",
        wording=Wording(
            "Nearest, continuous",
            "the k nearest objects, at each change",
            "The {k} objects{over} nearest to {near}{having}, at each change, {life}.",
            ("change", "changes"),
        ),
    ),
    Kind(
        *("CTQ", TopTerms, True, Route.REGION, "terms"),
        required=("region", "k", "window", "step"),
        optional=CONTINUOUS,
        rows="terms",
        wording=Wording(
            "Top words, continuous",
            "the k most frequent words in a region, at every step",
            "The {k} terms found in most objects{over} {region}{having}, every {every}, {life}.",
            ("step", "steps"),
        ),
        steps=True,
    ),
    Kind(
        *("SBQ", Best, False, Route.REGION, "objects"),
        required=("at", "k", "words", "radius"),
        optional=("halfLife", "between", "weights", "expansions", "weighting", *CONDITIONS, "duration", FIELDS),
        rows="objects",
        wording=Wording(
            "Best, once",
            "the k best objects by place, text and time",
            "The {k} best objects near {near} about {about}{having}, {back}.",
        ),
    ),
    Kind(
        *("CBQ", Best, True, Route.REGION, "best"),
        required=("at", "k", "words", "radius", "halfLife"),
        optional=("weights", *CONTINUOUS, "window", FIELDS),
        rows="objects",
        wording=Wording(
            "Best, continuous",
            "the k best objects by place, text and time, at each change",
            "The {k} best objects{over} near {near} about {about}{having}, at each change, {life}.",
            ("change", "changes"),
        ),
    ),
    *(kind for module in plugged("kinds") for kind in module.KINDS),
)
"""The table."""

TYPES = tuple(kind.type for kind in KINDS)
"""The type of each code."""

CODE = {kind: code for code, kind in enumerate(TYPES)}
"""The code of each type."""

CANCEL = len(KINDS)
"""The code of a cancellation, which is not a kind of query."""

NAMES = (*TYPES, "CANCEL")
"""The name of each code, as used in records."""

_KIND = {kind.type: kind for kind in KINDS}


def kind_of(name: object) -> Kind | None:
    """The kind of a name; None if there is none."""
    return _KIND.get(name) if isinstance(name, str) else None


def having(test: Callable[[Kind], bool]) -> npt.NDArray[np.bool_]:
    """Whether ``test`` holds for the kind of each code, bool[codes]: to be indexed with a column of codes.

    False for cancellations.
    """
    return np.array([*map(test, KINDS), False])


def listed(test: Callable[[Kind], bool]) -> str:
    """The names of the kinds for which ``test`` holds, for a sentence: ``SRQ, SKQ or STQ``."""
    *names, last = (kind.type for kind in KINDS if test(kind))
    return f"{', '.join(names)} or {last}" if names else last


IS_CONTINUOUS = having(lambda kind: kind.continuous)
"""Whether each code is of a continuous query, bool[codes]."""

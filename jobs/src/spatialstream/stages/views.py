"""The views in this process: the objects of its slots after their last rounds, and registered continuous queries.

WORK keeps a view at the end of each round. A snapshot query names a round that is done, so all slots answer it as of
that round, while WORK does the next one in another thread (multiversion concurrency control). A view is dropped when it
is neither one of the last few nor young; a query that is reading it keeps it until its end.

A query is answered correctly, or not at all: a missing view (it was dropped, the slot is elsewhere, the process is new)
is an error that says so, and the client tries again with the newest round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from spatialstream.local.catalogue import Catalogue, Listing, Page
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.local.snapshot.views import ObjectsView
from spatialstream.model.errors import Gone
from spatialstream.stages.turns import Round

__all__ = [
    "FEWEST",
    "YOUNG",
    "ListingView",
    "View",
    "forget",
    "keep",
    "listed",
    "newest_view",
    "rounds",
    "view_of",
    "views_here",
]

FEWEST = 4
"""Number of views of a slot that are kept, however old they are: a stream in which nothing happens can be queried."""

YOUNG = 5.0
"""Seconds for which a view is kept in any case: enough for a query to get from its first slot to its last."""

RoundId = tuple[int, int]
"""Number of a round, and the revision in which it was done."""


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A slot after a round.

    Attributes:
        round: its number and revision.
        watermark: all records with this timestamp or an earlier one have arrived.
        objects: of the slot.
        retention: ms that snapshot queries can look back; None: for ever.
        kept: when it was created, s of the monotonic clock.
    """

    round: RoundId
    watermark: int
    objects: ObjectsView
    retention: int | None
    kept: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, objects: SegmentStore, turn: Round, retention: int | None) -> View:
        """The view of a slot that has just done a round, or was restored to the state after it."""
        return cls((turn.number, turn.revision), turn.watermark, objects.view(), retention)


@dataclass(frozen=True, slots=True, eq=False)
class ListingView:
    """The continuous queries of a part of MERGE after a round.

    Attributes:
        round: its number and revision.
        listing: of its queries.
        kept: see :class:`View`.
    """

    round: RoundId
    listing: Listing
    kept: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, catalogue: Catalogue, turn: Round) -> ListingView:
        """The view of a part that has just done a round, or was restored to the state after it."""
        return cls((turn.number, turn.revision), catalogue.listing(turn.watermark))


_lock = threading.Lock()
_views: dict[tuple[str, int], tuple[View | ListingView, ...]] = {}
"""(place, slot) -> views, by round; a part of MERGE is under ``~part``."""


def keep(place: str, slot: int, view: View | ListingView) -> None:
    """Add a view, replacing one of the same round, and drop expired views.

    Args:
        place: of the storage of the slot's state.
        slot: number of the slot; ``~part`` for a part of MERGE.
        view: of it.
    """
    with _lock:
        others = (each for each in _views.get((place, slot), ()) if each.round[0] != view.round[0])
        known = sorted([*others, view], key=lambda each: each.round)
        _views[place, slot] = tuple(
            each for i, each in enumerate(known, FEWEST - len(known)) if i >= 0 or each.kept + YOUNG > view.kept
        )


def forget(place: str | None = None, slot: int | None = None) -> None:
    """Drop all views: of one place, or of one slot there, for example when it moves to another process."""
    with _lock:
        for key in list(_views):
            if place in (None, key[0]) and slot in (None, key[1]):
                del _views[key]


def view_of(place: str, slot: int, round_id: RoundId) -> View:
    """A slot's view of a round.

    Raises:
        Gone: it is not here.
    """
    view = _of_round(place, slot, round_id)
    assert isinstance(view, View)
    return view


def views_here(place: str, slots: Iterable[int], round_id: RoundId) -> dict[int, View]:
    """The views of a round that are here, of some slots."""
    found = {}
    for slot in slots:
        with suppress(Gone):
            found[slot] = view_of(place, slot, round_id)
    return found


def newest_view(place: str, slot: int) -> RoundId | None:
    """The last round, done or not, whose view of a slot is in this process; None: no view is."""
    known = _views.get((place, slot))
    return known[-1].round if known else None


def listed(place: str, part: int, round_id: RoundId, asked: Mapping[str, Any]) -> Page:
    """The continuous queries of a part of MERGE as of a round, by number.

    Args:
        place: of the storage of its state.
        part: one that this process has.
        round_id: of a round that is done.
        asked: ``{"id": ...}`` for the query with an id, or ``{"after": number, "limit": n}`` for the first n queries
            after a number, or fewer if these are large.

    Raises:
        Gone: the view is not here.
    """
    view = _of_round(place, ~part, round_id)
    assert isinstance(view, ListingView)
    if "id" in asked:
        found = view.listing.named(str(asked["id"]))
        return Page([] if found is None else [found], cut=False)
    return view.listing.page(int(asked["after"]), int(asked["limit"]))


def _of_round(place: str, slot: int, round_id: RoundId) -> View | ListingView:
    for view in _views.get((place, slot), ()):
        if view.round == round_id:
            return view
    raise Gone(f"slot {slot} has no view of round {round_id[0]} here: try again with the newest round")


def rounds(place: str, slot: int) -> list[RoundId]:
    """The rounds of which this process has a view of a slot."""
    return [each.round for each in _views.get((place, slot), ())]

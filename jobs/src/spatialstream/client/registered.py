"""Continuous queries as a stream has them registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["RegisteredQueries"]


@dataclass(frozen=True, slots=True)
class RegisteredQueries:
    """A page of registered continuous queries.

    Attributes:
        queries: their records, in the order of registration; ``t`` is the time since which a query is registered, and
            ``by`` who registered it, if known.
        last: key of the last of them, for the next page; None: there is none.
        as_of: the round, and the stream's clock then.
        so_far: for each query its ``rows`` since registration (a row sent in parts counts once), and ``last_row``, the
            largest ``t`` of them in ms, None if there are none.
        cut: whether it has fewer queries than were wanted because their polygons are large, and there are further ones.
    """

    queries: list[dict[str, Any]]
    last: int | None
    as_of: dict[str, int]
    so_far: list[dict[str, Any]]
    cut: bool = False

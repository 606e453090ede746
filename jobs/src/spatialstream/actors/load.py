"""Recent work of items, as their actors report it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

__all__ = ["Load"]

_KEPT = 0.5
"""Factor by which earlier work decays with each update."""


class _Worker(Protocol):
    name: str
    worked: dict[int, float]


class Load:
    """The work of items.

    Attributes:
        lately: seconds of work of items, decayed with age.
    """

    def __init__(self) -> None:
        self.lately: dict[int, float] = {}
        self._seen: dict[tuple[str, int], float] = {}

    def update(self, actors: Iterable[_Worker]) -> Mapping[int, float]:
        """Update from what actors have reported; returns the work of each item since the last update."""
        work_times = {(actor.name, item): seconds for actor in actors for item, seconds in actor.worked.items()}
        new: dict[int, float] = {}
        for (name, item), seconds in work_times.items():
            new[item] = new.get(item, 0.0) + seconds - self._seen.get((name, item), 0.0)
        self.lately = {
            item: _KEPT * self.lately.get(item, 0.0) + new.get(item, 0.0) for item in self.lately.keys() | new.keys()
        }
        self._seen = work_times
        return new

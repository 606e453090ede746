"""What has been asked of a live stream and may still be answered: decisions alone, without a clock or a broker.

A snapshot query waits for its one row. A continuous query waits for more until its time is over, and is then cancelled
by whoever asked. A query that was rejected waits for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spatialstream.model.queries import Cancellation, Query

__all__ = ["Awaited"]

_PLAIN = re.compile(r"[A-Za-z0-9_.:-]+")
"""Ids that JSON writes as they are."""
_MOST_LOOKS = 16


@dataclass(slots=True)
class Awaited:
    """What has been asked and may still be answered; times are in ms since 1970 UTC.

    Attributes:
        snapshots: the snapshot queries without an answer, by id.
        standing: the continuous queries that may give more rows, by id.
        refused: reasons of queries that were rejected, by id.
        latest: the latest time of a row, by id.
        rows: rows that have come.
        failed: how many of them say why there is no answer.
    """

    snapshots: dict[str, Query] = field(default_factory=dict)
    standing: dict[str, Query] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    failed: int = 0

    @classmethod
    def of(cls, asked: Iterable[Query | Cancellation]) -> Awaited:
        """What is awaited after these have been sent."""
        queries = [query for query in asked if isinstance(query, Query)]
        return cls(
            {query.id: query for query in queries if not query.lifetime.continuous},
            {query.id: query for query in queries if query.lifetime.continuous},
        )

    @property
    def done(self) -> bool:
        """Whether nothing is awaited."""
        return not self.snapshots and not self.standing

    def may_concern(self, line: bytes) -> bool:
        """Whether a row, not parsed yet, may be an answer: a quick look, since most rows are other people's."""
        names = [*self.snapshots, *self.standing]
        return len(names) > _MOST_LOOKS or any(not _PLAIN.fullmatch(name) or name.encode() in line for name in names)

    def take(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is an answer; then it is not awaited any more."""
        name, t = row["query"], row["t"]
        if (query := self.snapshots.get(name)) is not None:
            if (row["type"], t) != (query.type.value, query.t):
                return False
            del self.snapshots[name]
        elif (query := self.standing.get(name)) is None or row["type"] != query.type.value or t < query.t:
            return False
        self.latest[name] = max(t, self.latest.get(name, t))
        self.rows += 1
        self.failed += "error" in row
        return True

    def refuse(self, name: str, reason: str) -> None:
        """A query was rejected."""
        self.snapshots.pop(name, None)
        self.standing.pop(name, None)
        self.refused[name] = reason

    def expire(self, now: int, grace: int) -> None:
        """Queries that stand by the clock, and whose time has been over for ``grace`` ms, give no more rows."""
        for query in list(self.standing.values()):
            if query.t + query.lifetime.duration + grace <= now:
                del self.standing[query.id]

    def cancellations(self, now: int, stamped: bool) -> list[Cancellation]:
        """What ends the queries that stand.

        Args:
            now: the time.
            stamped: whether their times are those of the clock. If not, they end with the latest row: the clock of a
                stream of another time is not to be moved to now.
        """
        return [
            Cancellation(query.id, max(query.t, now if stamped else self.latest.get(query.id, query.t)))
            for query in self.standing.values()
        ]

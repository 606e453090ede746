"""Streams for the tests: cut into parts that are sent one after another, with the oracle's answers up to each part."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spatialstream.cli.demo import OBJECTS, QUERIES
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import DEFAULT_RULE, TermRule
from spatialstream.oracle import answers, check
from spatialstream.oracle.files import read_objects, read_queries

__all__ = ["Bounds", "Part", "Story"]

BEGIN = 1_767_225_600_000
"""2026-01-01, 00:00 UTC: when what is drawn begins."""

Bounds = tuple[float, float, float, float]
"""West, south, east, north."""

_WORDS = ("storm", "flood", "fire", "quake", "road", "closed", "help", "water", "power", "bridge", "rain", "school")
_PACE = 40
"""Mean time between two objects, in ms of the stream."""


@dataclass(frozen=True)
class Part:
    """A part of a stream, as JSON Lines."""

    objects: bytes
    queries: bytes


@dataclass
class Story:
    """A stream as it has been sent so far, and what it has answered.

    Attributes:
        seed: of what is drawn.
        space: the stream's.
        rule: the stream's.
        folder: for files.
    """

    seed: int
    folder: Path
    space: Space = WGS84
    rule: TermRule = DEFAULT_RULE
    objects: list[SpatialObject] = field(default_factory=list)
    queries: list[Query | Cancellation] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    t: int = BEGIN

    def take(self, part: Part) -> Part:
        """A part that is going to be sent: the oracle is told of it, by its own readers."""
        for name, content in (("objects.jsonl", part.objects), ("queries.jsonl", part.queries)):
            (self.folder / name).write_bytes(content)
        refused: list[Any] = []
        self.objects += [
            each
            for _, each in read_objects([self.folder / "objects.jsonl"], self.space, self.rule, reject=refused.append)
        ]
        self.queries += [
            each
            for _, each in read_queries([self.folder / "queries.jsonl"], self.space, self.rule, reject=refused.append)
        ]
        assert not refused
        self.t = max(each.t for each in (*self.objects, *self.queries)) + 1
        return part

    def earthquakes(self) -> Part:
        """The real earthquakes of the demonstration, with its queries."""
        return self.take(Part(OBJECTS.read_bytes(), QUERIES.read_bytes()))

    def draw(self, count: int, bounds: Bounds, each: int = 2, hot: int = 0) -> Part:
        """Draw the next part, and take it.

        Args:
            count: objects.
            bounds: where they are.
            each: queries of each type, from the beginning of the part on.
            hot: more continuous range queries, at its beginning.
        """
        draw = random.Random(self.seed * 1_000_003 + len(self.objects))
        begin = t = max(self.t, BEGIN)
        objects: list[dict[str, Any]] = []
        for _ in range(count):
            t += draw.randrange(1, 2 * _PACE)
            x, y = _place(draw, bounds)
            names = self.space.axes
            words = " ".join(draw.sample(_WORDS, draw.randrange(1, 5)))
            record = {"id": f"o{len(self.objects) + len(objects)}", "t": t, names[0]: x, names[1]: y, "text": words}
            objects.append(record)
        queries = [_query(draw, kind, begin, t, bounds) for kind in _KINDS for _ in range(each)]
        queries += [_query(draw, "CRQ", begin, begin + 1, bounds) for _ in range(hot)]
        for number, query in enumerate(queries):
            query["id"] = f"q{len(self.queries) + number}"
        return self.take(Part(_lines(objects), _lines(sorted(queries, key=lambda query: query["t"]))))

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The rows that there have to be, up to the last mark."""
        rows, refused = answers(self.objects, self.queries, self.space)
        assert not refused
        return [dict(row) for row in rows if row["t"] < self.t]

    def differences(self) -> list[str]:
        """Where the rows that have come are not the oracle's."""
        return [str(each) for each in check(self.rows, self.expected, 5)]


_KINDS = ("SRQ", "SKQ", "STQ", "CRQ", "CKQ", "CTQ")


def _place(draw: random.Random, bounds: Bounds) -> tuple[float, float]:
    west, south, east, north = bounds
    return round(draw.uniform(west, east), 5), round(draw.uniform(south, north), 5)


def _query(draw: random.Random, kind: str, first: int, last: int, bounds: Bounds) -> dict[str, Any]:
    """A query of a kind: snapshots in the part's second half, continuous ones in its first."""
    west, south, east, north = bounds
    middle = (first + last) // 2
    t = draw.randrange(middle, last) if kind[0] == "S" else draw.randrange(first, max(middle, first + 1))
    query: dict[str, Any] = {"type": kind, "t": t, "duration": draw.choice([60_000, 600_000, 3_600_000])}
    x, y = _place(draw, bounds)
    if kind[1] == "K":
        query |= {"at": [x, y], "k": draw.choice([1, 3, 5])}
    else:
        wide, high = draw.choice([0.1, 0.4]) * (east - west), draw.choice([0.1, 0.4]) * (north - south)
        query["region"] = {"box": [x, y, min(x + wide, east), min(y + high, north)]}
    if kind[1] == "T":
        query["k"] = draw.choice([1, 3, 5])
    else:
        query["keywords"] = draw.sample(_WORDS, draw.randrange(1, 3))
    if kind == "CTQ":
        query |= {"window": 30_000, "step": 20_000}
    if kind == "CKQ" and draw.random() < 0.5:
        query["window"] = 30_000
    return query


def _lines(records: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)

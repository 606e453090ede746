"""Measurement of the age of results on arrival.

A result row carries the timestamp of the object or query that caused it. If these are stamped with the current time
when they are sent, the row's age on arrival is the latency from production to result.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from spatialstream.client.results import Results
from spatialstream.connectors.kafka import Connection

__all__ = ["Latencies", "Watch"]

_ROW = re.compile(rb'"query": ("(?:[^"\\]|\\.)*"), "type": "([A-Z]{3})", "t": (-?\d+)')


@dataclass(slots=True)
class Latencies:
    """Ages of result rows on arrival, ms. Of the CRQ matches in a message only a sample is measured.

    Attributes:
        since: ages of rows with earlier timestamps are not measured.
        every: measure every so-many-th CRQ match of a message: they all arrived at the same time.
        own: whether a row counts, by its query's id and type; None: all do.
        ages: measured ages by query type.
        rows: number of rows by query type.
    """

    since: int = 0
    every: int = 16
    own: Callable[[str, str], bool] | None = None
    ages: dict[str, list[float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)

    def take(self, value: bytes, now: float) -> None:
        """Measure the rows of a message that arrived at ``now``, ms."""
        matches = 0
        for row in _ROW.finditer(value):
            kind, t = row[2].decode(), int(row[3])
            if self.own is not None and not self.own(json.loads(row[1]), kind):
                continue
            self.rows[kind] = self.rows.get(kind, 0) + 1
            matches += kind == "CRQ"
            if t >= self.since and (kind != "CRQ" or (matches - 1) % self.every == 0):
                self.ages.setdefault(kind, []).append(now - t)

    def percentiles(self) -> dict[str, dict[str, float]]:
        """Return for each query type the number of ``measured`` rows, and ``p50``, ``p95``, ``p99`` in ms."""
        names, shares = ("p50", "p95", "p99"), (50, 95, 99)
        return {
            kind: {"measured": len(ages)} | dict(zip(names, np.percentile(ages, shares).tolist(), strict=True))
            for kind, ages in sorted(self.ages.items())
        }


class Watch:
    """Measures latencies from a stream's results in a thread of its own, until the context manager exits."""

    def __init__(self, connection: Connection, stream: str, latencies: Latencies | None = None) -> None:
        self.latencies = latencies or Latencies(int(time.time() * 1000))
        self._results = Results(connection, stream, newest=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="results", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(10)
        self._results.close()

    def _run(self) -> None:
        for value in self._results.messages(self._ended.is_set):
            self.latencies.take(value, time.time() * 1000)

    def settle(self, patience: float) -> None:
        """Wait until no result has arrived for ``patience`` seconds."""
        seen, since = -1, time.monotonic()
        while time.monotonic() - since < patience:
            now = sum(self.latencies.rows.values())
            if now != seen:
                seen, since = now, time.monotonic()
            time.sleep(0.1)

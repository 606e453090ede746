"""The result rows of a round, as MERGE collects them from all kinds of queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.local.row_counts import Counts, RowCounts
from spatialstream.model.space import Space
from spatialstream.stages import messages
from spatialstream.stages.external_sort import Spool
from spatialstream.stages.rows import RowLimits

__all__ = ["BEST_CHANGE", "CHANGE", "MATCH", "SNAPSHOT", "STEP", "RowLines", "RowSink"]

MATCH, CHANGE, BEST_CHANGE, SNAPSHOT, STEP = range(5)
"""Classes of rows with one timestamp, in the order in which they are written."""


class RowLines:
    """Takes lines with their keys (t, class, rank), and returns them in order."""

    def __init__(self) -> None:
        self._spool = Spool("key", "rank", "tie")
        self.counts: dict[str, int] = {}

    @property
    def rows(self) -> int:
        """The number of lines."""
        return self._spool.rows

    def add(
        self,
        kind: str,
        t: npt.NDArray[np.int64],
        row_class: int,
        rank: npt.NDArray[np.int64],
        lines: pa.StringArray | pa.LargeStringArray,
        row: npt.NDArray[np.int64] | None = None,
        tie: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Add lines of one class; equal (t, rank, tie) keep the order in which they are added.

        Args:
            kind: type of the queries.
            t: the time of each row.
            row_class: one of the five.
            rank: of each row.
            lines: its text.
            row: the row of each line, if rows have several; None: one each.
            tie: of each row, by which those with equal rank are ordered if they are from several slots; None: they are
                from one.
        """
        if len(lines):
            # |t| is below 2**53, so one integer holds (t, class); 64-bit offsets, because chunks are put together
            key, texts = t * 8 + row_class, pc.cast(lines, pa.large_string())
            if row is not None:
                key, rank = key[row], rank[row]
            tie = np.zeros(len(key), np.int64) if tie is None else tie
            self._spool.add(messages.columns(key=key, rank=rank, tie=tie, line=texts))
            self.counts[kind] = self.counts.get(kind, 0) + len(t)

    def close(self) -> None:
        """Discard lines that nobody wants."""
        self._spool.close()

    def __iter__(self) -> Iterator[pa.LargeStringArray]:
        """All lines in order; can be iterated over once."""
        for table in self._spool:
            yield table.column("line").combine_chunks()


@dataclass(frozen=True, slots=True, eq=False)
class RowSink:
    """Takes the rows of continuous queries.

    Attributes:
        lines: takes their lines.
        counted: takes the number of rows of each query, whether or not their lines are wanted.
        space: of the stream.
        limits: maximum length of rows; None: unlimited.
        state_only: the rows have been published: they are counted, and no lines are made.
    """

    lines: RowLines
    counted: RowCounts
    space: Space
    limits: RowLimits | None
    state_only: bool

    def count(self, number: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> None:
        """Count one row for each number, with its time."""
        self.counted.add(Counts.of(number, t))

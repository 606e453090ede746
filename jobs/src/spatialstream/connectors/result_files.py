"""A sink of files: the rows of each round are one file of JSON Lines, which a repetition of the round overwrites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from spatialstream.connectors.delivery import with_newlines
from spatialstream.connectors.disk import whole_file

__all__ = ["ResultFiles"]

_LETTERS = 1_000
"""Dead letters that are written at a time."""


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """See :class:`~spatialstream.connectors.contracts.Sink`. No file is written for no rows.

    Attributes:
        results: folder of rows: ``epoch-000000017.jsonl``, and ``epoch-000000017_1.jsonl`` of a second phase. Read in
            the order of their names, files contain the rows in order. Parts of MERGE after the first have folders
            ``part-0001`` of their own.
        dead: folder of dead letters: ``input-000000017.jsonl`` of an epoch, ``epoch-000000017.jsonl`` of a round.
    """

    results: Path
    dead: Path

    def rows(self, turn: int, phase: int, lines: Iterable[pa.LargeStringArray], part: int = 0) -> int:
        """See :class:`~spatialstream.connectors.contracts.Sink`."""
        folder = self.results / f"part-{part:04d}" if part else self.results
        return _write(folder / f"epoch-{turn:09d}{f'_{phase}' if phase else ''}.jsonl", lines)

    def rejected(self, turn: int, stage: str, letters: Iterable[str]) -> None:
        """See :class:`~spatialstream.connectors.contracts.Sink`."""
        name = "input" if stage == "input" else "epoch"
        rest = iter(letters)
        pieces = iter(lambda: pa.array(islice(rest, _LETTERS), pa.large_string()), pa.array([], pa.large_string()))
        _write(self.dead / f"{name}-{turn:09d}.jsonl", pieces)


def _write(path: Path, lines: Iterable[pa.LargeStringArray]) -> int:
    """Write lines to a file, unless there are none; returns their number."""
    pieces: Iterator[pa.LargeStringArray] = filter(len, lines)
    first = next(pieces, None)
    if first is None:
        return 0
    count = 0
    with whole_file(path) as file:
        for piece in chain([first], pieces):
            file.write(_text(with_newlines(piece)))
            count += len(piece)
    return count


def _text(lines: pa.LargeStringArray) -> memoryview:
    """The bytes of all strings of an array, one after the other."""
    _, offsets, data = lines.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(lines) + 1, lines.offset * 8)
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])]

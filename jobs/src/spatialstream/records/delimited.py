"""Text with columns: CSV, and text that semicolons, tabs or bars separate, with a header or without.

Cells are read by the standard library. A quoted empty cell is absent, as one without quotes is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import BinaryIO

from spatialstream.model.errors import RecordError, SettingError
from spatialstream.records.layout import SEPARATORS, InputLayout

__all__ = ["DelimitedRecords", "found_separator"]

_LOOKED_AT = 20

_Row = tuple[int, list[str] | RecordError]


def found_separator(lines: Sequence[str], header: bool = True) -> str:
    """The character that separates the columns of a text file: the commonest of its header.

    Without a header, of those that are as often in each of the first lines.
    """
    filled = [line for line in lines if line.strip()][: 1 if header else _LOOKED_AT] or [""]
    counts = {mark: [line.count(mark) for line in filled] for mark in SEPARATORS}
    even = {mark: each[0] for mark, each in counts.items() if min(each) == max(each) > 0}
    chosen = even or {mark: each[0] for mark, each in counts.items()}
    return max(SEPARATORS, key=lambda mark: chosen.get(mark, 0))


class DelimitedRecords:
    """The records of a text file: (line at which it begins, cells by column, what is wrong with it) of each.

    Args:
        file: the text, in UTF-8. Other bytes become halves of surrogate pairs.
        layout: how it is laid out.

    Attributes:
        separator: what separates the columns.
        quoted: whether ``"`` encloses cells.
        header: names of the columns; empty of an empty file.

    Raises:
        SettingError: the header is no record.
    """

    def __init__(self, file: BinaryIO, layout: InputLayout) -> None:
        text = (raw.decode(errors="surrogateescape").removeprefix("\ufeff") for raw in file)
        first = list(islice(text, _LOOKED_AT))
        self.separator = layout.separator or found_separator(first, layout.header)
        self.quoted = self.separator != "\t" if layout.quotes is None else layout.quotes
        quoting = {} if self.quoted else {"quoting": csv.QUOTE_NONE}
        self._reader = csv.reader(chain(first, text), delimiter=self.separator, strict=True, **quoting)  # type: ignore[arg-type]
        self._rows = self._read()
        self._ahead: list[_Row] = []
        start = next(self._rows, None)
        cells = start[1] if start else []
        if isinstance(cells, RecordError):
            raise SettingError("header", cells.problem)
        self.header = tuple(cells) if layout.header else tuple(str(i + 1) for i in range(len(cells)))
        if not layout.header and start is not None:
            self._ahead.append(start)

    def _read(self) -> Iterator[_Row]:
        while True:
            line = self._reader.line_num + 1
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, RecordError("record", f"is not a record of columns: {str(error).partition(' - ')[0]}")
                continue
            if cells:
                yield line, cells

    def __iter__(self) -> Iterator[tuple[int, object, RecordError | None]]:
        """The records in their order; only once."""
        for line, cells in chain(self._ahead, self._rows):
            if isinstance(cells, RecordError):
                yield line, None, cells
            elif len(cells) != len(self.header):
                there = f"has {len(cells)} cells; the file has {len(self.header)} columns"
                yield line, cells, RecordError("record", there)
            else:
                yield line, {name: cell or None for name, cell in zip(self.header, cells, strict=True)}, None

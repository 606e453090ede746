"""Text tables for terminals."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

__all__ = ["aligned", "counted", "ratio"]


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Format the lines of a table; columns are left-aligned, except those in ``right``."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            f"{cell:>{width}}" if i in right else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return [line(head), *map(line, rows)]


def ratio(value: float) -> str:
    """Format a ratio of loads, which may be infinite."""
    return "∞" if math.isinf(value) else f"{value:.2f}"


def counted(count: float, one: str, many: str) -> str:
    """Format a count and what is counted, in the singular or the plural."""
    return f"{count:,.0f} {one if count == 1 else many}"

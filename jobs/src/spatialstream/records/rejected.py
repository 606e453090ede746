"""Rejected records: where they are, why, and an echo of bounded length, as dead letters have them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from spatialstream.model.errors import RecordError

__all__ = ["LONGEST_ECHO", "REJECTED", "printable", "quoted", "rejected_line", "rejected_rows", "shortened"]

REJECTED = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("record", pa.string(), nullable=False),
    ]
)
"""Rejected records: where, why, and what, the record as JSON text."""

LONGEST_ECHO = 2_000
"""Most characters of a rejected record (and of a reason) to keep, so that dead letters stay small."""


_LONGEST_RECORD = 6 * (LONGEST_ECHO + 1) + 2
"""Most characters of such an echo as JSON."""


def rejected_line(source: str, line: int, reason: str, record: str, offset: int | None = None) -> str:
    """The dead letter of one row of :attr:`Decoded.rejected`, as a line of JSON without its newline.

    It has a bounded length: of a long reason or record there is the beginning, of the record as a string.

    Args:
        source: the file or topic partition.
        line: the line in the file, or in the message.
        reason: which field is wrong, and what would be right.
        record: the record as JSON.
        offset: the message's offset in its topic partition.
    """
    place = (
        {"source": source}
        | ({} if offset is None else {"offset": offset})
        | {"line": line, "reason": shortened(reason)}
    )
    where = json.dumps(place, ensure_ascii=False)
    if len(record) > _LONGEST_RECORD:
        record = quoted(record)
    return f'{where[:-1]}, "record": {record}}}'


def shortened(text: str) -> str:
    """A text, or its beginning."""
    return text if len(text) <= LONGEST_ECHO else text[:LONGEST_ECHO] + "…"


def printable(text: str) -> str:
    """Replace halves of surrogate pairs in a text."""
    return text.encode(errors="backslashreplace").decode()


def quoted(text: str) -> str:
    """A text, or its beginning, as a JSON string."""
    return json.dumps(shortened(text), ensure_ascii=False)


def rejected_rows(rows: Sequence[tuple[int, RecordError, str]]) -> pa.RecordBatch:
    """Rows (line, what is wrong, echo) as :data:`REJECTED`."""
    reasons = [printable(shortened(str(error))) for _, error, _ in rows]
    columns = [row[0] for row in rows], reasons, [row[2] for row in rows]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, REJECTED, strict=True)], schema=REJECTED
    )

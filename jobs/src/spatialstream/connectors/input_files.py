"""A source of static files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spatialstream.connectors.contracts import Ranges, Records
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import check_times
from spatialstream.records.files import Chunk, Kind, decode_chunk, plan
from spatialstream.records.layout import InputLayout
from spatialstream.records.reference import Decoded

__all__ = ["InputFiles"]

_LOOKED_AT = 32
"""Approximate maximum of files whose times are checked."""


@dataclass(frozen=True, slots=True)
class InputFiles:
    """See :class:`~spatialstream.connectors.contracts.Source`.

    Each chunk (:func:`spatialstream.records.files.plan`) is a partition of its own, of which it is the only record:
    so chunks are read concurrently, and all of them exist from the start.

    Attributes:
        chunks: of each kind, in the order of the input.
        space: of the objects.
        rule: term extraction.
        columns: our field name -> name in the input, for objects.
        unit: of numeric times.
        object_unit: of those of objects; None: the same.
    """

    chunks: Mapping[Kind, Sequence[Chunk]]
    space: Space
    rule: TermRule
    columns: Mapping[str, str] = field(default_factory=dict)
    unit: str = "ms"
    object_unit: str | None = None

    @classmethod
    def of(
        cls,
        objects: Sequence[Path],
        queries: Sequence[Path],
        space: Space,
        rule: TermRule,
        columns: Mapping[str, str],
        unit: str = "ms",
        layout: InputLayout | None = None,
    ) -> InputFiles:
        """A source of files, of which those of objects may have a layout of their own.

        Raises:
            SettingError: one of them cannot be read, or lacks a column.
        """
        chunks: dict[Kind, Sequence[Chunk]] = {
            "objects": plan(objects, columns, "objects", space=space, layout=layout),
            "queries": plan(queries, None, "queries", space=space),
        }
        return cls(chunks, space, rule, dict(columns), unit, None if layout is None else layout.time_unit)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(chunk.size for chunks in self.chunks.values() for chunk in chunks)

    def bounds(self) -> Ranges:
        """See :class:`~spatialstream.connectors.contracts.Source`."""
        return {f"{kind}/{i}": (0, 1) for kind, chunks in self.chunks.items() for i in range(len(chunks))}

    def read(self, partition: str, start: int, end: int) -> Iterator[Records]:
        """See :class:`~spatialstream.connectors.contracts.Source`."""
        kind, _, number = partition.partition("/")
        for chunk in [self.chunks[kind][int(number)]][start:end]:  # type: ignore[index]  # a name is made of its kind
            for decoded in self._decoded(chunk, kind):  # type: ignore[arg-type]
                yield Records(chunk.source, decoded)

    def _decoded(self, chunk: Chunk, kind: Kind) -> Iterator[Decoded[Any]]:
        if kind == "queries":
            return decode_chunk(chunk, kind, self.space, self.rule, {}, self.unit)
        return decode_chunk(chunk, kind, self.space, self.rule, self.columns, self.object_unit or self.unit)

    def check_times(self) -> None:
        """Check that the times of the first records of files, and of properties, do not look like another unit than ms.

        Of many files only some are checked.

        Raises:
            SettingError: they look so.
        """
        for kind, chunks in self.chunks.items():
            firsts = list({chunk.source: chunk for chunk in reversed(chunks)}.values())
            for chunk in firsts[:: -(-len(firsts) // _LOOKED_AT) or 1]:
                for decoded in self._decoded(chunk, kind):
                    where = f" in {Path(chunk.source).name}"
                    check_times(decoded.batch.t, kind, where)
                    if isinstance(decoded.batch, ObjectBatch):
                        for name, t in decoded.batch.properties.times():
                            check_times(t, kind, where, name)
                    break

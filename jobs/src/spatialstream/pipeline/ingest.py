"""Messages of a broker become runs: decoded, sorted by time, written where ROUTE finds them.

A message holds one record or many (JSON Lines). A message with the key ``clock`` is a mark (``{"clock": t}``): nothing
earlier than t follows in its partition. A record that cannot be used becomes a dead letter that names topic partition,
offset, and line within the message; a line that is too long likewise, because a block with it might not fit into a
message downstream.

Everything is named after epoch, topic partition and block, so a task that is tried twice overwrites equal files. An
epoch that is tried twice may read other messages the second time, for more have come, while a task of the first time is
still at work: so each try has a name of its own, which its files bear.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.model.arrays import numpy_view
from spatialstream.model.decode import LONGEST_ECHO, Decoded, decode_objects, decode_queries, rejected_line
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.pipeline.files import write_whole
from spatialstream.pipeline.order import write_run
from spatialstream.pipeline.plan import Run, pack_place, unpack_place

__all__ = ["CLOCK", "Ingest", "Intake", "mark"]

CLOCK = b"clock"
"""Key of the messages that are marks."""

_BLOCK_BYTES = 64 << 20
_ECHOED_TERMS = 50
_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)


def mark(t: int) -> bytes:
    """The value of a mark: nothing earlier than t follows in its partition."""
    return json.dumps({"clock": t}).encode()


@dataclass(frozen=True, slots=True)
class Intake:
    """What one block of one topic partition has given: all that the driver sees of it.

    Attributes:
        partition: such as ``"objects/0"``.
        clock: the largest timestamp or mark; None if there is none.
        run: the run, if any record was accepted.
        rejected: name of the file of dead letters, if there are any.
        records: records accepted.
        refused: records rejected.
        last: offset of the last message.
    """

    partition: str
    clock: int | None
    run: Run | None
    rejected: str
    records: int
    refused: int
    last: int

    def to_json(self) -> str:
        """As a line of JSON."""
        run = None if self.run is None else self.run.to_json()
        return json.dumps([self.partition, self.clock, run, self.rejected, self.records, self.refused, self.last])

    @classmethod
    def from_json(cls, text: str) -> Intake:
        """What :meth:`to_json` gave."""
        partition, clock, run, rejected, records, refused, last = json.loads(text)
        return cls(partition, clock, None if run is None else Run.from_json(run), rejected, records, refused, last)


@dataclass(frozen=True, slots=True)
class Ingest:
    """Batches of messages (topic, partition, offset, key, value) to intakes, as ``mapInArrow`` takes it.

    Attributes:
        epoch: number of the epoch.
        folder: where runs go.
        kinds: topic -> ``"objects"`` or ``"queries"``.
        space: of the stream.
        rule: which terms count.
        longest: bytes of a record beyond which it is rejected.
        floor: objects of that time and before are too old: retention has dropped what was with them; None: none are.
        ceiling: records of later times are from the future; None: none are.
        attempt: which try of the epoch this is; "" where tries always read the same messages.
    """

    epoch: int
    folder: Path
    kinds: dict[str, str]
    space: Space
    rule: TermRule = field(default_factory=TermRule)
    longest: int = 1 << 20
    floor: int | None = None
    ceiling: int | None = None
    attempt: str = ""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row of JSON per block."""
        for intake in self.intakes(batches):
            yield pa.RecordBatch.from_pydict({"intake": pa.array([intake.to_json()])})

    def intakes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Intake]:
        """Decode all messages; those of one topic partition are in the order of their offsets."""
        blocks: dict[str, int] = {}
        for batch in batches:
            for piece in _pieces(batch):
                topic, number = piece.column("topic")[0].as_py(), piece.column("partition")[0].as_py()
                kind = self.kinds[topic]
                partition = f"{kind}/{number}"
                block = blocks[partition] = blocks.get(partition, -1) + 1
                name = f"{self.epoch:09d}-{kind}-{number:04d}-{block:04d}"
                yield self._decode(piece, kind, partition, f"{name}-{self.attempt}" if self.attempt else name)

    def _decode(self, piece: pa.RecordBatch, kind: str, partition: str, name: str) -> Intake:
        is_mark = pc.fill_null(pc.equal(piece.column("key"), CLOCK), False)
        marks = [_mark_time(value) for value in piece.column("value").filter(is_mark).to_pylist()]
        records = piece.filter(pc.and_(pc.invert(is_mark), pc.is_valid(piece.column("value"))))
        clock = max((t for t in marks if t is not None), default=None)
        letters: list[str] = []
        run = None
        if records.num_rows:
            offsets = numpy_view(records.column("offset"))
            data, starts = self._lines(records.column("value"), partition, offsets, letters)
            decoded: Decoded[Any] = (decode_objects if kind == "objects" else decode_queries)(
                data, 2, self.space, self.rule
            )
            places = _places(decoded.line - 2, starts, offsets)
            refused = numpy_view(decoded.rejected.column("line")) - 2
            places_refused = _places(refused, starts, offsets).tolist()
            for place, row in zip(places_refused, decoded.rejected.to_pylist(), strict=True):
                offset, line = unpack_place(place)
                letters.append(rejected_line(partition, line, row["reason"], row["record"], offset))
            batch, places = self._in_time(decoded.batch, places, partition, letters)
            if len(batch):
                times = write_run(self.folder / f"{name}.arrow", batch, places)
                run = Run(f"{name}.arrow", kind, len(batch), partition, times, len(letters), packed=True)
                clock = run.last if clock is None else max(clock, run.last)
        if letters:
            write_whole(self.folder / f"{name}.rejected", "".join(f"{letter}\n" for letter in letters).encode())
        last = int(piece.column("offset")[piece.num_rows - 1].as_py())
        rows = 0 if run is None else run.rows
        return Intake(partition, clock, run, f"{name}.rejected" if letters else "", rows, len(letters), last)

    def _in_time(
        self, batch: _Batch, places: npt.NDArray[np.int64], partition: str, letters: list[str]
    ) -> tuple[_Batch, npt.NDArray[np.int64]]:
        """Without the records that are too old or from the future."""
        late = np.zeros(len(batch), np.bool_)
        if self.floor is not None and isinstance(batch, ObjectBatch):
            late = batch.t <= self.floor
        future = np.zeros(len(batch), np.bool_) if self.ceiling is None else batch.t > self.ceiling
        refused = np.flatnonzero(late | future)
        if not len(refused):
            return batch, places
        for row in refused.tolist():
            t = int(batch.t[row])
            reason = (
                f"t: {t} is too old; retention has passed everything up to {self.floor}"
                if late[row]
                else f"t: {t} is in the future; the latest that is taken now is {self.ceiling}"
            )
            offset, line = unpack_place(int(places[row]))
            letters.append(rejected_line(partition, line, reason, self._echo(batch[row]), offset))
        kept = np.flatnonzero(~(late | future))
        return batch.take(kept), places[kept]

    def _echo(self, record: SpatialObject | Query | Cancellation) -> str:
        """A record as it was understood, of an object the first terms."""
        if isinstance(record, SpatialObject):
            x, y = self.space.axes
            fields = {"id": record.id, "t": record.t, x: record.x, y: record.y, "terms": record.terms[:_ECHOED_TERMS]}
            return json.dumps(fields, ensure_ascii=False)
        return json.dumps(record.to_record(), ensure_ascii=False)

    def _lines(
        self, values: pa.BinaryArray, partition: str, offsets: npt.NDArray[np.int64], letters: list[str]
    ) -> tuple[pa.Buffer, npt.NDArray[np.int64]]:
        """All lines one after the other, blank where they are too long; the first line of each message, from 0."""
        long = np.flatnonzero(pc.greater(pc.binary_length(values), self.longest).to_numpy(zero_copy_only=False))
        if len(long):
            replaced = values.to_pylist()
            for i in long.tolist():
                lines = replaced[i].split(b"\n")
                for at, line in enumerate(lines, 1):
                    if len(line) > self.longest:
                        reason = f"record: {len(line)} bytes are too many; the most is {self.longest}"
                        echo = json.dumps(line[:LONGEST_ECHO].decode("utf-8", "replace") + "…", ensure_ascii=False)
                        letters.append(rejected_line(partition, at, reason, echo, int(offsets[i])))
                        lines[at - 1] = b""
                replaced[i] = b"\n".join(lines)
            values = pa.array(replaced, pa.binary())
        nothing, newline = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())
        joined = pc.binary_join_element_wise(values.cast(pa.large_binary()), nothing, newline)
        _, bounds, data = joined.buffers()
        bounds = np.frombuffer(bounds, np.int64, len(joined) + 1, joined.offset * 8)
        text = data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
        starts = np.searchsorted(newlines, bounds[:-1] - bounds[0])
        return text, starts


def _places(
    line: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Places of lines (from 0) of a block in which the lines of message i begin at ``starts[i]``."""
    message = np.searchsorted(starts, line, side="right") - 1
    return pack_place(offsets[message], line - starts[message] + 1)


def _mark_time(value: bytes | None) -> int | None:
    """The time of a mark; None if it is not one, which does no harm: the partition is heard all the same."""
    try:
        t = json.loads(value or b"null")["clock"]
    except (ValueError, TypeError, KeyError):
        return None
    return t if isinstance(t, int) and not isinstance(t, bool) else None


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts of one topic partition each, of bounded size."""
    if not batch.num_rows:
        return
    topic, partition = batch.column("topic"), numpy_view(batch.column("partition"))
    codes = topic.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    changes = np.flatnonzero((partition[1:] != partition[:-1]) | (codes[1:] != codes[:-1])) + 1
    size = np.cumsum(pc.fill_null(pc.binary_length(batch.column("value")), 0).to_numpy(zero_copy_only=False))
    first = 0
    for last in [*changes.tolist(), batch.num_rows]:
        while first < last:
            before = size[first - 1] if first else 0
            stop = min(last, max(first + 1, int(np.searchsorted(size, before + _BLOCK_BYTES, side="right"))))
            yield batch.slice(first, stop - first)
            first = stop

"""INGEST: decodes what a source delivers into runs, sorted by time, which ROUTE reads.

A message holds one record or many (JSON Lines). A message with the key ``clock`` is a watermark (``{"clock": t}``):
nothing earlier than t follows in its partition. A record or watermark that cannot be used becomes a dead letter that
names topic partition, offset, and line within the message; so does a line that is too long, because a block with it
might not fit into a message downstream. Files are decoded by their source; their dead letters name file and line.

Whatever bytes a topic holds, the stage returns an intake. If decoding itself fails on a line, which should never
happen, the line is found by bisection and *quarantined*: it becomes a dead letter too, is counted separately, and
everything else is as it would be without it. The intake is the decision: once it is in the epoch's record, these
messages are not decoded again. A failure for lack of memory or disk, or without any line, is no line's fault, and fails
the epoch.

Everything is named after epoch, topic partition and block, so a task that is tried twice overwrites equal files. An
epoch that is tried twice may read other messages the second time, because more have come, while a task of the first try
is still running: so each try has a name of its own, which is part of its file names.

If puts take long, nobody waits for the files of messages: a run then records the messages from which it was made, and
by which rules. If its file was lost with the process that was putting it, it is made again from these messages, which
the broker keeps for days. The epoch's record contains the run's properties, so a different outcome is detected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.connectors.contracts import Records, Source, Storage
from spatialstream.model.arrays import Flags, Ints, numpy_view
from spatialstream.model.errors import RecordError, StateError
from spatialstream.model.json_columns import quoted
from spatialstream.model.jsonable import to_json
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import Cancellation, Query, QueryBatch
from spatialstream.model.space import Space
from spatialstream.model.terms import TermRule
from spatialstream.model.times import parse_time
from spatialstream.records.commonest import commonest
from spatialstream.records.decode import decode_objects
from spatialstream.records.decode_queries import decode_queries
from spatialstream.records.reasons import in_the_future, reason_class, too_old
from spatialstream.records.reference import Decoded, json_value
from spatialstream.records.rejected import LONGEST_ECHO, rejected_line
from spatialstream.stages.quarantine import AMBIENT
from spatialstream.stages.runs import INPUT, pack_place, unpack_place, write_run
from spatialstream.stages.turns import Origin, Run

__all__ = ["CLOCK", "LARGEST_ID", "LARGEST_RECORD", "Ingest", "Intake", "Part", "files_of", "watermark"]

_RUN, _REJECTED = ".arrow", ".rejected"
"""Suffixes of files: of runs, and of dead letters."""

CLOCK = b"clock"
"""Key of watermark messages."""

_BLOCK_BYTES, _MOST_BYTES = 32 << 20, 64 << 20
"""Of messages that are decoded at once: about, if there are as many, and at most, except for a single message."""

_BLOCK_LINES = 1 << 18
"""Lines that are decoded at once: a rejected line takes a hundred times as much memory as it takes in a message."""

_ECHOED_TERMS = 50
_LETTERS_PER_MESSAGE = 1_000
"""Maximum dead letters of a message; a last one counts the rest, because a message may hold millions of lines."""

_LONGEST_WATERMARK = 1_000

_BYTES_PER_TERM = 8

LARGEST_ID = 4 << 20
"""Maximum bytes of an id as JSON: a row of results may contain two, and has to fit into a message."""

LARGEST_RECORD = 8 << 20
"""Maximum bytes of a record's id and terms, including what a block needs in addition for each term."""

_SURELY_SHORT = 256 << 10
"""Bytes of a message up to which no record in it can be as long as that. (No character has a case-folded NFKC of more
than eleven times its bytes.)"""

_Batch = TypeVar("_Batch", ObjectBatch, QueryBatch)


def watermark(t: int) -> bytes:
    """The value of a watermark message: nothing earlier than t follows in its partition."""
    return json.dumps({"clock": t}).encode()


@dataclass(frozen=True, slots=True)
class Intake:
    """The outcome of one block of one topic partition: all that the driver sees of it.

    Attributes:
        partition: such as ``"objects/0"``.
        clock: the largest timestamp or watermark; None if there is none.
        run: the run, if any record was accepted.
        rejected: name of the file of dead letters, if there are any.
        records: number of accepted records.
        refused: number of rejected records and watermarks.
        last: offset of the last message.
        quarantined: number of those of ``refused`` on which decoding failed.
        reasons: ``refused`` by :func:`~spatialstream.records.reasons.reason_class`.
        unknown: the most common unknown fields of the accepted objects, and how many objects have each.
        kind: ``"objects"`` or ``"queries"``, which those rejected were to be; empty if none was.
    """

    partition: str
    clock: int | None
    run: Run | None
    rejected: str
    records: int
    refused: int
    last: int
    quarantined: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    kind: str = ""


def files_of(run: Run, letters: Iterable[str]) -> Iterator[str]:
    """The names of a run's file and of its dead letters' file, if that is among ``letters``."""
    yield INPUT + run.name
    if (file := run.name.removesuffix(_RUN) + _REJECTED) in letters:
        yield INPUT + file


Part = tuple[str, int, int]
"""A part of the input: partition, and offsets [start, end)."""


@dataclass(frozen=True, slots=True)
class Ingest:
    """Makes intakes of what a source delivers.

    Attributes:
        epoch: number of the epoch.
        storage: of the runs.
        space: of the stream.
        rule: term extraction.
        longest: maximum bytes of a record; longer ones are rejected.
        floor: objects with this timestamp or an earlier one are too old: retention has dropped the objects of that
            time; None: none are.
        ceiling: records and watermarks with later timestamps are from the future; None: none are.
        attempt: name of the try of the epoch.
        deferred: whether nobody waits for files that can be made again (:meth:`again`).
    """

    epoch: int
    storage: Storage
    space: Space
    rule: TermRule = field(default_factory=TermRule)
    longest: int = 1 << 20
    floor: int | None = None
    ceiling: int | None = None
    attempt: str = ""
    deferred: bool = False

    def part(self, source: Source, part: Part) -> Iterator[str]:
        """INGEST of a part of the input: intakes as JSON."""
        partition, start, end = part
        last = start - 1
        for intake in self._begun(partition, source.read(*part)):
            last = intake.last
            yield to_json(intake)
        if last < end - 1:  # markers of transactions have offsets too
            yield to_json(Intake(partition, None, None, "", 0, 0, end - 1))

    def intakes(self, partition: str, given: Iterable[pa.RecordBatch | Records]) -> Iterator[Intake]:
        """Decode what a source delivers of a partition, in the order of offsets; at the end all files exist."""
        yield from self._begun(partition, given)
        self.storage.await_puts()

    def again(self, source: Source, run: Run) -> None:
        """Make the files of a run again.

        Raises:
            StateError: the source now has other messages than those from which it was made, or not all of them.
            Unavailable: the source cannot be reached.
        """
        origin = run.origin
        assert origin is not None
        stage = replace(self, floor=origin.floor, ceiling=origin.ceiling, deferred=True)
        given = [each for each in source.read(run.source, origin.start, origin.end) if isinstance(each, pa.RecordBatch)]
        name, messages = run.name.removesuffix(_RUN), pa.concat_batches(given) if given else None
        if messages is None or stage._of_messages(messages, run.source, name).run != run:
            raise StateError(
                f"{run.source}: messages {origin.start} to {origin.end} are not those from which {run.name} was made"
            )

    def _begun(self, partition: str, inputs: Iterable[pa.RecordBatch | Records]) -> Iterator[Intake]:
        """As :meth:`intakes`, but puts may still be in progress."""
        kind, _, number = partition.partition("/")
        for block, records in enumerate(_blocks(inputs)):
            place = block if isinstance(records, Records) else records.column("offset")[0].as_py()
            name = f"{self.epoch:09d}-{kind}-{int(number):04d}-{place:04d}-{self.attempt}"
            if isinstance(records, Records):
                yield self._of_records(records, partition, name)
            else:
                yield self._of_messages(records, partition, name)

    def _of_records(self, decoded_records: Records, partition: str, name: str) -> Intake:
        """The intake of a block that its source has decoded."""
        decoded, letters = decoded_records.decoded, _Letters(decoded_records.origin)
        for row in decoded.rejected.to_pylist():
            letters.add(None, row["line"], row["reason"], row["record"])
        letters.unknown = decoded.unknown
        run = self._run(name, decoded.batch, decoded.line, decoded_records.origin)
        return self._intake(partition, name, run, None if run is None else run.last, letters, 0)

    def _of_messages(self, messages: pa.RecordBatch, partition: str, name: str) -> Intake:
        """The intake of a block of messages."""
        is_watermark = pc.fill_null(pc.equal(messages.column("key"), CLOCK), False)
        has_value = pc.is_valid(messages.column("value"))
        letters, offset = _Letters(partition), messages.column("offset")
        origin = Origin(offset[0].as_py(), offset[len(offset) - 1].as_py() + 1, self.floor, self.ceiling)
        clock = self._clock(messages.filter(pc.and_(is_watermark, has_value)), letters)
        records = messages.filter(pc.and_(pc.invert(is_watermark), has_value))
        run = None
        if records.num_rows:
            offsets = numpy_view(records.column("offset"))
            data, starts, cuts = self._lines(records.column("value"), offsets, letters)
            batch, places = self._records(data, cuts, partition, _Places(starts, offsets), letters)
            batch, places = self._short(batch, places, records.column("value"), letters)
            run = self._run(name, batch, places, partition, origin)
            if run is not None:
                clock = run.last if clock is None else max(clock, run.last)
        return self._intake(partition, name, run, clock, letters, origin.end - 1)

    def _run(self, name: str, batch: Any, line: Ints, source: str, origin: Origin | None = None) -> Run | None:
        """Write a run, if there are any records; a run of messages has an origin."""
        if not len(batch):
            return None
        kind, file = "objects" if isinstance(batch, ObjectBatch) else "queries", name + _RUN
        deferred = self.deferred and origin is not None
        put = self.storage.put_later if deferred else self.storage.begin_put
        times = write_run(put, file, batch, line)
        return Run(file, kind, len(batch), source, times, origin is not None, origin if deferred else None)

    def _intake(
        self, partition: str, name: str, run: Run | None, clock: int | None, letters: _Letters, last: int
    ) -> Intake:
        """The intake of a block; writes its dead letters."""
        file = name + _REJECTED if letters.count else ""
        if file:
            put = self.storage.begin_put if run is None or run.origin is None else self.storage.put_later
            put(INPUT + file, letters.text())
        rows = 0 if run is None else run.rows
        return Intake(
            *(partition, clock, run, file, rows, letters.count, last),
            quarantined=letters.quarantined,
            reasons=letters.reasons,
            unknown=letters.unknown,
            kind=partition.partition("/")[0] if letters.count else "",
        )

    def _clock(self, watermarks: pa.RecordBatch, letters: _Letters) -> int | None:
        """The largest time of some watermarks."""
        times = []
        for offset, value in zip(
            watermarks.column("offset").to_pylist(), watermarks.column("value").to_pylist(), strict=True
        ):
            try:
                t = _watermark_time(value)
                if self.ceiling is not None and t > self.ceiling:
                    raise RecordError("clock", in_the_future(t, self.ceiling))
                times.append(t)
            except RecordError as error:
                letters.add(offset, 1, str(error), _echo_of(value))
        return max(times, default=None)

    def _records(
        self, data: pa.Buffer, cuts: list[int], partition: str, places: _Places, letters: _Letters
    ) -> tuple[Any, Ints]:
        """The valid records of a block, and their places."""
        parts: list[tuple[Any, Ints]] = []
        is_objects = partition.startswith("objects/")
        decode = decode_objects if is_objects else decode_queries

        def decoded(text: pa.Buffer, first: int) -> Decoded[Any]:
            return decode(text, first + 2, self.space, self.rule)  # a line 1 would lose its byte order mark

        line = 0
        for start, end in pairwise(cuts):
            text = data.slice(start, end - start)
            for part, first in _decoded(decoded, text, line):
                if isinstance(part, Decoded):
                    refused = places.of(numpy_view(part.rejected.column("line")) - 2).tolist()
                    for place, row in zip(refused, part.rejected.to_pylist(), strict=True):
                        letters.add(*unpack_place(place), row["reason"], row["record"])
                    parts.append(self._within_bounds(part.batch, places.of(part.line - 2), letters))
                    letters.unknown = commonest([letters.unknown, part.unknown])
                else:
                    (place,) = places.of(np.array([first]))
                    letters.add(*unpack_place(int(place)), part[0], part[1])
                    letters.quarantined += 1
            line += _newlines(text)
        if len(parts) == 1:
            return parts[0]
        batch: Any = ObjectBatch if is_objects else QueryBatch
        whole = batch.concat([part for part, _ in parts] or [batch.of([])])
        return whole, np.concatenate([np.empty(0, np.int64), *(part for _, part in parts)])

    def _short(self, batch: _Batch, places: Ints, values: pa.BinaryArray, letters: _Letters) -> tuple[_Batch, Ints]:
        """The batch without records that fit into no message: their terms may be longer than their texts."""
        if pc.max(pc.binary_length(values)).as_py() <= _SURELY_SHORT:
            return batch, places
        name = pc.binary_length(quoted(batch.ids)).to_numpy().astype(np.int64)
        size = name + _bytes_of_terms(batch)
        long = (name > LARGEST_ID) | (size > LARGEST_RECORD)
        reasons = {
            row: f"id: {name[row]} bytes as JSON are too many; the most is {LARGEST_ID}"
            if name[row] > LARGEST_ID
            else f"record: id, terms and fields take {size[row]} bytes; the most is {LARGEST_RECORD}"
            for row in np.flatnonzero(long).tolist()
        }
        return self._without(batch, places, reasons, letters)

    def _within_bounds(self, batch: _Batch, places: Ints, letters: _Letters) -> tuple[_Batch, Ints]:
        """The batch without records that are too old or from the future."""
        expired = np.zeros(len(batch), np.bool_)
        if self.floor is not None and isinstance(batch, ObjectBatch):
            expired = batch.t <= self.floor
        future = np.zeros(len(batch), np.bool_) if self.ceiling is None else batch.t > self.ceiling
        reasons = dict[int, str]()
        for bound, out, reason in ((self.floor, expired, too_old), (self.ceiling, future & ~expired, in_the_future)):
            if bound is not None:
                reasons |= {row: f"t: {reason(int(batch.t[row]), bound)}" for row in np.flatnonzero(out).tolist()}
        return self._without(batch, places, dict(sorted(reasons.items())), letters)

    def _without(
        self, batch: _Batch, places: Ints, reasons: Mapping[int, str], letters: _Letters
    ) -> tuple[_Batch, Ints]:
        """The batch without the rejected rows, each of which becomes a dead letter."""
        if not reasons:
            return batch, places
        for row, reason in reasons.items():
            letters.add(*unpack_place(int(places[row])), reason, self._echo(batch[row]))
        kept = np.setdiff1d(np.arange(len(batch)), list(reasons))
        return batch.take(kept), places[kept]

    def _echo(self, record: SpatialObject | Query | Cancellation) -> str:
        """A record as it was parsed; of an object only the first terms."""
        if isinstance(record, SpatialObject):
            x, y = self.space.axes
            fields = {"id": record.id, "t": record.t, x: record.x, y: record.y, "terms": record.said[:_ECHOED_TERMS]}
            return json.dumps(fields, ensure_ascii=False)
        return json.dumps(record.to_record(), ensure_ascii=False)

    def _lines(self, values: pa.BinaryArray, offsets: Ints, letters: _Letters) -> tuple[pa.Buffer, Ints, list[int]]:
        """All lines one after the other, blank if they are too long.

        With the first line of each message, from 0, and where to cut so that no part has too many lines.
        """
        long = np.flatnonzero(pc.greater(pc.binary_length(values), self.longest).to_numpy(zero_copy_only=False))
        if len(long):
            replaced = values.to_pylist()
            for i in long.tolist():
                replaced[i] = self._without_long_lines(replaced[i], int(offsets[i]), letters)
            values = pa.array(replaced, pa.binary())
        nothing, newline = pa.scalar(b"", pa.large_binary()), pa.scalar(b"\n", pa.large_binary())
        joined = pc.binary_join_element_wise(values.cast(pa.large_binary()), nothing, newline)
        _, bounds, data = joined.buffers()
        bounds = np.frombuffer(bounds, np.int64, len(joined) + 1, joined.offset * 8)
        text = data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
        ends_line = np.frombuffer(text, np.uint8) == ord("\n")
        lines = np.add.reduceat(
            ends_line, bounds[:-1] - bounds[0], dtype=np.int64
        )  # no message is empty: each ends one
        return text, np.cumsum(lines) - lines, _cuts(ends_line)

    def _without_long_lines(self, value: bytes, offset: int, letters: _Letters) -> bytes:
        """A message with its lines that are too long replaced by nothing."""
        ends = np.append(np.flatnonzero(np.frombuffer(value, np.uint8) == ord("\n")), len(value))
        starts = np.append(0, ends[:-1] + 1)
        pieces, last = [], 0
        for i in np.flatnonzero(ends - starts > self.longest).tolist():
            start, end = int(starts[i]), int(ends[i])
            reason = f"record: {end - start} bytes are too many; the most is {self.longest}"
            letters.add(offset, i + 1, reason, _echo_of(value[start:end]))
            pieces.append(value[last:start])
            last = end
        return b"".join([*pieces, value[last:]])


def _bytes_of_terms(batch: ObjectBatch | QueryBatch) -> Ints:
    """The bytes of the terms, and of the fields that are kept, of each record in a block of its own."""
    terms = batch.terms if isinstance(batch, ObjectBatch) else batch.keywords
    each = pc.binary_length(terms.vocabulary).to_numpy().astype(np.int64)[terms.codes] + _BYTES_PER_TERM
    each += terms.counts is not None
    ends: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(each)])
    sizes = ends[terms.offsets[1:]] - ends[terms.offsets[:-1]]
    stored = batch.stored.column if isinstance(batch, ObjectBatch) else None
    return sizes if stored is None else sizes + pc.binary_length(stored).to_numpy()


class _Letters:
    """The dead letters of a block, and statistics of its records.

    Attributes:
        count: number of rejected records and watermarks; there may be fewer letters.
        quarantined: number of those on which decoding has failed.
        reasons: number of rejected ones by class.
        unknown: the unknown fields of its objects, see :attr:`Intake.unknown`.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines: list[str] = []
        self._of_message: dict[int, tuple[int, int]] = {}
        self.count = self.quarantined = 0
        self.reasons: dict[str, int] = {}
        self.unknown: Mapping[str, int] = {}

    def add(self, offset: int | None, line: int, reason: str, record: str) -> None:
        """Add a letter for a line of a message, or, without an offset, of a file."""
        self.count += 1
        name = reason_class(reason)
        self.reasons[name] = self.reasons.get(name, 0) + 1
        if offset is None:
            self._lines.append(rejected_line(self._source, line, reason, record))
            return
        known, first = self._of_message.get(offset, (0, line))
        if known < _LETTERS_PER_MESSAGE:
            self._lines.append(rejected_line(self._source, line, reason, record, offset))
        self._of_message[offset] = known + 1, line if known == _LETTERS_PER_MESSAGE else first

    def text(self) -> bytes:
        """All letters, one per line."""
        for offset, (known, line) in self._of_message.items():
            if known > _LETTERS_PER_MESSAGE:
                more = known - _LETTERS_PER_MESSAGE
                reason = f"record: this is the first of {more} more records of this message that cannot be used"
                self._lines.append(rejected_line(self._source, line, reason, "null", offset))
        return "".join(f"{line}\n" for line in self._lines).encode()


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """The places of the lines of a block.

    Attributes:
        starts: int64[n], the first line of each message, from 0.
        offsets: int64[n], of the messages.
    """

    starts: Ints
    offsets: Ints

    def of(self, line: Ints) -> Ints:
        """Places of lines (from 0)."""
        message = np.searchsorted(self.starts, line, side="right") - 1
        return pack_place(self.offsets[message], line - self.starts[message] + 1)


def _decoded(
    decode: Callable[[pa.Buffer, int], Decoded[Any]], text: pa.Buffer, first: int
) -> Iterator[tuple[Decoded[Any] | tuple[str, str], int]]:
    """Parts of a text with their first lines: decoded, or for a line that fails to decode, the reason and its echo.

    Costs a few times as much as decoding, and more by the logarithm of the lines for each line that is found.

    Raises:
        Exception: decoding fails without any line, or for lack of resources.
    """
    try:
        yield decode(text, first), first
        return
    except AMBIENT:
        raise
    except Exception as error:  # noqa: BLE001 - any: it goes into a dead letter, or is raised
        decode(text.slice(0, 0), first)
        if _newlines(text) < 2:
            line = text.to_pybytes().rstrip(b"\n")
            yield (f"record: cannot be read ({type(error).__name__}: {error})"[:LONGEST_ECHO], _echo_of(line)), first
            return
    cut = _middle(text)
    head = text.slice(0, cut)
    yield from _decoded(decode, head, first)
    yield from _decoded(decode, text.slice(cut), first + _newlines(head))


def _newlines(text: pa.Buffer) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _middle(text: pa.Buffer) -> int:
    """The byte after which to cut lines into halves."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    return int(ends[(len(ends) - 1) // 2]) + 1


def _cuts(ends_line: Flags) -> list[int]:
    """Bounds of parts of whole lines, of at most about :data:`_BLOCK_LINES` lines each; the first and last included."""
    cuts, lines = [0], 0
    for first in range(0, len(ends_line), _BLOCK_LINES):
        more = int(np.count_nonzero(ends_line[first : first + _BLOCK_LINES]))
        if lines and lines + more > _BLOCK_LINES:
            cuts.append(cuts[-1] + int(np.flatnonzero(ends_line[cuts[-1] : first])[-1]) + 1)
            lines = 0
        lines += more
    return [*cuts, len(ends_line)]


def _echo_of(value: bytes) -> str:
    """The echo of a line, as JSON."""
    return json_value(value[: 4 * LONGEST_ECHO])[2]


def _watermark_time(value: bytes) -> int:
    """The time of a watermark.

    Raises:
        RecordError: it is invalid.
    """
    if len(value) > _LONGEST_WATERMARK:
        raise RecordError("clock", f"a watermark of {len(value)} bytes; the most is {_LONGEST_WATERMARK}")
    record, error, _ = json_value(value)
    if error is not None:
        raise error
    t = record.get("clock") if isinstance(record, dict) else None
    if not isinstance(t, int) or isinstance(t, bool):
        raise RecordError("clock", 'a watermark is {"clock": t} with t in integer milliseconds')
    return parse_time(t, "clock")


def _blocks(inputs: Iterable[pa.RecordBatch | Records]) -> Iterator[pa.RecordBatch | Records]:
    """What a source delivers, in blocks of bounded size that are large enough to be decoded efficiently."""
    held: list[pa.RecordBatch] = []
    size = 0
    for item in inputs:
        if isinstance(item, Records):
            yield item
        elif item.num_rows:
            held.append(item)
            size += item.nbytes
            if size >= _BLOCK_BYTES:
                yield from _pieces(pa.concat_batches(held))
                held, size = [], 0
    if held:
        yield from _pieces(pa.concat_batches(held))


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Messages cut into parts of bounded size, at least one message each."""
    size = np.cumsum(pc.fill_null(pc.binary_length(batch.column("value")), 0).to_numpy(), dtype=np.int64)
    first = 0
    while first < batch.num_rows:
        before = size[first - 1] if first else 0
        stop = max(first + 1, int(np.searchsorted(size, before + _MOST_BYTES, side="right")))
        yield batch.slice(first, stop - first)
        first = stop

"""A stream of micro-batches in one process: each becomes one epoch, or several.

Epochs have numbers of their own. A micro-batch becomes one epoch, or several if it is large; and there are epochs
between micro-batches, when records that waited for a silent source are released (:meth:`LocalStream.advance`), or when
the input has ended (:meth:`LocalStream.finish`). The epoch of a micro-batch is written down before it begins, so a
micro-batch that comes again is recognized.

The parts of a micro-batch are in no order, so there is one clock per source, not per partition.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.connectors.contracts import MESSAGE, find
from spatialstream.connectors.disk import undamaged
from spatialstream.model.errors import RunError, StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.times import check_times
from spatialstream.stages.ingest import Ingest, Intake
from spatialstream.stages.state import get_json, put_json
from spatialstream.stream.driver import Ingestion
from spatialstream.stream.embedded import EmbeddedStream, ended, nothing
from spatialstream.stream.engine import Engine
from spatialstream.stream.router import EpochRecord
from spatialstream.stream.settings import StreamSettings

__all__ = ["LocalStream", "WaitingClock", "intakes_of_part"]

_BLOCK_BYTES = 32 << 20
_GIVEN = "queries/1000000"
"""The partition of the queries given from the start; its number is beyond those of any micro-batch."""

_ASSIGNMENT = "micro-batch.json"
_WAY_OUT = "start again with another checkpoint"


class WaitingClock:
    """ms for which the stream has waited for input; stops during an epoch, and while there is no process.

    A source is silent if it delivers nothing while the stream waits; the time that the stream works does not count.

    Args:
        now: any clock, ms.
        start: the initial value, ms.
    """

    def __init__(self, now: Callable[[], int], start: int = 0) -> None:
        self._now = now
        self._behind = now() - start
        self._stopped: int | None = None

    def __call__(self) -> int:
        """The value of the clock, ms."""
        return (self._now() if self._stopped is None else self._stopped) - self._behind

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock within this context."""
        self._stopped = self._now()
        try:
            yield
        finally:
            self._behind += self._now() - self._stopped
            self._stopped = None


# ----------------------------------------------------------------------------------------------- what has come in


def intakes_of_part(stage: Ingest, rows: Iterable[pa.RecordBatch], part: int) -> Iterator[Intake]:
    """INGEST of a part of a micro-batch.

    Args:
        stage: decodes it.
        rows: columns ``kind`` (``"objects"`` or ``"queries"``) and ``value`` (a line of JSON).
        part: its number; together with the position in the part, it identifies a row.
    """
    for kind, messages in groupby(_messages(rows), itemgetter(0)):
        yield from stage.intakes(f"{kind}/{part}", (batch for _, batch in messages))


def _messages(rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Batches of messages of one kind, as they arrive; offsets count the rows of all kinds."""
    first = 0
    for batch in rows:
        offset = pa.array(np.arange(first, first + batch.num_rows))
        first += batch.num_rows
        columns = [offset, pa.nulls(batch.num_rows, pa.binary()), batch.column("value").cast(pa.binary())]
        given = pa.RecordBatch.from_arrays(columns, schema=MESSAGE)
        for kind in ("objects", "queries"):
            mine = given.filter(pc.equal(batch.column("kind"), kind))
            if mine.num_rows:
                yield kind, mine


def _lines(text: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """JSON Lines as messages of many lines."""
    file, number = io.BytesIO(text), 0
    while lines := file.readlines(_BLOCK_BYTES):
        columns = [pa.array([number]), pa.nulls(1, pa.binary()), pa.array([b"".join(lines).removesuffix(b"\n")])]
        yield pa.RecordBatch.from_arrays(columns, schema=MESSAGE)
        number += 1


# ----------------------------------------------------------------------------------------------------------- the stream


class LocalStream:
    """A stream of micro-batches; thread-safe.

    Args:
        settings: of the stream.
        engine: executes the stages, over a storage that nobody else uses.
        index: kind of the global index; None: that of the checkpoint if it has one, else the default.
        leaves: number of leaves of the index.
        queries: name of the file of the queries given from the start, JSON Lines in the storage; None if they come as
            a stream.
        history: returns objects like those to come, for the index; called once in the stream's incarnation.
        now: a clock that does not go back, ms.
        step: called before each step, with its name; tests stop the stream there.
        due: see :class:`~spatialstream.stream.embedded.EmbeddedStream`.
        sure: whether times are ms even if they look like something else; otherwise the first that come of objects, and
            of queries, must not look so.
    """

    def __init__(
        self,
        settings: StreamSettings,
        engine: Engine,
        *,
        index: str | None = None,
        leaves: int = 64,
        queries: str | None = None,
        history: Callable[[], ObjectBatch] | None = None,
        now: Callable[[], int],
        step: Callable[[str], None] = lambda name: None,
        due: Callable[[], bool] | None = None,
        sure: bool = True,
    ) -> None:
        self._settings, self._storage, self._given, self._sure = settings, engine.world.storage, queries, sure
        self._names = ["objects/0"] if queries is not None else ["objects/0", "queries/0"]
        self._stream = EmbeddedStream(
            settings,
            engine,
            self._names,
            index=index,
            leaves=leaves,
            history=history,
            now=lambda: self._clock(),
            step=step,
            due=due,
        )
        self._router = self._stream.router
        last = self._router.last
        self._clock = WaitingClock(now, 0 if last is None else last.born)
        self._lock = threading.Lock()
        self._closed = False

    @property
    def last(self) -> EpochRecord | None:
        """The record of the last epoch; None before the first."""
        return self._router.last

    # -------------------------------------------------------------------------------------------------------- epochs

    def recover(self) -> None:
        """Redo the last epoch if it is not known to be done. To be called first.

        Raises:
            StateError: the checkpoint is damaged.
        """
        with self._busy():
            self._stream.recover()

    def micro_batch(self, number: int, ingestion: Ingestion) -> bool:
        """Ingest a micro-batch, unless that was done before, and answer what is due; False if the stream is closed.

        Args:
            number: of the micro-batch; numbers ascend, and the last one may come again after a restart.
            ingestion: makes runs of its records; their partitions are any part of ``objects`` and ``queries``.

        Raises:
            SettingError: its times look as if they were not ms; nothing of it is taken in.
            StateError: the checkpoint is damaged.
        """
        with self._busy() as is_open:
            if is_open:
                if self._assigned(number) > self._router.last_done:
                    self._next(ingestion)
                self._drain()
            return is_open

    def advance(self) -> bool:
        """Do the epochs that are due without input; returns whether there was one."""
        with self._busy() as is_open:
            before = self._router.last_done
            if is_open and not self._promised():
                self._drain()
            return self._router.last_done > before

    def finish(self) -> None:
        """Answer everything that has come: no source delivers anything earlier than the latest record so far.

        Raises:
            RunError: the stream has been closed, or a micro-batch has begun and is not done.
        """
        with self._busy() as is_open:
            if not is_open or self._promised():
                raise RunError("the stream has been stopped")
            if self._router.last is None:
                self._next(nothing)
            record = self._router.last
            assert record is not None
            latest = max((run.last for run in record.epoch.runs), default=record.epoch.watermark)
            if latest > record.epoch.watermark:
                self._next(lambda stage: ended(self._names, latest + self._settings.disorder))
                self._drain()

    @property
    def quiet(self) -> bool:
        """Whether all sources have been silent for the time after which they are ignored, and nothing is due."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            record = self._router.last
            heard = 0 if record is None else max(clock.heard for clock in record.clocks.partitions.values())
            silent = self._clock() - heard >= self._settings.idle
            return silent and not self._promised() and not self._router.wants_epoch()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Wait for the end of what is in progress; nothing begins any more."""
        with self._lock:
            self._closed = True

    @contextmanager
    def _busy(self) -> Iterator[bool]:
        """Exclusive access, with the clock stopped; yields whether the stream is open."""
        with self._lock, self._clock.stopped():
            yield not self._closed

    def _next(self, ingestion: Ingestion) -> None:
        """Do the next epoch, or after a restart the last one again."""
        self._stream.turn(lambda stage: self._taken(stage, ingestion(stage)))

    def _taken(self, stage: Ingest, intakes: Sequence[Intake]) -> list[Intake]:
        """The intakes with one clock per source; and the queries given from the start, when the stream begins."""
        on_one_partition = [replace(each, partition=f"{each.partition.split('/')[0]}/0") for each in intakes]
        self._check_times(on_one_partition)
        if self._router.last is None and self._given is not None:
            # all of them are there, so they get no clock that could hold others back, or advance time
            first = stage.intakes(_GIVEN, _lines(self._storage.get(self._given)))
            on_one_partition += [replace(each, partition="objects/0", clock=None) for each in first]
        return on_one_partition

    def _check_times(self, taken: Sequence[Intake]) -> None:
        """Refuse the first times that come, if they look as if they were not ms."""
        last, runs = self._router.last, [each.run for each in taken if each.run is not None]
        for kind in ("objects", "queries"):
            times = [run.times for run in runs if run.kind == kind]
            if times and not self._sure and not (last is not None and last.taken.get(kind)):
                check_times(np.concatenate([np.array(each, np.int64) for each in times]), kind)

    def _drain(self) -> None:
        """Do the epochs that are due without more input, such as the rest of a large micro-batch."""
        while self._router.wants_epoch():
            self._next(nothing)

    # ----------------------------------------------------------------------------------- which micro-batch, which epoch

    def _known(self) -> tuple[int, int]:
        """The last micro-batch that has begun, and its epoch."""
        if find(self._storage, _ASSIGNMENT) is None:
            return -1, -1
        known = get_json(self._storage, _ASSIGNMENT, _WAY_OUT)
        with undamaged(f"{self._storage.place}/{_ASSIGNMENT}", _WAY_OUT):
            return known["batch"], known["epoch"]

    def _assigned(self, number: int) -> int:
        """The epoch of a micro-batch, which is written down."""
        batch, epoch = self._known()
        if batch > number:
            raise StateError(f"micro-batch {batch} came before {number}: the checkpoint is damaged")
        if batch < number:
            epoch = self._router.last_done + 1
            put_json(self._storage, _ASSIGNMENT, {"batch": number, "epoch": epoch})
        return epoch

    def _promised(self) -> bool:
        """Whether the next epoch belongs to a micro-batch that has not come again yet."""
        return self._known()[1] > self._router.last_done

"""The engine of jobs and runs: functions are done in Spark's Python processes.

These load this module and what it needs before their first task (:mod:`~spatialstream.spark.daemon`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spatialstream.model.errors import RunError
from spatialstream.stages import messages
from spatialstream.stages.route import Row
from spatialstream.stream.engine import StageError

__all__ = ["SparkEngine", "spark_ended", "stop_spark"]

T = TypeVar("T")

_LINES = "line string"

_OF_PYTHON = "Traceback (most recent call last)"
"""What is in Spark's errors where a function has raised something by itself."""


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """See :class:`~spatialstream.stream.engine.Engine`.

    Attributes:
        session: the Spark session.
        tag: of the Spark jobs that it begins, by which they are cancelled.
    """

    session: SparkSession
    tag: str = "spatialstream"

    @property
    def width(self) -> int:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self.session.sparkContext.defaultParallelism

    def map(self, do: Callable[[T], Iterable[str]], items: Sequence[T], *, light: bool = False) -> list[str]:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        return self._lines(self._over(items, light).mapInArrow(_Map(do, items), _LINES)) if items else []

    def gather(
        self,
        do: Callable[[T], Iterable[Row]],
        items: Sequence[T],
        merge: Callable[[Iterable[Row]], Iterable[str]],
        *,
        light: bool = False,
    ) -> list[str]:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        rows = self._over(items, light).mapInArrow(_Gather(do, items), messages.BLOCK_TYPE)
        return self._lines(rows.repartition(1).mapInArrow(_Merge(merge), _LINES))

    def check(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        if spark_ended(self.session):
            raise RunError("lost Spark: its process or its context has ended")

    def cancel(self) -> None:
        """See :class:`~spatialstream.stream.engine.Engine`."""
        self.session.sparkContext.cancelJobsWithTag(self.tag)

    def _over(self, items: Sequence[T], light: bool) -> DataFrame:
        """Positions of items, a task for each; with ``light``, for as many as are done at a time."""
        count = len(items)
        return self.session.range(0, count, 1, max(1, min(count, self.width) if light else count))

    def _lines(self, frame: DataFrame) -> list[str]:
        context = self.session.sparkContext
        context.addJobTag(self.tag)  # of this thread's jobs
        try:
            return [row.line for row in frame.collect()]
        except PySparkException as error:
            if _OF_PYTHON in str(error):
                raise StageError(str(error)) from error
            raise
        finally:
            context.removeJobTag(self.tag)


def _each(items: Sequence[T], batches: Iterable[pa.RecordBatch]) -> Iterator[T]:
    return (items[position] for batch in batches for position in batch.column(0).to_pylist())


def _batch(lines: Iterable[str]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"line": pa.array(list(lines), pa.string())})


@dataclass(frozen=True, slots=True)
class _Map(Generic[T]):
    do: Callable[[T], Iterable[str]]
    items: Sequence[T]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it."""
        for item in _each(self.items, batches):
            yield from _batch(self.do(item))


@dataclass(frozen=True, slots=True)
class _Gather(Generic[T]):
    do: Callable[[T], Iterable[Row]]
    items: Sequence[T]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it."""
        for item in _each(self.items, batches):
            for row in self.do(item):
                yield from messages.messages(*row)


@dataclass(frozen=True, slots=True)
class _Merge:
    merge: Callable[[Iterable[Row]], Iterable[str]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """As ``mapInArrow`` takes it; there is one partition."""
        yield from _batch(self.merge(row for batch in batches for row in messages.blocks(batch)))


def spark_ended(session: SparkSession) -> bool:
    """Whether a session's JVM has gone, or its context was stopped, as Spark does by itself when it is in trouble."""
    context: Any = session.sparkContext
    process = getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def stop_spark(session: SparkSession) -> None:
    """Stop a session, which may have ended already: what it then says is no news, and would hide why the job ends."""
    if not spark_ended(session):
        session.stop()

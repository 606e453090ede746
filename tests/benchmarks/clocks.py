"""Time measurement of the tasks of an engine, and of their parts.

A task is timed in the process that runs it (:func:`clock_tasks`), which writes a line per task to its own file. The
times of parts are *exclusive*: the time of a nested part counts only for the inner part, and the time of a generator is
that of resuming it. So the parts of a task and the remainder (``rest``) add up to its total time.
"""

from __future__ import annotations

import inspect
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

__all__ = ["DAEMON", "VARIABLE", "clock_tasks", "parts_of"]

VARIABLE = "SPATIALSTREAM_CLOCKS"
"""Environment variable that names the folder of the files."""

DAEMON = "tests.benchmarks.clocked_daemon"
"""For ``spark.python.daemon.module``."""

_WAITING = "waits for rows"


class _Watch(threading.local):
    """What a thread is at, and what that has taken."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = defaultdict(float)
        self.within: list[str] = []
        self.since = 0.0

    def enter(self, name: str) -> None:
        self._mark()
        self.within.append(name)

    def leave(self) -> None:
        self._mark()
        self.within.pop()

    def _mark(self) -> None:
        now = time.perf_counter()
        if self.within:
            self.parts[self.within[-1]] += now - self.since
        self.since = now


_watch = _Watch()


def _going_on(name: str, items: Iterator[Any]) -> Iterator[Any]:
    """Items, with the time that each takes."""
    try:
        while True:
            _watch.enter(name)
            try:
                item = next(items)
            except StopIteration:
                return
            finally:
                _watch.leave()
            yield item
    finally:
        if inspect.isgenerator(items):
            items.close()


def _clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function, or a generator, with its time."""

    @wraps(function)
    def timed(*args: Any, **options: Any) -> Any:
        if inspect.isgeneratorfunction(function):
            return _going_on(name, function(*args, **options))
        _watch.enter(name)
        try:
            return function(*args, **options)
        finally:
            _watch.leave()

    return timed


def _clock_parts() -> None:
    """Put clocks around the parts of the stages."""
    from spatialstream.connectors import result_files
    from spatialstream.connectors.folder import Folder
    from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink, KafkaSource
    from spatialstream.local.nearest.ckq import ContinuousNearestIndex
    from spatialstream.local.range.crq import ContinuousRangeIndex
    from spatialstream.local.registry import QueryRegistry
    from spatialstream.local.snapshot.segments import SegmentStore
    from spatialstream.local.terms.ctq import ContinuousTermsIndex
    from spatialstream.stages import ingest, merge, messages, route, work

    for owner, attribute, name in (
        (KafkaSource, "read", "broker: messages read"),
        (KafkaChannel, "blocks", "broker: blocks read"),
        (KafkaChannel, "send", "broker: blocks sent"),
        (KafkaSink, "rows", "broker: rows sent"),
        (KafkaSink, "rejected", "broker: dead letters sent"),
        (Folder, "put", "files written"),
        (Folder, "get", "files read"),
        (Folder, "list", "files listed"),
        (Folder, "delete", "files removed"),
        (ingest.Ingest, "_lines", "lines cut"),
        (ingest.Ingest, "_records", "decoding"),
        (ingest, "write_run", "runs sorted and encoded"),
        (route, "route_share", "runs read and sorted"),
        (route, "queries_of_epoch", "runs read and sorted"),
        (route, "_route_objects", "objects routed"),
        (route, "_route_queries", "queries admitted and routed"),
        (route, "write_sample", "sample"),
        (QueryRegistry, "restore", "registry restored"),
        (QueryRegistry, "checkpoint", "registry's state"),
        (messages, "pack", "blocks encoded"),
        (messages, "unpack", "blocks decoded"),
        (messages, "messages", "blocks encoded"),
        (messages, "blocks", "blocks decoded"),
        (ContinuousRangeIndex, "match", "CRQ match"),
        (ContinuousRangeIndex, "observe", "CRQ frequencies"),
        (ContinuousRangeIndex, "register", "CRQ register"),
        (ContinuousNearestIndex, "match", "CKQ update"),
        (ContinuousTermsIndex, "match", "CTQ update"),
        (SegmentStore, "append", "segment append"),
        (work, "_lines", "result text"),
        (work, "_answer", "snapshot queries answered"),
        (work, "_expire", "expiry"),
        (work, "_load_record", "load record"),
        (work.SlotIndexes, "restore", "slot restored"),
        (work.SlotIndexes, "checkpoint", "slot's state"),
        (result_files, "_write", "result file, merged on the way"),
        (merge, "row_lines", "result text"),
    ):
        if function := inspect.getattr_static(owner, attribute, None):
            bound = isinstance(function, classmethod)
            timed = _clocked(name, function.__func__ if bound else function)
            setattr(owner, attribute, classmethod(timed) if bound else timed)


def _clocked_task(name: str, task: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """A task that leaves a line about each of its calls."""

    @wraps(task)
    def timed(self: Any, world: Any, *given: Any) -> Iterator[Any]:
        _watch.parts.clear()
        *part, last = given  # an item; or a part of MERGE, and the rows for it
        begun, started, cpu, spent = time.time(), time.perf_counter(), 0.0, 0.0
        items: Iterator[Any] | None = None
        over = False
        while not over:
            _watch.enter("rest")
            before, at = time.thread_time(), time.perf_counter()
            try:
                if items is None:
                    items = iter(task(self, world, *part, _going_on(_WAITING, iter(last)) if part else last))
                item = next(items)
            except StopIteration:
                over = True
            finally:
                cpu, spent = cpu + time.thread_time() - before, spent + time.perf_counter() - at
                _watch.leave()
            if not over:
                yield item
        whole, parts = time.perf_counter() - started, dict(_watch.parts)
        line = {"stage": name, "pid": os.getpid(), "begun": begun, "whole": whole, "cpu": cpu}
        line |= {"input": parts.get(_WAITING, 0.0), "output": whole - spent, "parts": parts}
        with (folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    return timed


def clock_tasks(folder: Path) -> None:
    """Have every task of this process, and of its forks, leave a line about each of its calls in a folder."""
    from spatialstream.stages.tasks import TASKS

    _clock_parts()
    for kind in TASKS.values():
        for name, task in list(vars(kind).items()):
            if inspect.isfunction(task) and not name.startswith("_"):
                setattr(kind, name, _clocked_task(name, task, folder))


def parts_of(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The mean of each kind of task: its calls, seconds of wall clock and CPU, and seconds of its parts."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        found[line["stage"]].append(line)
    result = {}
    for stage, calls in found.items():
        n = len(calls)
        parts: dict[str, float] = defaultdict(float)
        for call in calls:
            for name, seconds in call["parts"].items():
                parts[name] += seconds / n
        means = {key: sum(call[key] for call in calls) / n for key in ("whole", "cpu", "input", "output")}
        shown = dict(sorted(parts.items(), key=lambda part: -part[1]))
        result[stage] = {"calls": n, **means, "parts": {name: each for name, each in shown.items() if each >= 5e-5}}
    return result

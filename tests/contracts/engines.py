"""Actor engines with threads or processes as actors, and test tasks, which Spark's processes import too."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.actors.actor import ActorSpec, run_actor
from spatialstream.actors.engine import ActorEngine
from spatialstream.connectors.folder import Folder
from spatialstream.model.errors import RunError
from spatialstream.model.progress import made
from spatialstream.stages.division import PartBlock
from spatialstream.stages.messages import Block
from spatialstream.stages.tasks import World

WITHIN = 60.0
"""Timeout of a condition on a busy machine, s."""


def until(holds: Callable[[], object], within: float = WITHIN) -> None:
    """Wait for a condition."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it has not come to be"
        time.sleep(0.01)


def world() -> World:
    """A world that the tests' tasks do not use."""
    nothing: Any = None
    return World(storage=Folder(Path("nothing")), channel=nothing, sink=nothing, settings=nothing)


def block(size: int, rows: int = 1, seed: int = 0) -> pa.RecordBatch:
    """A block of so many bytes in so many rows, the same for the same seed."""
    content = np.random.default_rng(seed).bytes(size)
    offsets = np.linspace(0, size, rows + 1).astype(np.int64)
    data = pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return pa.RecordBatch.from_arrays([data], ["data"])


# --------------------------------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True, slots=True)
class TestTasks:
    """Tasks of tests; the attributes select the behaviour, and files in a folder show the progress.

    Attributes:
        folder: of marker files, and of files that say which process has done what.
        sizes: for each item the bytes of its rows.
        rows: of each block.
        words: for each item its lines.
        item: at which something happens.
        raises: the exception raised then.
        arguments: of that exception.
        at: the row, or line, before which it is raised.
        parts: the parts that rows are generated for.
    """

    __test__ = False

    folder: str = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    rows: int = 1
    words: tuple[tuple[str, ...], ...] = ()
    item: int = -1
    raises: str = ""
    arguments: tuple[str, ...] = ()
    at: int = 0
    parts: tuple[int, ...] = (0,)

    def _mark(self, name: str, text: str = "") -> None:
        path = Path(self.folder, name)
        path.with_suffix(".new").write_text(text or str(os.getpid()))
        path.with_suffix(".new").rename(path)

    def _raise(self, item: int, at: int) -> None:
        if item != self.item or at != self.at or not self.raises:
            return
        from spatialstream.model import errors

        known = {"OSError": OSError, "MemoryError": MemoryError, "ValueError": ValueError, "KeyError": KeyError}
        given = [int(each) if each.isdigit() else each for each in self.arguments]
        raise (known.get(self.raises) or getattr(errors, self.raises))(*given)

    def lines(self, world: World, item: int) -> Iterator[str]:
        """Yield the words of an item."""
        for at, word in enumerate(self.words[item]):
            self._raise(item, at)
            yield word
        self._raise(item, len(self.words[item]))

    def named(self, world: World, item: str) -> Iterator[str]:
        """A task whose items are texts."""
        yield f"{item}!"

    def partitions(self, world: World, item: tuple[str, int, int]) -> Iterator[str]:
        """A task whose items are ranges of partitions."""
        yield f"{item}"

    def give(self, world: World, item: int) -> Iterator[PartBlock]:
        """Blocks of an item, for each part in turn."""
        for at, size in enumerate(self.sizes[item]):
            self._raise(item, at)
            yield self.parts[at % len(self.parts)], (item, "block", block(size, self.rows, 1000 * item + at))
        self._raise(item, len(self.sizes[item]))

    def sums(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """The combined content of each slot's rows, however it was cut."""
        found: dict[int, list[bytes]] = {}
        if part:
            self._raise(~part, self.at)
        for at, (slot, kind, content) in enumerate(rows):
            self._raise(-1, at)
            assert kind == "block"
            found.setdefault(slot, []).append(b"".join(content["data"].to_pylist()))
        for slot in sorted(found):
            whole = b"".join(found[slot])
            yield f"{slot}: {len(whole)} {hash_of(whole)}"

    def where(self, world: World, item: int) -> Iterator[str]:
        """The process that executes it."""
        time.sleep(0.02)  # so that the next item finds another actor free
        yield str(os.getpid())

    def rows_where(self, world: World, item: int) -> Iterator[PartBlock]:
        """A row for each part that names the process which has made it."""
        for part in self.parts:
            yield part, (item, "block", block(os.getpid()))

    def merged_where(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """The process of each item, and that of the merge."""
        for slot, _, content in sorted(rows, key=lambda row: row[0]):
            yield f"{slot} {content['data'][0].as_buffer().size}"
        yield f"merge {os.getpid()}"

    def wait(self, world: World, item: int) -> Iterator[str]:
        """Endless lines for one item, until a file ends them; a line for other items."""
        if item == self.item:
            self._mark(f"waiting-{item}")
            try:
                while not Path(self.folder, "go").exists():
                    yield "waiting"
                    time.sleep(0.01)
            finally:
                self._mark(f"over-{item}")
        yield str(item)

    def block(self, world: World, item: int) -> Iterator[str]:
        """Blocks without a line for one item, until a file ends it."""
        if item == self.item:
            self._mark(f"waiting-{item}")
            until(lambda: Path(self.folder, "go").exists(), 1_200)
            self._mark(f"over-{item}")
        yield str(item)

    def block_rows(self, world: World, item: int) -> Iterator[PartBlock]:
        """As :meth:`block`, followed by a row."""
        deque(self.block(world, item), 0)
        yield 0, (item, "block", block(100))

    def piecewise(self, world: World, item: int) -> Iterator[str]:
        """Pieces without a line for one item, until a file ends them; a line for other items."""
        if item == self.item:
            self._mark(f"waiting-{item}")
            while not Path(self.folder, "go").exists():
                made()
                time.sleep(0.01)
            self._mark(f"over-{item}")
        yield str(item)

    def flow(self, world: World, item: int) -> Iterator[PartBlock]:
        """Endless rows of a MB each for one item; one row for other items."""
        yield 0, (item, "block", block(100, 1, item))
        if item == self.item:
            try:
                self._mark(f"flowing-{item}")
                while not Path(self.folder, "go").exists():
                    yield 0, (item, "block", block(1 << 20, 1, item))
            finally:
                self._mark(f"over-{item}")

    def count(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Consumes rows as they come."""
        count = 0
        for _ in rows:
            count += 1
            if count == 20:
                self._mark("merging")
        yield str(count)

    def stall(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Consumes a row, and then no more until a file says so."""
        for _ in rows:
            self._mark("merging")
            until(lambda: Path(self.folder, "go").exists(), 600)
        yield "over"

    def spend(self, world: World, item: int) -> Iterator[str]:
        """Use CPU time: ``item`` hundredths of a second."""
        end = time.thread_time() + item / 100
        while time.thread_time() < end:
            sum(range(100))
        if item == self.item:
            raise ValueError("spent")
        yield str(item)


def hash_of(content: bytes) -> str:
    """A hash that distinguishes contents."""
    import hashlib

    return hashlib.sha256(content).hexdigest()[:16]


TASKS = {"TestTasks": TestTasks}

PROCESSES = multiprocessing.get_context("forkserver")
"""Starts processes as Spark's daemon forks its workers: everything is imported, and nothing has been called."""
PROCESSES.set_forkserver_preload(["tests.contracts.engines"])


# ------------------------------------------------------------------------------------------------------------ launchers


class Threads:
    """Actors that are threads of this process, each of which is restarted when it has failed."""

    def __init__(self, count: int = 2, host: str = "127.0.0.1") -> None:
        self.host, self.count = host, count
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, spec: ActorSpec) -> None:
        self.spec = spec
        self._threads = [
            threading.Thread(target=self._run, args=(spec, number), daemon=True) for number in range(self.count)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, spec: ActorSpec, number: int) -> None:
        while not self._over.is_set():
            with contextlib.suppress(RunError):
                run_actor(spec, number)
                return

    def check(self) -> None:
        pass

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(WITHIN)
            assert not thread.is_alive()


def _run_in_process(spec: ActorSpec, number: int, executor: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_actor(spec, number, executor)
    except RunError:
        os._exit(3)
    os._exit(0)


@dataclass(slots=True)
class Processes:
    """Actors that are processes, each replaced when it has gone.

    Attributes:
        count: number of actors.
        host: at which actors reach the driver.
        executors: number of executors that they report, by number.
        again: whether processes are replaced.
        spec: of the job that was begun.
    """

    count: int = 2
    host: str = "127.0.0.1"
    executors: int = 1
    again: bool = True
    running: dict[int, BaseProcess] = field(default_factory=dict)
    ended: list[BaseProcess] = field(default_factory=list)
    spec: ActorSpec = field(init=False, repr=False)
    _over: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    def begin(self, spec: ActorSpec) -> None:
        self.spec = spec
        for number in range(self.count):
            self._start(spec, number)
        self._keeper = threading.Thread(target=self._keep, args=(spec,), daemon=True)
        self._keeper.start()

    def _start(self, spec: ActorSpec, number: int) -> None:
        process = PROCESSES.Process(
            target=_run_in_process, args=(spec, number, str(number % self.executors)), daemon=True
        )
        process.start()
        self.running[number] = process

    def _keep(self, spec: ActorSpec) -> None:
        while not self._over.wait(0.02):
            for number, process in list(self.running.items()):
                if not process.is_alive():
                    self.ended.append(self.running.pop(number))
                    if self.again and process.exitcode:
                        self._start(spec, number)

    def check(self) -> None:
        if not self.again and not self.running:
            raise RunError("lost all actors")

    def end(self) -> None:
        self._over.set()
        assert self._keeper is not None
        self._keeper.join()
        for process in self.running.values():
            process.join(WITHIN)
            if process.is_alive():
                process.kill()
            assert process.exitcode in (0, 3), process.exitcode


def engine_of(launcher: Any, heartbeat_timeout: float = 10.0, **given: Any) -> ActorEngine:
    """An engine that executes the tests' tasks."""
    return ActorEngine(world(), launcher, heartbeat_timeout=heartbeat_timeout, tasks=TASKS, **given)


def own_address() -> str:
    """An address of this machine other than loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])

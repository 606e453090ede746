"""Engines of actors that are threads or processes, and tasks for tests, which Spark's processes import too."""

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
"""Seconds that a condition may take on a machine that does much else."""


def until(holds: Callable[[], object], within: float = WITHIN) -> None:
    """Wait for a condition."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it has not come to be"
        time.sleep(0.01)


def world() -> World:
    """The tasks of tests have nothing to do with it."""
    nothing: Any = None
    return World(storage=Folder(Path("nothing")), channel=nothing, sink=nothing, settings=nothing)


def block(size: int, rows: int = 1, seed: int = 0) -> pa.RecordBatch:
    """So many bytes in so many rows, the same for the same seed."""
    content = np.random.default_rng(seed).bytes(size)
    offsets = np.linspace(0, size, rows + 1).astype(np.int64)
    data = pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
    return pa.RecordBatch.from_arrays([data], ["data"])


# --------------------------------------------------------------------------------------------------------------- tasks


@dataclass(frozen=True, slots=True)
class TestTasks:
    """What tests have done; the attributes say what, and files in a folder say how far it is.

    Attributes:
        folder: for marks, and for who has done what.
        sizes: for each item the bytes of its rows.
        rows: of each block.
        words: for each item its lines.
        item: at which something happens.
        raises: what then does.
        arguments: of that.
        at: the row, or line, before which it does.
        parts: that rows are given for.
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
        """The words of an item."""
        for at, word in enumerate(self.words[item]):
            self._raise(item, at)
            yield word
        self._raise(item, len(self.words[item]))

    def named(self, world: World, item: str) -> Iterator[str]:
        """An item that is a text."""
        yield f"{item}!"

    def partitions(self, world: World, item: tuple[str, int, int]) -> Iterator[str]:
        """An item that is a range of a partition."""
        yield f"{item}"

    def give(self, world: World, item: int) -> Iterator[PartBlock]:
        """Blocks of an item, in turn for each part."""
        for at, size in enumerate(self.sizes[item]):
            self._raise(item, at)
            yield self.parts[at % len(self.parts)], (item, "block", block(size, self.rows, 1000 * item + at))
        self._raise(item, len(self.sizes[item]))

    def sums(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """The content of each slot's rows together, whatever it was cut into."""
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
        """The process that does it."""
        time.sleep(0.02)  # so that the next item finds another actor free
        yield str(os.getpid())

    def rows_where(self, world: World, item: int) -> Iterator[PartBlock]:
        """A row for each part that says which process has made it."""
        for part in self.parts:
            yield part, (item, "block", block(os.getpid()))

    def merged_where(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """The process of each item, and that of the merge."""
        for slot, _, content in sorted(rows, key=lambda row: row[0]):
            yield f"{slot} {content['data'][0].as_buffer().size}"
        yield f"merge {os.getpid()}"

    def wait(self, world: World, item: int) -> Iterator[str]:
        """Lines without end for one item, until a file says otherwise; for others a line."""
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
        """Nothing for one item, without a line between, until a file says otherwise."""
        if item == self.item:
            self._mark(f"waiting-{item}")
            until(lambda: Path(self.folder, "go").exists(), 1_200)
            self._mark(f"over-{item}")
        yield str(item)

    def block_rows(self, world: World, item: int) -> Iterator[PartBlock]:
        """As :meth:`block`, and then a row."""
        deque(self.block(world, item), 0)
        yield 0, (item, "block", block(100))

    def piecewise(self, world: World, item: int) -> Iterator[str]:
        """For one item pieces without a line between, until a file says otherwise; for others a line."""
        if item == self.item:
            self._mark(f"waiting-{item}")
            while not Path(self.folder, "go").exists():
                made()
                time.sleep(0.01)
            self._mark(f"over-{item}")
        yield str(item)

    def flow(self, world: World, item: int) -> Iterator[PartBlock]:
        """Rows without end for one item, of a MB each; for others one row."""
        yield 0, (item, "block", block(100, 1, item))
        if item == self.item:
            try:
                self._mark(f"flowing-{item}")
                while not Path(self.folder, "go").exists():
                    yield 0, (item, "block", block(1 << 20, 1, item))
            finally:
                self._mark(f"over-{item}")

    def count(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Takes rows as they come."""
        count = 0
        for _ in rows:
            count += 1
            if count == 20:
                self._mark("merging")
        yield str(count)

    def stall(self, world: World, part: int, rows: Iterable[Block]) -> Iterator[str]:
        """Takes a row, and then no more until a file says otherwise."""
        for _ in rows:
            self._mark("merging")
            until(lambda: Path(self.folder, "go").exists(), 600)
        yield "over"

    def spend(self, world: World, item: int) -> Iterator[str]:
        """Processor time: hundredths of a second by item."""
        end = time.thread_time() + item / 100
        while time.thread_time() < end:
            sum(range(100))
        if item == self.item:
            raise ValueError("spent")
        yield str(item)


def hash_of(content: bytes) -> str:
    """What contents are told apart by."""
    import hashlib

    return hashlib.sha256(content).hexdigest()[:16]


TASKS = {"TestTasks": TestTasks}

PROCESSES = multiprocessing.get_context("forkserver")
"""As Spark's daemon forks its workers: all is imported then, and nothing has been called."""
PROCESSES.set_forkserver_preload(["tests.contracts.engines"])


# ------------------------------------------------------------------------------------------------------------ launchers


class Threads:
    """Actors that are threads of this process, each of which is begun anew when it has failed."""

    def __init__(self, count: int = 2, host: str = "127.0.0.1") -> None:
        self.host, self.count = host, count
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def begin(self, spec: ActorSpec) -> None:
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
    """Actors that are processes, each in place of another that has gone.

    Attributes:
        count: how many.
        host: by which actors reach the driver.
        executors: how many executors they are said to be of, by number.
        again: whether others come.
    """

    count: int = 2
    host: str = "127.0.0.1"
    executors: int = 1
    again: bool = True
    running: dict[int, BaseProcess] = field(default_factory=dict)
    ended: list[BaseProcess] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _keeper: threading.Thread | None = None

    def begin(self, spec: ActorSpec) -> None:
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


def engine_of(launcher: Any, silence: float = 10.0, **given: Any) -> ActorEngine:
    """An engine that does the tasks of tests."""
    return ActorEngine(world(), launcher, silence=silence, tasks=TASKS, **given)


def own_address() -> str:
    """An address of this machine that is no loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])

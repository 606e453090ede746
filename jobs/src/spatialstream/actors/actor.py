"""An actor: a long-running process that holds slots in memory and executes the commands of its driver.

It runs an endpoint for the driver and the other actors, and sends a heartbeat to the driver's actor registry every
second. The response says whether it is to continue. If the driver does not respond for
:attr:`ActorSpec.heartbeat_timeout` seconds, it is considered dead and the actor exits. An actor that the driver has
declared lost, because it sent no heartbeat for that long, exits with an error, so that its launcher starts another one.

One thread at a time accesses the state of slots. The rows of a task are generated while they are read, by one reader or
by several, each of which reads those of its part (:mod:`~spatialstream.actors.block_parts`); while nobody reads, the
task is suspended, and other tasks may run. A command of a newer generation aborts what is running for an older one, at
its next piece of work. In the same way an actor that was itself silent for too long, such as a process that was
suspended and resumed, does no more work: another actor has taken its place.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyarrow import flight

from spatialstream.actors.block_buffer import BlockBuffer
from spatialstream.actors.block_parts import BlockParts
from spatialstream.actors.call_pool import CallPool, serve_calls
from spatialstream.actors.coordinator import QueryCoordinator
from spatialstream.actors.query_metrics import QueryMetrics
from spatialstream.actors.read_point import ReadPoints, heartbeat_interval, trust
from spatialstream.actors.wire import (
    BLOCKS,
    ActorLost,
    Command,
    Gathering,
    Guard,
    act,
    answer,
    answering,
    client_of,
    endpoint,
    options,
    own_host,
    received,
    write_blocks,
)
from spatialstream.connectors.calls import called
from spatialstream.connectors.contracts import all_put
from spatialstream.connectors.process_memory import free_pages_released, resident_bytes
from spatialstream.connectors.requests import requests
from spatialstream.model.errors import RunError
from spatialstream.model.progress import made, watched
from spatialstream.stages.division import PartBlock
from spatialstream.stages.messages import Block
from spatialstream.stages.tasks import TASKS, World
from spatialstream.stages.views import listed

__all__ = ["ELSEWHERE", "Actor", "ActorSpec", "run_actor"]

ELSEWHERE = -(2**31)
"""Key of the processor time of items that are no slot. A part of MERGE has the key ``~part``."""

_FIRST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """What a process needs to know to run an actor.

    Attributes:
        driver: address of the driver's endpoint, ``host:port``.
        secret: of the job, see :mod:`~spatialstream.actors.wire`; not shown by ``repr``.
        world: the environment of the tasks.
        asking: the secret of query clients.
        heartbeat_timeout: seconds without a heartbeat or response after which the other side is considered dead.
        identity: the certificate of the endpoints and its key, as PEM; None: connections are not encrypted.
        tasks: the task classes, by name.
    """

    driver: str
    secret: str
    world: World
    asking: str = ""
    heartbeat_timeout: float = 10.0
    identity: tuple[bytes, bytes] | None = None
    tasks: Mapping[str, type] = field(default_factory=lambda: TASKS)

    def __repr__(self) -> str:
        """Without the secrets."""
        return f"ActorSpec(driver={self.driver!r})"

    @property
    def root(self) -> bytes | None:
        """The certificate that endpoints have to present."""
        return None if self.identity is None else self.identity[0]


class Actor(flight.FlightServerBase):  # type: ignore[misc]
    """The endpoint of an actor.

    Args:
        spec: from the driver.
        host: address of this machine on which the endpoint listens, and is reached.

    Attributes:
        address: ``host:port``.
        worked: seconds of processor time of each item, of each part of MERGE under ``~part``, and of all other work
            under :data:`ELSEWHERE`.
        metrics: of the queries that it has answered between rounds.
        coordinator: answers snapshot queries.
        ended: set when the driver has let the actor exit.
        heard: when the driver responded last, s of the monotonic clock.
        trusted: until when the read point that it knows may be used as the newest one, s of the monotonic clock.
    """

    def __init__(self, spec: ActorSpec, host: str) -> None:
        scheme = "grpc+tcp" if spec.identity is None else "grpc+tls"
        certificates = [] if spec.identity is None else [spec.identity]
        super().__init__(
            f"{scheme}://{endpoint(host, 0)}",
            middleware={Guard.NAME: Guard(spec.secret, spec.asking)},
            tls_certificates=certificates,
        )
        self.address = endpoint(host, self.port)
        self.worked: dict[int, float] = defaultdict(float)
        self.progress = 0
        self.metrics = QueryMetrics()
        self.ended = threading.Event()
        self.heard, self.trusted = time.monotonic(), 0.0
        self._spec = spec
        self._turn, self._news = threading.RLock(), threading.Lock()
        self._merging: dict[int, threading.Lock] = defaultdict(threading.Lock)
        self._newest = 0.0
        self._gathered: _Gathered | None = None
        self._others: dict[str, flight.FlightClient] = {}
        self._call_pool = CallPool("find", self._client)
        newest = ReadPoints(spec.world, self.address, self._read_point, lambda: self.trusted)
        given = spec.secret, newest, self._call_pool, self._lose, self.metrics
        self.coordinator = QueryCoordinator(spec.world, *given)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """``map``: the lines of a task over items; ``gather``: the lines of a merge of several actors' rows; ``end``.

        For query clients: ``listed``, the continuous queries of a part of MERGE, see
        :func:`~spatialstream.stages.views.listed`.
        """
        if action.type != "listed":
            Guard.check_own(context)
        yield answer(lambda: self._act(action.type, json.loads(action.body.to_pybytes())))

    def _act(self, name: str, request: Any) -> Any:
        if name == "map":
            return self._map(Command.read(request))
        if name == "listed":
            number, revision = request["round"]
            place = self._spec.world.storage.place
            return listed(place, int(request["part"]), (number, revision), request["asked"])
        if name == "gather":
            return self._gather(Gathering.read(request))
        if name == "end":
            self._heed(math.inf)
            self.ended.set()
            return None
        raise ValueError(f"unknown action: {name}")

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The rows of a task over items."""
        Guard.check_own(context)
        command = Command.read(json.loads(ticket.ticket))
        return flight.GeneratorStream(BLOCKS, write_blocks(self._rows(command)))

    def do_exchange(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Persistent calls, see :mod:`~spatialstream.actors.call_pool`.

        For query clients ``ask``, and for actors ``find``, see
        :class:`~spatialstream.actors.coordinator.QueryCoordinator`.
        """
        answers = {b"ask": self.coordinator.ask, b"find": self.coordinator.find}
        if descriptor.command not in answers:
            raise ValueError(f"unknown exchange: {descriptor.command!r}")
        if descriptor.command != b"ask":
            Guard.check_own(context)
        serve_calls(reader, writer, answers[descriptor.command])

    def shutdown(self) -> None:
        """Stop accepting calls, and wait for those in progress."""
        self.let_go()
        super().shutdown()

    def let_go(self) -> None:
        """Close the persistent calls to other actors."""
        self._call_pool.close()

    def _read_point(self, seconds: float) -> Any:
        """The newest read point that the driver publishes."""
        client, address = self._client(self._spec.driver), self._spec.driver
        return act(client, "read_point", b"", options(self._spec.secret, seconds), address)

    def _lose(self, address: str) -> None:
        """Drop the client of an endpoint that does not answer: another process may listen at its address next."""
        with self._news:
            self._others.pop(address, None)

    def _client(self, address: str) -> flight.FlightClient:
        """The client of another endpoint."""
        with self._news:
            client = self._others.get(address)
            if client is None:
                client = self._others[address] = client_of(address, self._spec.root)
            return client

    # ------------------------------------------------------------------------------------------------- one at a time

    def _heed(self, generation: float) -> None:
        """Note the generation of a command: commands of older generations are abandoned."""
        with self._news:
            self._newest = max(self._newest, generation)

    @contextmanager
    def _watched(self, generation: int) -> Iterator[None]:
        """Run this thread's work under a generation: each piece is counted, and aborts the work if it is given up."""

        def piece_done() -> None:
            self.progress += 1
            self._check(generation)

        with watched(piece_done):
            yield

    def _check(self, generation: int) -> None:
        if generation < self._newest:
            raise ActorLost("the command belongs to an attempt that was abandoned")
        if time.monotonic() - self.heard > self._spec.heartbeat_timeout:
            raise ActorLost("the driver has been silent for too long")

    @contextmanager
    def _alone(self, generation: int) -> Iterator[None]:
        """Exclusive access to the state in memory, unless the command's generation has been given up."""
        self._heed(generation)
        with self._turn:
            self._check(generation)
            if self._gathered is not None and self._gathered.generation < generation:
                self._gathered.close()
                self._gathered = None
            yield

    @contextmanager
    def _counted(self, item: Any) -> Iterator[None]:
        """Add this thread's processor time to the item, whether the work succeeds or not."""
        began = time.thread_time()
        try:
            yield
        finally:
            first = item[0] if isinstance(item, tuple) else item
            self.worked[first if isinstance(first, int) else ELSEWHERE] += time.thread_time() - began

    def _map(self, command: Command) -> list[list[str]]:
        task, lines_of_items = command.task(self._spec.tasks), []
        generation = command.generation
        with self._alone(generation), self._watched(generation), all_put(self._spec.world.storage):
            for item in command.items:
                lines = list[str]()
                with self._counted(item):
                    for line in task(self._spec.world, item):
                        made()
                        lines.append(line)
                made()
                lines_of_items.append(lines)
        return lines_of_items

    def _rows(self, command: Command) -> Generator[Block]:
        """Rows of a task for a part, generated while they are read; the task runs once for all parts of a gathering."""
        with self._alone(command.generation):
            gathered = self._gathered
            if gathered is not None and gathered.gathering > command.gathering:
                raise ActorLost("the command belongs to a call that has ended")
            if gathered is None or gathered.gathering < command.gathering:
                if gathered is not None:
                    gathered.close()
                gathered = self._gathered = _Gathered(self, command)
        read = False
        try:
            yield from gathered.parts.of(command.part)
            read = True
        finally:
            if not read:
                with self._turn:
                    gathered.close()

    def _next_row(self, command: Command, rows: Generator[PartBlock]) -> PartBlock | None:
        with self._alone(command.generation), self._watched(command.generation):
            row = next(rows, None)
            made()
            return row

    def _made(self, command: Command) -> Generator[PartBlock]:
        task = command.task(self._spec.tasks)
        for item in command.items:
            with self._counted(item):
                rows = iter(task(self._spec.world, item))
            while True:
                with self._counted(item):
                    row = next(rows, None)
                if row is None:
                    break
                yield row

    # ------------------------------------------------------------------------------------------------------ gathering

    def _gather(self, gathering: Gathering) -> list[str]:
        """Merge rows of actors, this one included, as they arrive."""
        merge, sources = gathering.merge, gathering.commands()
        task = merge.task(self._spec.tasks)
        self._heed(merge.generation)
        with self._news:
            lock = self._merging[merge.part]
        with lock:  # a merge of an older generation ends with its next row
            self._check(merge.generation)
            with self._news:
                for address in self._others.keys() - {*gathering.actors, self._spec.driver}:
                    self._others.pop(address).close()
            buffer = BlockBuffer(len(sources), lambda: self._check(merge.generation))
            readers = [_Reader(self, address, command, buffer) for address, command in sources]
            try:
                with self._counted(~merge.part), self._watched(merge.generation):
                    return list(task(self._spec.world, merge.part, buffer))
            finally:
                buffer.close()
                for reader in readers:
                    reader.cancel()

    def rows_of(self, address: str, command: Command) -> tuple[Generator[Block], Callable[[], None]]:
        """Rows of an actor, which may be this one, and a function that cancels waiting for them.

        Raises:
            ActorLost: the actor does not answer.
        """
        if address == self.address:
            return self._rows(command), lambda: None
        with answering(address):
            reader = self._client(address).do_get(flight.Ticket(command.to_json()), options(self._spec.secret))
        return received(address, reader), reader.cancel


class _Gathered:
    """The running task of a gathering.

    Attributes:
        generation, gathering: of its commands.
        parts: the rows, by part.
    """

    def __init__(self, actor: Actor, command: Command) -> None:
        self.generation, self.gathering = command.generation, command.gathering
        self._rows = rows = actor._made(command)
        self.parts = BlockParts(lambda: actor._next_row(command, rows), lambda: actor._check(command.generation))

    def close(self) -> None:
        """Abort the task; requires exclusive access."""
        self.parts.end(ActorLost("the command belongs to an attempt that was abandoned"))
        self._rows.close()


class _Reader:
    """Reads the rows of an actor into a buffer, in another thread."""

    def __init__(self, actor: Actor, address: str, command: Command, buffer: BlockBuffer) -> None:
        self._actor, self._address, self._command, self._buffer = actor, address, command, buffer
        self._cancel: Callable[[], None] = lambda: None
        called(self._read)

    def _read(self) -> None:
        try:
            rows, self._cancel = self._actor.rows_of(self._address, self._command)
            with closing(rows):
                while not self._buffer.closed and (row := next(rows, None)) is not None:
                    self._buffer.write(row)
            if self._buffer.closed:
                self._cancel()  # the stream is not at its end: tell the other side to stop
        except Exception as error:  # noqa: BLE001 - raised again where the rows are merged
            self._buffer.end(error)
        else:
            self._buffer.end()

    def cancel(self) -> None:
        """Stop waiting for rows."""
        self._cancel()


# ------------------------------------------------------------------------------------------------------------ running


def run_actor(spec: ActorSpec, number: int, executor: str = "driver") -> None:
    """Run an actor until the driver lets it exit.

    Args:
        spec: from the driver.
        number: index of this actor among those that were requested.
        executor: id of the Spark executor that runs this process.

    Raises:
        RunError: the driver is gone, or has declared this actor lost.
    """
    actor = Actor(spec, own_host(spec.driver))
    try:
        with free_pages_released():
            _send_heartbeats(spec, actor, number, executor)
    finally:
        threading.Thread(target=actor.shutdown, daemon=True).start()  # it waits for calls in progress; nobody else does


def _send_heartbeats(spec: ActorSpec, actor: Actor, number: int, executor: str) -> None:
    pause, registry = heartbeat_interval(spec.heartbeat_timeout), client_of(spec.driver, spec.root)
    about = {
        "name": uuid.uuid4().hex[:12],
        "number": number,
        "address": actor.address,
        "executor": executor,
        "pid": os.getpid(),
    }
    known, rest = False, 0.0
    while not actor.ended.wait(rest):
        asked = time.monotonic()
        left = actor.heard + spec.heartbeat_timeout - asked
        worked = {str(item): spent for item, spent in list(actor.worked.items())}
        counts = {"asked": actor.metrics.counts.tolist(), "requests": requests().tolist()}
        counts |= {"progress": actor.progress, "memory": resident_bytes()}
        said = {**about, "known": known, "worked": worked, **counts}
        try:
            how = options(spec.secret, max(pause, left))  # a busy driver responds late
            answered = act(registry, "heartbeat", json.dumps(said).encode(), how, spec.driver)
        except ActorLost as error:
            rest = pause if known else min(pause, _FIRST_SECONDS)
            if time.monotonic() - actor.heard > spec.heartbeat_timeout - pause:
                raise RunError(f"the driver is gone: {error}") from None
        else:
            if answered == "lost":
                raise RunError("the driver has declared this actor lost")
            if answered == "end":
                return
            actor.heard, known, rest = asked, True, pause  # no later than when the driver received the heartbeat
            if answered == "stay":
                actor.trusted = asked + trust(spec.heartbeat_timeout)

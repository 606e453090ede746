"""An actor: a process that stays, holds slots in its memory, and does what its driver commands.

It listens where the driver and the other actors reach it, and sends a heartbeat to the driver's actor registry every
second. The answer says whether it is still wanted. A driver that has been silent for :attr:`ActorSpec.silence` seconds
is gone, and the actor ends by itself; one that was taken for lost, because it was itself silent for that long, ends
with an error, so that whoever has started it starts another.

What slots have in memory is touched by one thread at a time. Who asks for the rows of a task reads them as they are
made, or several do, each those of its part (:mod:`~spatialstream.actors.block_parts`); while they do not read, the task
stands still, and others may be done. A command of a newer try breaks off what is
under way for an older one, wherever that stands. So does nothing more an actor that was itself silent for too long, as
one that was stopped and goes on: there is another one in its place.
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

import pyarrow as pa
from pyarrow import flight

from spatialstream.actors.block_buffer import BlockBuffer
from spatialstream.actors.block_parts import BlockParts
from spatialstream.actors.call_pool import CallPool, serve_calls
from spatialstream.actors.coordinator import QueryCoordinator
from spatialstream.actors.query_metrics import QueryMetrics
from spatialstream.actors.read_point import ReadPoints, heartbeat_interval, trust
from spatialstream.actors.scatter import Scatter
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
    telling,
    told_of,
    write_blocks,
)
from spatialstream.connectors.calls import called
from spatialstream.connectors.contracts import all_put
from spatialstream.connectors.process_memory import resident_bytes
from spatialstream.connectors.requests import requests
from spatialstream.model.errors import RunError
from spatialstream.model.progress import made, watched
from spatialstream.stages import messages
from spatialstream.stages.division import PartBlock
from spatialstream.stages.messages import Block
from spatialstream.stages.tasks import TASKS, World
from spatialstream.stages.views import listed, respond

__all__ = ["ELSEWHERE", "Actor", "ActorSpec", "run_actor"]

ELSEWHERE = -(2**31)
"""Stands among items for those that have no actor of their own. A part of what is merged has ``~part`` there."""

_FIRST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """What a process has to know to be an actor.

    Attributes:
        driver: where it listens, ``host:port``.
        secret: see :mod:`~spatialstream.actors.wire`; it is not shown.
        world: what tasks have to do with.
        asking: the secret of those who may ask.
        silence: seconds after which who says nothing is gone.
        identity: the certificate that the endpoints show, and its key, as PEM; None: they speak in clear.
        tasks: the classes of tasks, by name.
    """

    driver: str
    secret: str
    world: World
    asking: str = ""
    silence: float = 10.0
    identity: tuple[bytes, bytes] | None = None
    tasks: Mapping[str, type] = field(default_factory=lambda: TASKS)

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"ActorSpec(driver={self.driver!r})"

    @property
    def root(self) -> bytes | None:
        """The certificate that endpoints have to show."""
        return None if self.identity is None else self.identity[0]


class Actor(flight.FlightServerBase):  # type: ignore[misc]
    """The endpoint of an actor.

    Args:
        spec: from the driver.
        host: address of this machine on which it listens, and is reached.

    Attributes:
        address: ``host:port``.
        worked: seconds of processor time for each item, for each part that is merged under ``~part``, and for all other
            work under :data:`ELSEWHERE`.
        metrics: of the queries that it has been asked between rounds.
        ended: is set when the driver has said that the actor may end.
        heard: when the driver was heard last, s of the monotonic clock.
        trusted: until when what it knows may be taken for the newest round, likewise.
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
        self._scatter = Scatter(spec.world, spec.secret, self._call_pool, self._lose, self.metrics)
        newest = ReadPoints(spec.world, self.address, self._read_point, lambda: self.trusted)
        self._coordinator = QueryCoordinator(spec.world, newest, self._scatter)

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """``map``: lines of a task over items; ``gather``: lines of a merge of rows of several actors; ``end``.

        For those who ask: ``listed``, what stands of a part of MERGE, see
        :func:`~spatialstream.stages.views.listed`.
        """
        if action.type != "listed":
            Guard.check_own(context)
        yield answer(lambda: self._act(action.type, json.loads(action.body.to_pybytes())))

    def _act(self, name: str, given: Any) -> Any:
        if name == "map":
            return self._map(Command.read(given))
        if name == "listed":
            number, revision = given["round"]
            place = self._spec.world.storage.place
            return listed(place, int(given["part"]), (number, revision), given["asked"])
        if name == "gather":
            return self._gather(Gathering.read(given))
        if name == "end":
            self._heed(math.inf)
            self.ended.set()
            return None
        raise ValueError(f"there is no action {name}")

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The rows of a task over items; or what slots answer to queries, as of a round."""
        head, line, query_block = ticket.ticket.partition(b"\n")
        if line:
            return flight.GeneratorStream(BLOCKS, telling(self._answers(json.loads(head), query_block)))
        Guard.check_own(context)
        command = Command.read(json.loads(ticket.ticket))
        return flight.GeneratorStream(BLOCKS, write_blocks(self._rows(command)))

    def do_exchange(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """Calls that stand, see :mod:`~spatialstream.actors.call_pool`.

        For those who ask ``ask``, see :class:`~spatialstream.actors.coordinator.QueryCoordinator`: rows come line by
        line after the JSON. For other actors ``find``, see :class:`~spatialstream.actors.scatter.Scatter`.
        """
        answers = {b"ask": self._ask, b"find": self._scatter.answer}
        if descriptor.command not in answers:
            raise ValueError(f"there is nothing to be exchanged of the name {descriptor.command!r}")
        if descriptor.command != b"ask":
            Guard.check_own(context)
        serve_calls(reader, writer, answers[descriptor.command])

    def shutdown(self) -> None:
        """Wait for calls under way, and let nobody call any more."""
        self.let_go()
        super().shutdown()

    def let_go(self) -> None:
        """End the calls of other actors that stand."""
        self._call_pool.close()

    def _answers(self, asked: Mapping[str, Any], query_block: bytes) -> Iterator[pa.RecordBatch]:
        """What slots answer, beside the turns."""
        number, revision = asked["round"]
        slots, batch = asked["slots"], messages.unpack(query_block)
        with self.metrics.counting(slots, batch):
            yield from respond(self._spec.world.storage.place, slots, (number, revision), batch)

    def _ask(self, body: bytes) -> bytes:
        lines = list[str]()

        def ask() -> dict[str, int] | None:
            given = json.loads(body)
            found = self._coordinator.ask(given["asked"], float(given["seconds"]), given.get("most"))
            if found is None:
                return None
            as_of, rows = found
            lines.extend(rows)
            return as_of

        head = told_of(ask)
        return "\n".join([head, *lines]).encode()

    def _read_point(self, seconds: float) -> Any:
        """What the driver tells of the newest round."""
        client, address = self._client(self._spec.driver), self._spec.driver
        return act(client, "read_point", b"", options(self._spec.secret, seconds), address)

    def _lose(self, address: str) -> None:
        """Another endpoint does not answer: what comes to its address next is another process."""
        with self._news:
            self._others.pop(address, None)

    def _client(self, address: str) -> flight.FlightClient:
        """Of another endpoint."""
        with self._news:
            client = self._others.get(address)
            if client is None:
                client = self._others[address] = client_of(address, self._spec.root)
            return client

    # ------------------------------------------------------------------------------------------------- one at a time

    def _heed(self, generation: float) -> None:
        """There is a try of this number: older ones have been given up."""
        with self._news:
            self._newest = max(self._newest, generation)

    @contextmanager
    def _watched(self, generation: int) -> Iterator[None]:
        """What this thread does within is of a try: each piece that is done is counted, and the last if it is over."""

        def piece_done() -> None:
            self.progress += 1
            self._check(generation)

        with watched(piece_done):
            yield

    def _check(self, generation: int) -> None:
        if generation < self._newest:
            raise ActorLost("the command is of a try that has been given up")
        if time.monotonic() - self.heard > self._spec.silence:
            raise ActorLost("the driver has been silent for too long")

    @contextmanager
    def _alone(self, generation: int) -> Iterator[None]:
        """Alone with what is in memory, unless the command is of a try that has been given up."""
        self._heed(generation)
        with self._turn:
            self._check(generation)
            if self._gathered is not None and self._gathered.generation < generation:
                self._gathered.close()
                self._gathered = None
            yield

    @contextmanager
    def _counted(self, item: Any) -> Iterator[None]:
        """Count this thread's work, whether it ends well or not."""
        began = time.thread_time()
        try:
            yield
        finally:
            first = item[0] if isinstance(item, tuple) else item
            self.worked[first if isinstance(first, int) else ELSEWHERE] += time.thread_time() - began

    def _map(self, command: Command) -> list[list[str]]:
        task, found = command.task(self._spec.tasks), []
        generation = command.generation
        with self._alone(generation), self._watched(generation), all_put(self._spec.world.storage):
            for item in command.items:
                lines = list[str]()
                with self._counted(item):
                    for line in task(self._spec.world, item):
                        made()
                        lines.append(line)
                made()
                found.append(lines)
        return found

    def _rows(self, command: Command) -> Generator[Block]:
        """Rows of a task for a part, made as they are taken; the task is done once for all parts of a gathering."""
        with self._alone(command.generation):
            gathered = self._gathered
            if gathered is not None and gathered.gathering > command.gathering:
                raise ActorLost("the command is of a gathering that is over")
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
        """Merge rows of actors, this one among them, as they come."""
        merge, sources = gathering.merge, gathering.commands()
        task = merge.task(self._spec.tasks)
        self._heed(merge.generation)
        with self._news:
            lock = self._merging[merge.part]
        with lock:  # one of an older try ends with its next row
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
        """Rows of an actor, which may be this one, and what makes an end of waiting for them.

        Raises:
            ActorLost: the actor does not answer.
        """
        if address == self.address:
            return self._rows(command), lambda: None
        with answering(address):
            reader = self._client(address).do_get(flight.Ticket(command.to_json()), options(self._spec.secret))
        return received(address, reader), reader.cancel


class _Gathered:
    """What is under way of the rows of a gathering.

    Attributes:
        generation, gathering: as its commands say.
        parts: the rows.
    """

    def __init__(self, actor: Actor, command: Command) -> None:
        self.generation, self.gathering = command.generation, command.gathering
        self._rows = rows = actor._made(command)
        self.parts = BlockParts(lambda: actor._next_row(command, rows), lambda: actor._check(command.generation))

    def close(self) -> None:
        """Break it off; to be called alone."""
        self.parts.end(ActorLost("the command is of a try that has been given up"))
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
                self._cancel()  # it has not come to an end, and the other side is to know
        except Exception as error:  # noqa: BLE001 - it is raised where the rows are merged
            self._buffer.end(error)
        else:
            self._buffer.end()

    def cancel(self) -> None:
        """Wait for rows no longer."""
        self._cancel()


# ------------------------------------------------------------------------------------------------------------ running


def run_actor(spec: ActorSpec, number: int, executor: str = "driver") -> None:
    """Be an actor, until the driver says that it may end.

    Args:
        spec: from the driver.
        number: which of the actors that were asked for.
        executor: of Spark, in which this process is.

    Raises:
        RunError: the driver is gone, or takes this actor for lost.
    """
    actor = Actor(spec, own_host(spec.driver))
    try:
        _send_heartbeats(spec, actor, number, executor)
    finally:
        threading.Thread(target=actor.shutdown, daemon=True).start()  # it waits for calls under way; nobody else does


def _send_heartbeats(spec: ActorSpec, actor: Actor, number: int, executor: str) -> None:
    pause, registry = heartbeat_interval(spec.silence), client_of(spec.driver, spec.root)
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
        left = actor.heard + spec.silence - asked
        worked = {str(item): spent for item, spent in list(actor.worked.items())}
        counts = {"asked": actor.metrics.counts.tolist(), "requests": requests().tolist()}
        counts |= {"progress": actor.progress, "memory": resident_bytes()}
        said = {**about, "known": known, "worked": worked, **counts}
        try:
            how = options(spec.secret, max(pause, left))  # a driver that has much to do answers late
            answered = act(registry, "heartbeat", json.dumps(said).encode(), how, spec.driver)
        except ActorLost as error:
            rest = pause if known else min(pause, _FIRST_SECONDS)
            if time.monotonic() - actor.heard > spec.silence - pause:
                raise RunError(f"the driver is gone: {error}") from None
        else:
            if answered == "lost":
                raise RunError("the driver has taken this actor for lost")
            if answered == "end":
                return
            actor.heard, known, rest = asked, True, pause  # not later than the driver has heard it
            if answered == "stay":
                actor.trusted = asked + trust(spec.silence)

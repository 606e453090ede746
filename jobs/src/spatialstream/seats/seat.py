"""A seat: a process that stays, holds slots in its memory, and does what its driver commands.

It listens where the driver and the other seats reach it, and says hello to the driver's desk every second. The answer
says whether it is still wanted. A driver that has been silent for :attr:`Invitation.silence` seconds is gone, and the
seat ends by itself; one that was taken for lost, because it was itself silent for that long, ends with an error, so
that whoever has started it starts another.

Commands are done one at a time, so what slots have in memory is touched by one thread. Who asks for the rows of a task
reads them as they are made; when nobody reads any more, the task ends.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from spatialstream.model.errors import RunError
from spatialstream.seats.wire import (
    ROWS,
    Command,
    Guard,
    SeatLost,
    act,
    client_of,
    options,
    raised,
    rows_of,
    told,
    write_rows,
)
from spatialstream.stages import messages
from spatialstream.stages.route import Row
from spatialstream.stages.tasks import World
from spatialstream.stages.views import respond

__all__ = ["Invitation", "Seat", "sit"]

_HELLO_SECONDS = 1.0
_AHEAD = 8
"""Rows of each other seat that MERGE's seat holds before it has taken them."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a process has to know to be a seat.

    Attributes:
        desk: where the driver listens, ``host:port``.
        secret: see :mod:`~spatialstream.seats.wire`; it is not shown.
        world: what tasks have to do with.
        asking: the secret of those who may ask.
        silence: seconds after which who says nothing is gone.
        identity: the certificate that the endpoints show, and its key, as PEM; None: they speak in clear.
    """

    desk: str
    secret: str
    world: World
    asking: str = ""
    silence: float = 10.0
    identity: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"Invitation(desk={self.desk!r})"

    @property
    def root(self) -> bytes | None:
        """The certificate that endpoints have to show."""
        return None if self.identity is None else self.identity[0]


class Seat(flight.FlightServerBase):  # type: ignore[misc]
    """The endpoint of a seat.

    Args:
        invitation: from the driver.
        host: address of this machine on which it listens, and is reached.
    """

    def __init__(self, invitation: Invitation, host: str) -> None:
        scheme = "grpc+tcp" if invitation.identity is None else "grpc+tls"
        certificates = [] if invitation.identity is None else [invitation.identity]
        super().__init__(
            f"{scheme}://{host}:0",
            middleware={Guard.NAME: Guard(invitation.secret, invitation.asking)},
            tls_certificates=certificates,
        )
        self.address = f"{host}:{self.port}"
        self.worked: dict[int, float] = defaultdict(float)
        self.ended = threading.Event()
        self._invitation = invitation
        self._turn = threading.Lock()
        self._newest = 0
        self._others: dict[str, flight.FlightClient] = {}

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """``map``: lines of a task over items; ``gather``: lines of a merge of rows of several seats; ``end``."""
        Guard.check_own(context)
        lines: list[Any] = []
        try:
            given = json.loads(action.body.to_pybytes())
            if action.type == "map":
                lines = self._map(Command.read(given))
            elif action.type == "gather":
                sources = [(address, Command.read(command)) for address, command in given["sources"]]
                lines = self._gather(Command.read(given["merge"]), sources)
            elif action.type == "end":
                self.ended.set()
            else:
                raise ValueError(f"there is no action {action.type}")
        except Exception as error:  # noqa: BLE001 - it is told
            raise told(error) from None
        yield flight.Result(json.dumps(lines).encode())

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """The rows of a task over items; or what slots answer to questions, as of a round."""
        head, line, questions = ticket.ticket.partition(b"\n")
        if line:
            return flight.GeneratorStream(ROWS, self._answers(json.loads(head), questions))
        Guard.check_own(context)
        command = Command.read(json.loads(ticket.ticket))

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                yield from write_rows(self._rows(command))
            except Exception as error:  # noqa: BLE001 - it is told
                raise told(error) from None

        return flight.GeneratorStream(ROWS, batches())

    def _answers(self, asked: Mapping[str, Any], questions: bytes) -> Iterator[pa.RecordBatch]:
        """What slots answer, beside the turns."""
        try:
            number, take = asked["round"]
            content = messages.unpack(questions)
            for batch in respond(self._invitation.world.storage.place, asked["slots"], (number, take), content):
                yield batch.cast(ROWS)
        except Exception as error:  # noqa: BLE001 - it is told
            raise told(error) from None

    @contextmanager
    def _alone(self, generation: int) -> Iterator[None]:
        """Alone with what is in memory, unless the command is of a try that has been given up."""
        self._newest = max(self._newest, generation)
        with self._turn:
            self._check(generation)
            yield

    def _check(self, generation: int) -> None:
        if generation < self._newest:
            raise SeatLost("the command is of a try that has been given up")

    def _map(self, command: Command) -> list[list[str]]:
        task, world = command.task, self._invitation.world
        with self._alone(command.generation):
            lines = []
            for item in command.items:
                began = time.thread_time()
                lines.append(list(task(world, item)))
                self._count(item, began)
            return lines

    def _rows(self, command: Command) -> Iterator[Row]:
        task, world = command.task, self._invitation.world
        with self._alone(command.generation):
            for item in command.items:
                began = time.thread_time()
                for row in task(world, item):
                    self._check(command.generation)
                    yield row
                self._count(item, began)

    def _count(self, item: Any, began: float) -> None:
        self.worked[item if isinstance(item, int) else -1] += time.thread_time() - began

    # ------------------------------------------------------------------------------------------------------ gathering

    def _gather(self, merge: Command, sources: Sequence[tuple[str, Command]]) -> list[str]:
        """Merge rows of seats, this one among them, as they come."""
        found: queue.Queue[Row | Exception | None] = queue.Queue(_AHEAD * len(sources))
        over = threading.Event()

        def put(each: Row | Exception | None) -> None:
            while not over.is_set():
                try:
                    found.put(each, timeout=0.5)
                except queue.Full:
                    continue
                return
            raise SeatLost("the merge has ended")

        def read(address: str, command: Command) -> None:
            try:
                for row in self._rows(command) if address == self.address else self._rows_of(address, command, over):
                    put(row)
                put(None)
            except Exception as error:  # noqa: BLE001 - it is raised where the rows are merged
                if not over.is_set():
                    put(error)

        def rows() -> Iterator[Row]:
            left = len(sources)
            while left:
                try:
                    each = found.get(timeout=_HELLO_SECONDS)
                except queue.Empty:
                    self._check(merge.generation)
                    continue
                if each is None:
                    left -= 1
                elif isinstance(each, Exception):
                    raise each
                else:
                    yield each

        for source in sources:
            threading.Thread(target=read, args=source, daemon=True).start()
        try:
            self._check(merge.generation)
            return list(merge.task(self._invitation.world, rows()))
        finally:
            over.set()

    def _rows_of(self, address: str, command: Command, over: threading.Event) -> Iterator[Row]:
        """Rows of another seat."""
        how = options(self._invitation.secret)
        try:
            reader = self._other(address).do_get(flight.Ticket(command.to_json()), how)
            for chunk in reader:
                if over.is_set():
                    reader.cancel()
                    return
                yield from rows_of(chunk.data)
        except (pa.ArrowException, flight.FlightError) as error:
            raise raised(error, f"the seat at {address}") from None

    def _other(self, address: str) -> flight.FlightClient:
        client = self._others.get(address)
        if client is None:
            client = self._others[address] = client_of(address, self._invitation.root)
        return client


# ------------------------------------------------------------------------------------------------------------- sitting


def sit(invitation: Invitation, number: int) -> None:
    """Be a seat, until the driver says that it may end.

    Args:
        invitation: from the driver.
        number: which of the seats that were asked for.

    Raises:
        RunError: the driver is gone, or takes this seat for lost.
    """
    seat = Seat(invitation, _own_address(invitation.desk))
    try:
        _attend(invitation, seat, number)
    finally:
        threading.Thread(target=seat.shutdown, daemon=True).start()  # it waits for calls under way; nobody else does


def _attend(invitation: Invitation, seat: Seat, number: int) -> None:
    desk, how = client_of(invitation.desk, invitation.root), options(invitation.secret, invitation.silence / 4)
    about = {
        "name": uuid.uuid4().hex[:12],
        "number": number,
        "address": seat.address,
        "executor": os.environ.get("SPARK_EXECUTOR_ID", "driver"),
        "pid": os.getpid(),
    }
    heard, pause = time.monotonic(), 0.1
    while not seat.ended.wait(pause):
        try:
            worked = {str(item): seconds for item, seconds in list(seat.worked.items())}
            answer = act(desk, "hello", json.dumps({**about, "worked": worked}).encode(), how)
        except (pa.ArrowException, flight.FlightError) as error:
            if time.monotonic() - heard > invitation.silence:
                raise RunError(f"the driver at {invitation.desk} is gone: {raised(error, 'it')}") from None
        else:
            heard, pause = time.monotonic(), _HELLO_SECONDS
            if answer == "lost":
                raise RunError("the driver has taken this seat for lost")


def _own_address(peer: str) -> str:
    """The address of this machine from which a peer is reached."""
    host, _, port = peer.rpartition(":")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host.strip("[]"), int(port)))  # sends nothing
        return str(probe.getsockname()[0])

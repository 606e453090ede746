"""What goes between driver and actors: commands and errors as JSON, rows as Arrow, and the secret that lets one in.

Every call bears the secret of the job, which its driver has made and given to its actors; who does not know it gets no
answer. Each command bears the *generation* of the driver's try: an actor does those of the newest that it has seen.

What a task has raised is an answer, or the last row of a stream, and not the end of the call: that has no room for it.
A call that ends in any other way than by an answer is an actor that is lost.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
from pyarrow import flight

from spatialstream.actors.identity import NAME
from spatialstream.model import errors
from spatialstream.model.errors import RunError, SpatialStreamError, Unavailable
from spatialstream.model.jsonable import from_json, to_json
from spatialstream.stages import messages
from spatialstream.stages.messages import Block
from spatialstream.stream.engine import StageError

__all__ = [
    "BLOCKS",
    "PINGS_SECONDS",
    "ActorLost",
    "Command",
    "Gathering",
    "Guard",
    "act",
    "answer",
    "answering",
    "client_of",
    "endpoint",
    "options",
    "own_host",
    "raised",
    "received",
    "rows_of",
    "telling",
    "told",
    "told_of",
    "write_blocks",
]

BLOCKS = pa.schema([("slot", pa.int32()), ("kind", pa.string()), ("data", pa.binary())])
"""Rows of a stage; the data are an Arrow IPC stream of one block."""

PINGS_SECONDS = 330
"""Between two pings of a client on a call on which nothing comes.

gRPC's server takes one every 300 s; after the third that is sooner it ends the connection (``too_many_pings``). Flight
gives no way to have it take more, so clients keep to that.
"""

_SILENT_SECONDS = 10
"""For which a machine may leave unanswered what is sent to it, or a ping."""

_CLIENT = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A peer whose machine is gone says nothing. Heartbeats tell the driver of that, and it tells the others; what has
    # been sent and is not acknowledged fails after the timeout, which is TCP_USER_TIMEOUT too; a call that nobody gives
    # up is ended by a ping.
    ("grpc.keepalive_time_ms", 1_000 * PINGS_SECONDS),
    ("grpc.keepalive_timeout_ms", 1_000 * _SILENT_SECONDS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
]

_FAILED = "failed"
"""The kind of the row that tells what a task has raised."""

_LONGEST = 10_000
"""Characters of an error's texts; the rest is cut off."""


class ActorLost(Unavailable):
    """An actor has gone, does not answer, or serves another driver; what it was doing can be done again elsewhere.

    Args:
        problem: one clause that says what happened.
        address: of the endpoint that did not answer; empty: it is no such case.
    """

    def __init__(self, problem: str, address: str = "") -> None:
        super().__init__(problem, address)
        self.problem, self.address = problem, address

    def __str__(self) -> str:
        """The problem."""
        return self.problem


# ------------------------------------------------------------------------------------------------------------ commands


@dataclass(frozen=True, slots=True)
class Command:
    """A task over some items.

    Attributes:
        kind: the name of one of the classes of tasks that there are.
        method: its method.
        value: its attributes, as JSON.
        items: what it is done over; of a task that merges, none.
        generation: of the driver's try.
        gathering: which of its gatherings the command is of.
        part: whose rows are wanted, or merged.
    """

    kind: str
    method: str
    value: str
    items: tuple[Any, ...] = ()
    generation: int = 0
    gathering: int = 0
    part: int = 0

    @classmethod
    def of(
        cls, do: Callable[..., object], items: Sequence[object], generation: int, gathering: int = 0, part: int = 0
    ) -> Command:
        """A bound method of a task as a command."""
        tasks = do.__self__  # type: ignore[attr-defined]
        return cls(type(tasks).__name__, do.__name__, to_json(tasks), tuple(items), generation, gathering, part)

    def task(self, tasks: Mapping[str, type]) -> Callable[..., Any]:
        """The bound method.

        Args:
            tasks: classes of tasks, by name.

        Raises:
            ValueError: it is none that there is.
        """
        kind = tasks.get(self.kind)
        if kind is None or self.method.startswith("_") or not callable(vars(kind).get(self.method)):
            raise ValueError(f"there is no task {self.kind}.{self.method}")
        method: Callable[..., Any] = getattr(from_json(kind, self.value), self.method)
        return method

    def to_json(self) -> bytes:
        """As it is sent."""
        return to_json(self).encode()

    def over(self, groups: Iterable[Sequence[Any]]) -> Iterator[bytes]:
        """As it is sent, over each of several groups of items: what they have in common is made once."""
        rest = to_json({field.name: getattr(self, field.name) for field in fields(self) if field.name != "items"})
        for items in groups:
            yield f'{{"items": {to_json(items)}, {rest[1:]}'.encode()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Command:
        """What :meth:`to_json` gave, parsed."""
        return cls(**{**given, "items": _items(given["items"])})


def _items(given: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(tuple(item) if isinstance(item, list) else item for item in given)


@dataclass(frozen=True, slots=True)
class Gathering:
    """What a part of MERGE is told: to merge what actors make of some items.

    Each part is told of all actors, so what it is told of one is its address and its items alone.

    Attributes:
        merge: the task that merges.
        work: that of the actors, over no items.
        sources: address and items of each actor that has some.
        actors: the addresses of all that there are.
    """

    merge: Command
    work: Command
    sources: Sequence[tuple[str, tuple[Any, ...]]]
    actors: Sequence[str]

    def of_parts(self, parts: Iterable[int]) -> Iterator[bytes]:
        """As it is sent to each of several parts: what they have in common is made once."""
        rest = to_json(self)
        for part in parts:
            yield f'{{"part": {part}, {rest[1:]}'.encode()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Gathering:
        """What :meth:`of_parts` gave for a part, parsed."""
        merge, work = (replace(Command.read(given[name]), part=given["part"]) for name in ("merge", "work"))
        return cls(merge, work, [(address, _items(items)) for address, items in given["sources"]], given["actors"])

    def commands(self) -> list[tuple[str, Command]]:
        """What each actor is told, by its address."""
        return [(address, replace(self.work, items=items)) for address, items in self.sources]


def write_blocks(rows: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """Rows as batches of :data:`BLOCKS`; if making them fails, the last one tells of it."""
    return telling(batch for row in rows for batch in messages.messages(*row))


def telling(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches as of :data:`BLOCKS`; if making them fails, the last one tells of it."""
    try:
        yield from batches
    except Exception as error:  # noqa: BLE001 - it is told
        words = json.dumps(told(error)).encode()
        yield pa.RecordBatch.from_pydict({"slot": [-1], "kind": [_FAILED], "data": [words]}, BLOCKS)


def rows_of(batch: pa.RecordBatch) -> list[Block]:
    """The rows of a batch of :func:`write_blocks`.

    Raises:
        Exception: what the one tells that has made them.
    """
    if batch.num_rows and batch["kind"][0].as_py() == _FAILED:
        raise raised(json.loads(batch["data"][0].as_py()))
    return messages.blocks(batch)


# -------------------------------------------------------------------------------------------------------------- errors


def told(error: Exception) -> dict[str, Any]:
    """What a task has raised, as JSON."""
    text, args = str(error), error.args
    if isinstance(error, OSError | MemoryError):
        kind = "system"
        args = (*args, error.filename) if isinstance(error, OSError) and error.filename is not None else args
    elif isinstance(error, SpatialStreamError):
        kind = "ours"
    else:
        kind, args = "stage", ()
        text = text if isinstance(error, StageError) else f"{type(error).__name__}: {text}"
    words = [each if isinstance(each, int | None) else str(each)[:_LONGEST] for each in args]
    return {"kind": kind, "name": type(error).__name__, "args": words, "text": text[:_LONGEST]}


def raised(given: Mapping[str, Any]) -> Exception:
    """What :func:`told` told of: the error itself, or :class:`StageError` where a stage has raised it by itself."""
    name, args, text = given["name"], given["args"], given["text"]
    if given["kind"] == "stage":
        return StageError(text)
    if given["kind"] == "system" and "Memory" in name:
        return MemoryError(*args)
    if given["kind"] == "system":
        error = OSError(*args)  # by its number it is of the right class
        return error if str(error) == text else OSError(text)
    kind = ActorLost if name == ActorLost.__name__ else getattr(errors, name, RunError)
    try:
        known: Exception = kind(*args)
    except TypeError:
        return RunError(text)
    return known


# ------------------------------------------------------------------------------------------------------------- secrets


class Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who knows a secret: that of the job's own processes, or that of those who may only ask.

    Args:
        secret: of the job.
        asking: of who may ask; empty: nobody may.
    """

    NAME = "secret"

    def __init__(self, secret: str, asking: str = "") -> None:
        super().__init__()
        self._known = {f"Bearer {secret}".encode(): True}
        if asking:
            self._known[f"Bearer {asking}".encode()] = False

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> flight.ServerMiddleware:
        """As Flight calls it, before each call."""
        for given in headers.get("authorization", ()):
            shown = given.encode() if isinstance(given, str) else given
            for known, is_own in self._known.items():
                if hmac.compare_digest(shown, known):
                    return _LetIn(is_own)
        raise flight.FlightUnauthenticatedError("this endpoint is for the processes of one stream")

    @staticmethod
    def check_own(context: Any) -> None:
        """Refuse a call that is not of the job's own processes."""
        if not context.get_middleware(Guard.NAME).is_own:
            raise flight.FlightUnauthorizedError("this is for the stream's own processes")


class _LetIn(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, is_own: bool) -> None:
        super().__init__()
        self.is_own = is_own


def options(secret: str, seconds: float | None = None) -> flight.FlightCallOptions:
    """Of a call; with the seconds within which it has to be done."""
    return flight.FlightCallOptions(timeout=seconds, headers=[(b"authorization", f"Bearer {secret}".encode())])


def client_of(address: str, root: bytes | None = None) -> flight.FlightClient:
    """A client of an endpoint; connects when it is first used.

    Args:
        address: ``host:port``.
        root: the certificate that it has to show; None: it speaks in clear, on this machine alone.
    """
    if root is None:
        return flight.FlightClient(f"grpc+tcp://{address}", generic_options=_CLIENT)
    named = [*_CLIENT, ("grpc.ssl_target_name_override", NAME)]
    return flight.FlightClient(f"grpc+tls://{address}", tls_root_certs=root, generic_options=named)


def act(
    client: flight.FlightClient, name: str, body: bytes, how: flight.FlightCallOptions, address: str = "the address"
) -> Any:
    """Have an endpoint do an action; what it answers.

    Raises:
        ActorLost: it does not answer.
        Exception: what it tells that it has raised.
    """
    with answering(address):
        answer = b"".join(result.body.to_pybytes() for result in client.do_action(flight.Action(name, body), how))
        given = json.loads(answer)
    if "failed" in given:
        raise raised(given["failed"])
    return given["answer"]


def answer(do: Callable[[], Any]) -> flight.Result:
    """What :func:`act` is answered: what a function gives, or what it raises."""
    return flight.Result(told_of(do).encode())


def told_of(do: Callable[[], Any]) -> str:
    """What a function gives, or what it raises, as JSON."""
    try:
        return json.dumps({"answer": do()})
    except Exception as error:  # noqa: BLE001 - it is told
        return json.dumps({"failed": told(error)})


@contextmanager
def answering(address: str) -> Iterator[None]:
    """Calls of an endpoint, which may fail.

    Raises:
        ActorLost: one does.
    """
    try:
        yield
    except (pa.ArrowException, flight.FlightError, OSError, ValueError) as error:
        first = str(error).partition(". gRPC client debug context")[0].partition("\n")[0]
        why = "nobody is there" if "failed to connect" in first else first[:200]
        raise ActorLost(f"the process at {address} does not answer: {why}", address) from None


def received(address: str, reader: flight.FlightStreamReader) -> Generator[Block]:
    """Rows of a call of :class:`~spatialstream.actors.actor.Actor`, as they come.

    Raises:
        ActorLost: the actor has gone.
        Exception: what it tells that it has raised.
    """
    while True:
        try:
            with answering(address):
                batch = reader.read_chunk().data
        except StopIteration:
            return
        yield from rows_of(batch)


# ----------------------------------------------------------------------------------------------------------- addresses


def endpoint(host: str, port: int | str) -> str:
    """A host and a port as an address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own_host(peer: str) -> str:
    """The address of this machine from which a peer is reached: there others reach this process.

    Raises:
        RunError: the peer's name has no address that can be reached from here.
    """
    host, _, port = peer.rpartition(":")
    problem = ""
    try:
        known = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    except OSError as error:
        raise RunError(f"the driver's host {host} has no address: {error.strerror}") from None
    for family, kind, _, _, address in known:
        try:
            with socket.socket(family, kind) as probe:
                probe.connect(address)  # sends nothing
                return str(probe.getsockname()[0])
        except OSError as error:
            problem = str(error)
    raise RunError(f"the driver's host {host} cannot be reached from here: {problem}")

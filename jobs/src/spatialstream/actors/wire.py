"""What driver and actors exchange: commands and errors as JSON, rows as Arrow; and the secret that authenticates calls.

Every call carries the secret of the job, which its driver has created and given to its actors; calls without it are
rejected. Each command carries the *generation* of the driver's try: an actor executes only those of the newest
generation that it has seen.

An exception of a task is sent as an answer, or as the last row of a stream, and does not end the call with an error,
which could not carry it. A call that ends in any other way than by an answer means that the actor is lost.
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
    "error_json",
    "options",
    "own_host",
    "raised",
    "received",
    "rows_of",
    "told_of",
    "write_blocks",
]

BLOCKS = pa.schema([("slot", pa.int32()), ("kind", pa.string()), ("data", pa.binary())])
"""Rows of a stage; the data are an Arrow IPC stream of one block."""

PINGS_SECONDS = 330
"""Interval of a client's pings on an idle call.

gRPC's server allows one every 300 s; after the third that comes sooner it closes the connection (``too_many_pings``).
Flight offers no way to change that, so clients comply.
"""

_SILENT_SECONDS = 10
"""For how long a machine may leave data, or a ping, unacknowledged."""

CLIENT_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A peer whose machine is gone says nothing. The driver notices by heartbeats, and tells the others. What has been
    # sent and is not acknowledged fails after the timeout, which is TCP_USER_TIMEOUT too. A ping ends a call that
    # nobody gives up.
    ("grpc.keepalive_time_ms", 1_000 * PINGS_SECONDS),
    ("grpc.keepalive_timeout_ms", 1_000 * _SILENT_SECONDS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
]

_FAILED = "failed"
"""The kind of the row that carries an exception."""

_LONGEST = 10_000
"""Maximum characters of each text of an exception; the rest is cut off."""


class ActorLost(Unavailable):
    """An actor has gone, does not answer, or serves another driver; its work can be done again elsewhere.

    Args:
        problem: one clause that says what happened.
        address: of the endpoint that did not answer; empty in other cases.
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
        kind: the name of a task class.
        method: its method.
        value: its attributes, as JSON.
        items: what the task is executed over; empty for a task that merges.
        generation: of the driver's try.
        gathering: number of the driver's gathering to which the command belongs.
        part: the part whose rows are requested, or merged.
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
            tasks: the task classes, by name.

        Raises:
            ValueError: there is no such class or method.
        """
        kind = tasks.get(self.kind)
        if kind is None or self.method.startswith("_") or not callable(vars(kind).get(self.method)):
            raise ValueError(f"unknown task: {self.kind}.{self.method}")
        method: Callable[..., Any] = getattr(from_json(kind, self.value), self.method)
        return method

    def to_json(self) -> bytes:
        """The serialized command."""
        return to_json(self).encode()

    def over(self, groups: Iterable[Sequence[Any]]) -> Iterator[bytes]:
        """The serialized command over each of several groups of items; the common part is serialized once."""
        rest = to_json({field.name: getattr(self, field.name) for field in fields(self) if field.name != "items"})
        for items in groups:
            yield f'{{"items": {to_json(items)}, {rest[1:]}'.encode()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Command:
        """Parse what :meth:`to_json` returned."""
        return cls(**{**given, "items": _items(given["items"])})


def _items(given: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(tuple(item) if isinstance(item, list) else item for item in given)


@dataclass(frozen=True, slots=True)
class Gathering:
    """The command for a part of MERGE: merge what actors make of some items.

    Each part gets the list of all actors, so the entry of an actor is only its address and its items.

    Attributes:
        merge: the task that merges.
        work: the task of the actors, without items.
        sources: address and items of each actor that has some.
        actors: the addresses of all live actors.
    """

    merge: Command
    work: Command
    sources: Sequence[tuple[str, tuple[Any, ...]]]
    actors: Sequence[str]

    def of_parts(self, parts: Iterable[int]) -> Iterator[bytes]:
        """The serialized command for each of several parts; the common part is serialized once."""
        rest = to_json(self)
        for part in parts:
            yield f'{{"part": {part}, {rest[1:]}'.encode()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Gathering:
        """Parse what :meth:`of_parts` returned for a part."""
        merge, work = (replace(Command.read(given[name]), part=given["part"]) for name in ("merge", "work"))
        return cls(merge, work, [(address, _items(items)) for address, items in given["sources"]], given["actors"])

    def commands(self) -> list[tuple[str, Command]]:
        """The command for each actor, by its address."""
        return [(address, replace(self.work, items=items)) for address, items in self.sources]


def write_blocks(rows: Iterable[Block]) -> Iterator[pa.RecordBatch]:
    """Rows as batches of :data:`BLOCKS`; if generating them fails, the last batch carries the exception."""
    try:
        yield from (batch for row in rows for batch in messages.messages(*row))
    except Exception as error:  # noqa: BLE001 - sent to the caller
        words = json.dumps(error_json(error)).encode()
        yield pa.RecordBatch.from_pydict({"slot": [-1], "kind": [_FAILED], "data": [words]}, BLOCKS)


def rows_of(batch: pa.RecordBatch) -> list[Block]:
    """The rows of a batch of :func:`write_blocks`.

    Raises:
        Exception: the one that the batch carries.
    """
    if batch.num_rows and batch["kind"][0].as_py() == _FAILED:
        raise raised(json.loads(batch["data"][0].as_py()))
    return messages.blocks(batch)


# -------------------------------------------------------------------------------------------------------------- errors


def error_json(error: Exception) -> dict[str, Any]:
    """An exception of a task, as JSON."""
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


def raised(failure: Mapping[str, Any]) -> Exception:
    """The exception of :func:`error_json`; :class:`StageError` for an unexpected exception in a stage."""
    name, args, text = failure["name"], failure["args"], failure["text"]
    if failure["kind"] == "stage":
        return StageError(text)
    if failure["kind"] == "system" and "Memory" in name:
        return MemoryError(*args)
    if failure["kind"] == "system":
        error = OSError(*args)  # errno selects the subclass
        return error if str(error) == text else OSError(text)
    kind = ActorLost if name == ActorLost.__name__ else getattr(errors, name, RunError)
    try:
        known: Exception = kind(*args)
    except TypeError:
        return RunError(text)
    return known


# ------------------------------------------------------------------------------------------------------------- secrets


class Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates calls by a secret: that of the job's own processes, or that of query clients.

    Args:
        secret: of the job.
        asking: of query clients; empty: there are none.
    """

    NAME = "secret"

    def __init__(self, secret: str, asking: str = "") -> None:
        super().__init__()
        self._known = {f"Bearer {secret}".encode(): True}
        if asking:
            self._known[f"Bearer {asking}".encode()] = False

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> flight.ServerMiddleware:
        """Called by Flight before each call."""
        for given in headers.get("authorization", ()):
            shown = given.encode() if isinstance(given, str) else given
            for known, is_own in self._known.items():
                if hmac.compare_digest(shown, known):
                    return _LetIn(is_own)
        raise flight.FlightUnauthenticatedError("the call lacks the secret of this stream")

    @staticmethod
    def check_own(context: Any) -> None:
        """Reject a call that does not come from the job's own processes."""
        if not context.get_middleware(Guard.NAME).is_own:
            raise flight.FlightUnauthorizedError("only the stream's own processes may call this")


class _LetIn(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, is_own: bool) -> None:
        super().__init__()
        self.is_own = is_own


def options(secret: str, seconds: float | None = None) -> flight.FlightCallOptions:
    """Options of a call, with its timeout in seconds."""
    return flight.FlightCallOptions(timeout=seconds, headers=[(b"authorization", f"Bearer {secret}".encode())])


def client_of(address: str, root: bytes | None = None) -> flight.FlightClient:
    """A client of an endpoint; connects on first use.

    Args:
        address: ``host:port``.
        root: the certificate that it has to present; None: not encrypted, on this machine only.
    """
    if root is None:
        return flight.FlightClient(f"grpc+tcp://{address}", generic_options=CLIENT_OPTIONS)
    named = [*CLIENT_OPTIONS, ("grpc.ssl_target_name_override", NAME)]
    return flight.FlightClient(f"grpc+tls://{address}", tls_root_certs=root, generic_options=named)


def act(
    client: flight.FlightClient, name: str, body: bytes, how: flight.FlightCallOptions, address: str = "the address"
) -> Any:
    """Call an action of an endpoint, and return its answer.

    Raises:
        ActorLost: the endpoint does not answer.
        Exception: the one that its answer carries.
    """
    with answering(address):
        answer = b"".join(result.body.to_pybytes() for result in client.do_action(flight.Action(name, body), how))
        given = json.loads(answer)
    if "failed" in given:
        raise raised(given["failed"])
    return given["answer"]


def answer(do: Callable[[], Any]) -> flight.Result:
    """The answer to :func:`act`: a function's result, or its exception."""
    return flight.Result(told_of(do).encode())


def told_of(do: Callable[[], Any]) -> str:
    """A function's result, or its exception, as JSON."""
    try:
        return json.dumps({"answer": do()})
    except Exception as error:  # noqa: BLE001 - sent to the caller
        return json.dumps({"failed": error_json(error)})


@contextmanager
def answering(address: str) -> Iterator[None]:
    """A context for calls to an endpoint; turns their failures into ActorLost.

    Raises:
        ActorLost: a call has failed.
    """
    try:
        yield
    except (pa.ArrowException, flight.FlightError, OSError, ValueError) as error:
        first = str(error).partition(". gRPC client debug context")[0].partition("\n")[0]
        why = "the connection failed" if "failed to connect" in first else first[:200]
        raise ActorLost(f"the process at {address} does not answer: {why}", address) from None


def received(address: str, reader: flight.FlightStreamReader) -> Generator[Block]:
    """Rows of a call to :class:`~spatialstream.actors.actor.Actor`, as they arrive.

    Raises:
        ActorLost: the actor has gone.
        Exception: the one that the stream carries.
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
    """The address of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own_host(peer: str) -> str:
    """The address of this machine on the route to a peer, at which others reach this process.

    Raises:
        RunError: the peer's name does not resolve, or none of its addresses can be reached from here.
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

"""What goes between driver and seats: commands and errors as JSON, rows as Arrow, and the secret that lets one in.

Every call bears the secret of the job, which its driver has made and given to its seats; who does not know it gets no
answer. Each command bears the *generation* of the driver's try: a seat does those of the newest that it has seen.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from spatialstream.model import errors
from spatialstream.model.errors import RunError, SpatialStreamError, Unavailable
from spatialstream.model.jsonable import from_json, to_json
from spatialstream.seats.identity import NAME
from spatialstream.stages import messages
from spatialstream.stages.leaving import AMBIENT
from spatialstream.stages.route import Row
from spatialstream.stages.tasks import TASKS
from spatialstream.stream.engine import StageError

__all__ = [
    "ROWS",
    "Command",
    "Guard",
    "SeatLost",
    "act",
    "client_of",
    "options",
    "raised",
    "rows_of",
    "told",
    "write_rows",
]

ROWS = pa.schema([("slot", pa.int32()), ("kind", pa.string()), ("data", pa.binary())])
"""Rows of a stage; the data are an Arrow IPC stream of one block."""

_CLIENT = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # a peer whose machine is gone says nothing: it is asked
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.enable_http_proxy", 0),
]

_TOLD = re.compile(r"seat-error:([\w+/=]+);")
_LONGEST = 2_000
"""Characters of an error; what a call says of its end is bounded."""


class SeatLost(Unavailable):
    """A seat has gone, does not answer, or serves another driver; what it was doing can be done again elsewhere."""


# ------------------------------------------------------------------------------------------------------------ commands


@dataclass(frozen=True, slots=True)
class Command:
    """A task over some items.

    Attributes:
        kind: one of :data:`~spatialstream.stages.tasks.TASKS`.
        method: its method.
        value: its attributes, as JSON.
        items: what it is done over; of a task that merges, none.
        generation: of the driver's try.
    """

    kind: str
    method: str
    value: str
    items: tuple[Any, ...] = ()
    generation: int = 0

    @classmethod
    def of(cls, do: Callable[..., object], items: Sequence[object], generation: int) -> Command:
        """A bound method of a task as a command."""
        tasks = do.__self__  # type: ignore[attr-defined]
        return cls(type(tasks).__name__, do.__name__, to_json(tasks), tuple(items), generation)

    @property
    def task(self) -> Callable[..., Any]:
        """The bound method.

        Raises:
            ValueError: it is none that there is.
        """
        kind = TASKS.get(self.kind)
        if kind is None or self.method.startswith("_") or self.method not in vars(kind):
            raise ValueError(f"there is no task {self.kind}.{self.method}")
        method: Callable[..., Any] = getattr(from_json(kind, self.value), self.method)
        return method

    def to_json(self) -> bytes:
        """As it is sent."""
        return to_json(self).encode()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Command:
        """What :meth:`to_json` gave, parsed."""
        items = tuple(tuple(item) if isinstance(item, list) else item for item in given["items"])
        return cls(given["kind"], given["method"], given["value"], items, given["generation"])


def write_rows(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Rows as batches of :data:`ROWS`."""
    for row in rows:
        for batch in messages.messages(*row):
            yield batch.cast(ROWS)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The rows of a batch of :func:`write_rows`."""
    return messages.blocks(batch)


# -------------------------------------------------------------------------------------------------------------- errors


def told(error: BaseException) -> Exception:
    """What a task has raised, as the error of a call that tells it."""
    name, words = type(error).__name__, [str(each)[:_LONGEST] for each in error.args]
    kind = "ours" if isinstance(error, SpatialStreamError) else "system" if isinstance(error, AMBIENT) else "stage"
    content = json.dumps({"kind": kind, "name": name, "args": words, "text": str(error)[:_LONGEST]}).encode()
    known: Exception = flight.FlightServerError(f"seat-error:{base64.b64encode(content).decode()};")
    return known


def raised(error: BaseException, seat: str) -> BaseException:
    """What the error of a call tells: what a task has raised, or else that the seat is lost."""
    if not isinstance(error, pa.ArrowException | flight.FlightError):
        return error
    found = _TOLD.search(str(error))
    if found is None:
        first = str(error).partition(". gRPC client debug context")[0].partition("\n")[0]
        why = "nobody is there" if "failed to connect" in first else first[:200]
        return SeatLost(f"{seat} does not answer: {why}")
    given = json.loads(base64.b64decode(found[1]))
    name, words, text = given["name"], given["args"], given["text"]
    if given["kind"] == "stage":
        return StageError(f"{name}: {text}")
    if given["kind"] == "system":
        return MemoryError(text) if "Memory" in name else OSError(text)
    if name == SeatLost.__name__:
        return SeatLost(text)
    kind: type[Exception] = getattr(errors, name, RunError)
    try:
        return kind(*words)
    except TypeError:
        return RunError(text)


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


def act(client: flight.FlightClient, name: str, body: bytes, how: flight.FlightCallOptions) -> Any:
    """Have an endpoint do an action; what it answers, parsed."""
    answer = b"".join(result.body.to_pybytes() for result in client.do_action(flight.Action(name, body), how))
    return json.loads(answer) if answer else None

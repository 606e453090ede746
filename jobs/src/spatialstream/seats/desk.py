"""Where seats say hello: which ones there are, and which have gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyarrow import flight

from spatialstream.seats.wire import Guard, client_of

__all__ = ["Desk", "Seated"]


@dataclass(slots=True)
class Seated:
    """A seat, as the driver knows it.

    Attributes:
        name: of this process; another one that takes its place has another.
        number: of the seat.
        address: ``host:port`` of its endpoint.
        executor: of Spark, in which it is.
        pid: of the process, on its machine.
        client: of its endpoint.
        heard: when it said hello last, s of the monotonic clock.
        worked: seconds of processor time for each item, since it is there.
    """

    name: str
    number: int
    address: str
    executor: str
    pid: int
    client: flight.FlightClient
    heard: float
    worked: dict[int, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """As a person would call it."""
        return f"seat {self.number} (process {self.pid} of executor {self.executor}, at {self.address})"


class Desk(flight.FlightServerBase):  # type: ignore[misc]
    """The driver's endpoint, and the list of seats.

    Args:
        host: address of this machine on which it listens.
        secret: see :mod:`~spatialstream.seats.wire`.
        silence: seconds after which a seat that says nothing is lost.
        identity: see :class:`~spatialstream.seats.seat.Invitation`.
        asking: the secret of those who may ask.
        directory: says where to ask, as JSON.
    """

    def __init__(
        self,
        host: str,
        secret: str,
        silence: float,
        identity: tuple[bytes, bytes] | None = None,
        asking: str = "",
        directory: Callable[[], bytes] = lambda: b"null",
    ) -> None:
        scheme, certificates = ("grpc+tcp", []) if identity is None else ("grpc+tls", [identity])
        given = {"middleware": {Guard.NAME: Guard(secret, asking)}, "tls_certificates": certificates}
        super().__init__(f"{scheme}://{host}:0", **given)
        self._directory = directory
        self._silence, self._root = silence, None if identity is None else identity[0]
        self._seats: dict[str, Seated] = {}
        self._gone: set[str] = set()
        self._lock = threading.Lock()
        self.changed = threading.Event()

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """``hello``: a seat is there; ``directory``: where to ask."""
        if action.type == "directory":
            yield flight.Result(self._directory())
        elif action.type == "hello":
            Guard.check_own(context)
            yield flight.Result(json.dumps(self._hello(json.loads(action.body.to_pybytes()))).encode())
        else:
            raise flight.FlightServerError(f"there is no action {action.type}")

    def _hello(self, said: Mapping[str, Any]) -> str:
        name, now = said["name"], time.monotonic()
        with self._lock:
            if name in self._gone:
                return "lost"
            seat = self._seats.get(name)
            if seat is None:
                for other in [each for each in self._seats.values() if each.number == said["number"]]:
                    self._drop(other.name)  # this one has taken its place
                about = {key: said[key] for key in ("name", "number", "address", "executor", "pid")}
                seat = Seated(client=client_of(said["address"], self._root), heard=now, **about)
                self._seats[name] = seat
                self.changed.set()
            seat.heard, seat.worked = now, {int(item): seconds for item, seconds in said["worked"].items()}
        return "stay"

    def _drop(self, name: str) -> None:
        self._gone.add(name)
        self._seats.pop(name, None)
        self.changed.set()

    def drop(self, name: str) -> None:
        """Take a seat for lost."""
        with self._lock:
            self._drop(name)

    def seats(self) -> list[Seated]:
        """The seats that there are, by number; those that have been silent for too long are dropped."""
        now = time.monotonic()
        with self._lock:
            for name in [each.name for each in self._seats.values() if now - each.heard > self._silence]:
                self._drop(name)
            return sorted(self._seats.values(), key=lambda each: each.number)

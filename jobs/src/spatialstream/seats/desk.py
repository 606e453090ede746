"""Where seats say hello: which ones there are, and which have gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyarrow import flight

from spatialstream.seats.newest import trust
from spatialstream.seats.tally import Counts, none_asked
from spatialstream.seats.wire import Guard, answer, client_of, endpoint
from spatialstream.sources.requests import Requests, no_requests

__all__ = ["Desk", "Seated"]

_ABOUT: dict[str, type] = {"name": str, "number": int, "address": str, "executor": str, "pid": int}
"""What a seat says of itself."""


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
        trusted: until when it may take what it knows for the newest round, likewise.
        worked: seconds of processor time for each item, since it is there.
        asked: of it, see :class:`~spatialstream.seats.tally.Tally`.
        requests: that it has made of an object store.
        progress: pieces of work that it has done.
        moved: when it had last done more of them than the time before, s of the monotonic clock.
        memory: bytes that the process has.
    """

    name: str
    number: int
    address: str
    executor: str
    pid: int
    client: flight.FlightClient
    heard: float
    trusted: float = 0.0
    worked: dict[int, float] = field(default_factory=dict)
    asked: Counts = field(default_factory=none_asked)
    requests: Requests = field(default_factory=no_requests)
    progress: int = 0
    moved: float = 0.0
    memory: int = 0

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

    Attributes:
        asked: the questions that all seats have been asked, those too that have gone.
        requests: that they have made of an object store, likewise.
    """

    def __init__(
        self,
        host: str,
        secret: str,
        silence: float,
        identity: tuple[bytes, bytes] | None = None,
        asking: str = "",
        directory: Callable[[], Any] = lambda: None,
    ) -> None:
        scheme, certificates = ("grpc+tcp", []) if identity is None else ("grpc+tls", [identity])
        given = {"middleware": {Guard.NAME: Guard(secret, asking)}, "tls_certificates": certificates}
        super().__init__(f"{scheme}://{endpoint(host, 0)}", **given)
        self._directory = directory
        self._silence, self._root = silence, None if identity is None else identity[0]
        self._seats: dict[str, Seated] = {}
        self._changed, self._changes, self._changed_at = threading.Condition(), 0, time.monotonic()
        self._closed = False
        # seats of a driver before this one, if there was one, have been trusted for no longer
        self._gone_until, self._doubted = time.monotonic() + trust(silence), frozenset[str]()
        self.asked, self.requests = none_asked(), no_requests()

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """``hello``: a seat is there; ``directory``: where to ask."""
        if action.type != "directory":
            Guard.check_own(context)
        yield answer(lambda: self._act(action.type, action.body.to_pybytes()))

    def _act(self, name: str, body: bytes) -> Any:
        if name == "directory":
            return self._directory()
        if name == "hello":
            return self._hello(json.loads(body))
        raise ValueError(f"there is no action {name}")

    def _hello(self, said: Mapping[str, Any]) -> str:
        """What the seat is to do: ``stay``, ``ask`` (stay, but not trusted), ``end``, or end because it is ``lost``."""
        worked = {int(item): float(seconds) for item, seconds in said["worked"].items()}
        asked = np.array(said["asked"], float).reshape(self.asked.shape)
        requests = np.array(said["requests"], np.int64).reshape(self.requests.shape)
        progress, memory = int(said["progress"]), int(said["memory"])
        with self._changed:
            if self._closed:
                return "end"
            seat = self._seats.get(said["name"])
            if seat is None:
                if said["known"]:
                    return "lost"
                about = {key: kind(said[key]) for key, kind in _ABOUT.items()}
                seat = Seated(client=client_of(said["address"], self._root), heard=0.0, **about)
                for other in [each for each in self._seats.values() if each.number == seat.number]:
                    self._drop(other.name)  # this one has taken its place
                self._seats[seat.name] = seat
                self._tell()
            self.asked = self.asked + asked - seat.asked
            self.requests = self.requests + requests - seat.requests
            seat.heard, seat.worked, seat.asked, seat.requests = time.monotonic(), worked, asked, requests
            seat.memory = memory
            if progress != seat.progress:
                seat.progress, seat.moved = progress, seat.heard
            if seat.name in self._doubted:
                return "ask"
            seat.trusted = seat.heard + trust(self._silence)
        return "stay"

    def _drop(self, name: str) -> None:
        seat = self._seats.pop(name, None)
        if seat is not None:
            self._gone_until = max(self._gone_until, seat.trusted)
            self._tell()

    def _tell(self) -> None:
        self._changes += 1
        self._changed_at = time.monotonic()
        self._changed.notify_all()

    @property
    def changes(self) -> int:
        """How often seats have come or gone."""
        return self._changes

    @property
    def quiet(self) -> float:
        """Seconds since a seat has come or gone."""
        return time.monotonic() - self._changed_at

    def wait(self, changes: int, seconds: float) -> None:
        """Wait until seats have come or gone more often than so."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != changes, seconds)

    def drop(self, address: str) -> None:
        """Take a seat for lost; if it is there after all it is told so, and another one comes."""
        with self._changed:
            for name in [each.name for each in self._seats.values() if each.address == address]:
                self._drop(name)

    def doubt(self, names: Iterable[str]) -> None:
        """Trust these seats no longer, and all others again: they may have something that another one has now."""
        with self._changed:
            self._doubted = frozenset(names)

    @property
    def unsure_until(self) -> float:
        """Until when a seat may know nothing of a round that is done without it, s of the monotonic clock.

        See :mod:`~spatialstream.seats.newest`: those that have gone, and those that are doubted.
        """
        with self._changed:
            trusted = [seat.trusted for name, seat in self._seats.items() if name in self._doubted]
            return max([self._gone_until, *trusted])

    def seats(self) -> list[Seated]:
        """The seats that there are, by number; those that have been silent for too long are dropped."""
        now = time.monotonic()
        with self._changed:
            for name in [each.name for each in self._seats.values() if now - each.heard > self._silence]:
                self._drop(name)
            return sorted(self._seats.values(), key=lambda each: each.number)

    def close(self) -> None:
        """Have every seat end that still says hello."""
        with self._changed:
            self._closed = True

"""The driver's actor registry: receives heartbeats, and knows which actors are alive."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyarrow import flight

from spatialstream.actors.query_metrics import Counts, none_asked
from spatialstream.actors.read_point import trust
from spatialstream.actors.wire import Guard, answer, client_of, endpoint
from spatialstream.connectors.requests import Requests, no_requests

__all__ = ["ActorRegistry", "RegisteredActor"]

_ABOUT: dict[str, type] = {"name": str, "number": int, "address": str, "executor": str, "pid": int}
"""What an actor reports about itself."""


@dataclass(slots=True)
class RegisteredActor:
    """An actor, as the driver knows it.

    Attributes:
        name: unique to the process; a replacement has another name.
        number: index of the actor.
        address: ``host:port`` of its endpoint.
        executor: id of its Spark executor.
        pid: of the process, on its machine.
        client: of its endpoint.
        heard: when its last heartbeat came, s of the monotonic clock.
        trusted: until when it may use the read point that it knows as the newest one, s of the monotonic clock.
        worked: seconds of processor time of each item, since the process started.
        asked: query counts, see :class:`~spatialstream.actors.query_metrics.QueryMetrics`.
        requests: requests that it has made to an object store.
        progress: pieces of work that it has done.
        moved: when ``progress`` last grew, s of the monotonic clock.
        memory: resident bytes of the process.
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
        """As shown to a person."""
        return f"actor {self.number} (process {self.pid} of executor {self.executor}, at {self.address})"


class ActorRegistry(flight.FlightServerBase):  # type: ignore[misc]
    """The driver's endpoint, and the list of actors.

    Args:
        host: address of this machine on which it listens.
        secret: see :mod:`~spatialstream.actors.wire`.
        heartbeat_timeout: seconds without a heartbeat after which an actor is lost.
        identity: see :class:`~spatialstream.actors.actor.ActorSpec`.
        asking: the secret of query clients.
        read_point: returns the read point that query clients get, as JSON.

    Attributes:
        asked: counts of the queries sent to all actors, including those that have gone.
        requests: requests of all actors to an object store, likewise.
    """

    def __init__(
        self,
        host: str,
        secret: str,
        heartbeat_timeout: float,
        identity: tuple[bytes, bytes] | None = None,
        asking: str = "",
        read_point: Callable[[], Any] = lambda: None,
    ) -> None:
        scheme, certificates = ("grpc+tcp", []) if identity is None else ("grpc+tls", [identity])
        given = {"middleware": {Guard.NAME: Guard(secret, asking)}, "tls_certificates": certificates}
        super().__init__(f"{scheme}://{endpoint(host, 0)}", **given)
        self._read_point = read_point
        self._heartbeat_timeout, self._root = heartbeat_timeout, None if identity is None else identity[0]
        self._actors: dict[str, RegisteredActor] = {}
        self._changed, self._changes, self._changed_at = threading.Condition(), 0, time.monotonic()
        self._closed = False
        # actors of an earlier driver, if there was one, have been trusted for no longer than this
        self._gone_until, self._doubted = time.monotonic() + trust(heartbeat_timeout), frozenset[str]()
        self.asked, self.requests = none_asked(), no_requests()

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """``heartbeat``: from an actor; ``read_point``: the read point, and the addresses of actors."""
        if action.type != "read_point":
            Guard.check_own(context)
        yield answer(lambda: self._act(action.type, action.body.to_pybytes()))

    def _act(self, name: str, body: bytes) -> Any:
        if name == "read_point":
            return self._read_point()
        if name == "heartbeat":
            return self.heartbeat(json.loads(body))
        raise ValueError(f"unknown action: {name}")

    def heartbeat(self, message: Mapping[str, Any]) -> str:
        """Register a heartbeat; the response is what the actor is to do.

        ``stay``, ``ask`` (stay, but not trusted), ``end``, or ``lost`` (exit with an error).
        """
        worked = {int(item): float(seconds) for item, seconds in message["worked"].items()}
        query_counts = np.array(message["asked"], float).reshape(self.asked.shape)
        requests = np.array(message["requests"], np.int64).reshape(self.requests.shape)
        progress, memory = int(message["progress"]), int(message["memory"])
        with self._changed:
            if self._closed:
                return "end"
            actor = self._actors.get(message["name"])
            if actor is None:
                if message["known"]:
                    return "lost"
                about = {key: kind(message[key]) for key, kind in _ABOUT.items()}
                actor = RegisteredActor(client=client_of(message["address"], self._root), heard=0.0, **about)
                for other in [each for each in self._actors.values() if each.number == actor.number]:
                    self._drop(other.name)  # this one has taken its place
                self._actors[actor.name] = actor
                self._tell()
            self.asked = self.asked + query_counts - actor.asked
            self.requests = self.requests + requests - actor.requests
            actor.heard, actor.worked, actor.asked, actor.requests = time.monotonic(), worked, query_counts, requests
            actor.memory = memory
            if progress != actor.progress:
                actor.progress, actor.moved = progress, actor.heard
            if actor.name in self._doubted:
                return "ask"
            actor.trusted = actor.heard + trust(self._heartbeat_timeout)
        return "stay"

    def _drop(self, name: str) -> None:
        actor = self._actors.pop(name, None)
        if actor is not None:
            self._gone_until = max(self._gone_until, actor.trusted)
            self._tell()

    def _tell(self) -> None:
        self._changes += 1
        self._changed_at = time.monotonic()
        self._changed.notify_all()

    @property
    def changes(self) -> int:
        """How often actors have joined or left."""
        return self._changes

    @property
    def quiet(self) -> float:
        """Seconds since an actor last joined or left."""
        return time.monotonic() - self._changed_at

    def wait(self, changes: int, seconds: float) -> None:
        """Wait until :attr:`changes` differs from this value, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != changes, seconds)

    def drop(self, address: str) -> None:
        """Declare an actor lost; if it is alive after all, its next heartbeat tells it, and another one starts."""
        with self._changed:
            for name in [each.name for each in self._actors.values() if each.address == address]:
                self._drop(name)

    def doubt(self, names: Iterable[str]) -> None:
        """Stop trusting these actors, and trust all others again: these may hold slots that others have by now."""
        with self._changed:
            self._doubted = frozenset(names)

    @property
    def unsure_until(self) -> float:
        """Until when an actor may not know of a round done without it, s of the monotonic clock.

        Covers actors that have gone and those that are doubted, see :mod:`~spatialstream.actors.read_point`.
        """
        with self._changed:
            trusted = [actor.trusted for name, actor in self._actors.items() if name in self._doubted]
            return max([self._gone_until, *trusted])

    def actors(self) -> list[RegisteredActor]:
        """The actors that are alive, by number; those that have been silent for too long are dropped."""
        now = time.monotonic()
        with self._changed:
            for name in [each.name for each in self._actors.values() if now - each.heard > self._heartbeat_timeout]:
                self._drop(name)
            return sorted(self._actors.values(), key=lambda each: each.number)

    def close(self) -> None:
        """Tell every actor that still sends heartbeats to exit."""
        with self._changed:
            self._closed = True

"""Query coordinators in this process, whose calls to one another are counted, or fail."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from typing import Any

from spatialstream.actors.coordinator import MEMORY, QueryCoordinator
from spatialstream.actors.query_endpoint import Request, rows_in
from spatialstream.actors.query_metrics import QueryMetrics
from spatialstream.actors.read_point import LocatedReadPoint, ReadPoint
from spatialstream.actors.wire import ActorLost
from spatialstream.connectors.contracts import Storage
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.space import Space
from spatialstream.stages.rows import RowLimits
from spatialstream.stages.snapshot_queries import Wanted
from spatialstream.stages.tasks import World
from spatialstream.stream.settings import StreamSettings

__all__ = ["AskedActors", "world_of"]

SECRET = "secret"
Rows = Generator[tuple[list[int], list[bytes]]]


def world_of(
    space: Space,
    slots: int,
    place: str,
    retention: int | None = None,
    limits: RowLimits | None = None,
    storage: Storage | None = None,
) -> World:
    """The world of an actor whose views are at a place."""
    settings = StreamSettings("s", slots=slots, space=space, retention=retention)
    channel, sink = (
        MemoryChannel([MemoryLog() for _ in range(slots)], MemoryLog()),
        MemorySink([MemoryLog()], MemoryLog()),
    )
    storage = MemoryStorage() if storage is None else storage
    storage.place = place  # type: ignore[misc]
    return settings.world(storage, channel, sink, limits=limits)


class AskedActors:
    """Actors of this process, by name, each with the views of its place.

    Args:
        newest: the newest read point; None: no round is done.
        actors: the actor of each slot.
        worlds: of the actors.
        memory: of each coordinator, see there; None: the usual one.
        signing: whether actors send one another signatures, at once; otherwise they do not.

    Attributes:
        coordinators: of the actors.
        metrics: of the actors.
        searched: of each call of an actor by another one: its name, the round, and the queries.
        signed: of each call for signatures: the name of the actor, the round, and the slots.
        signing: see above.
        away: names of the actors that do not answer.
        lost: names of those that did not.
        found: bytes that actors have sent to others.
        doubts: how often something was not where the read point said.
        looks: how often the newest read point was requested.
    """

    def __init__(
        self,
        newest: Callable[[float], ReadPoint | None],
        actors: dict[int, str],
        worlds: dict[str, World],
        memory: int | None = None,
        *,
        signing: bool = False,
    ) -> None:
        self.newest, self.actors = newest, actors
        self.metrics = {name: QueryMetrics() for name in worlds}
        self.coordinators = {
            name: QueryCoordinator(
                *(world, SECRET, _Newest(self), _Calls(self), self._lose, self.metrics[name]),  # type: ignore[arg-type]
                memory=MEMORY if memory is None else memory,
                pause=lambda seconds: self.pause(seconds),
                start=lambda do: do() if self.signing else None,
            )
            for name, world in worlds.items()
        }
        self.searched: list[tuple[str, tuple[int, int], list[Wanted]]] = []
        self.signing = signing
        self.signed: list[tuple[str, tuple[int, int], list[int]]] = []
        self.pause: Callable[[float], object] = time.sleep
        self.away, self.lost = set[str](), list[str]()
        self.found = self.doubts = self.looks = 0

    def set_message_bytes(self, count: int) -> None:
        """Have answers sent in messages of so many bytes."""
        for each in self.coordinators.values():
            each.message_bytes = count

    def _lose(self, name: str) -> None:
        self.lost += [name] if name else []

    def ask(self, request: Request, name: str | None = None) -> Rows:
        """Have an actor answer, the first one by default."""
        coordinator = self.coordinators[name or next(iter(self.coordinators))]
        yield from rows_in(coordinator.ask(request.to_json()))


class _Newest:
    def __init__(self, actors: AskedActors) -> None:
        self._actors = actors

    def __call__(self, seconds: float) -> LocatedReadPoint | None:
        self._actors.looks += 1
        read_point = self._actors.newest(seconds)
        return None if read_point is None else LocatedReadPoint(read_point, dict(self._actors.actors))

    def doubt(self) -> None:
        self._actors.doubts += 1


class _Calls:
    def __init__(self, actors: AskedActors) -> None:
        self._actors = actors

    def ask(self, address: str, secret: str, body: bytes, seconds: float) -> Any:
        actors, given = self._actors, json.loads(body)
        number, revision = given["round"]
        if "signatures" in given:
            actors.signed.append((address, (number, revision), [int(slot) for slot in given["signatures"]]))
        else:
            actors.searched.append((address, (number, revision), [Wanted.of(each) for each in given["wanted"]]))
        if address in actors.away:
            raise ActorLost("nobody is there", address)
        assert secret == SECRET

        def answer() -> Generator[bytes]:
            for message in actors.coordinators[address].find(body):
                actors.found += len(message)
                yield message

        return answer()

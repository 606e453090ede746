"""Actors that do nothing: what is left of a turn of the real engine is the driver's, and what it sends can be counted.

All are one endpoint in a process of its own, which sends a heartbeat for each of them, answers each command at once,
and counts what has come.
"""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pyarrow import flight

from spatialstream.actors.actor import ActorSpec
from spatialstream.actors.engine import ActorEngine
from spatialstream.actors.query_metrics import none_asked
from spatialstream.actors.wire import BLOCKS, act, client_of, endpoint, options
from spatialstream.connectors.memory import MemoryChannel, MemoryLog, MemorySink
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.requests import no_requests
from spatialstream.index.version import RoutingVersion
from spatialstream.model.jsonable import to_json
from spatialstream.stages.ingest import Intake
from spatialstream.stages.tasks import InputTasks, Routed, Summary
from spatialstream.stages.turns import Run
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.driver import RouterTurns, WorkerTurns, news
from spatialstream.stream.router import Router
from spatialstream.stream.settings import StreamSettings
from spatialstream.stream.worker import RoundRecord, Worker

__all__ = ["Driven", "MuteActorLauncher"]

_HOST = "127.0.0.1"
_PART = re.compile(rb'"part": (\d+)')


class _Endpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Answers the commands of a driver: MERGE says the loads of slots, ROUTE where blocks end, and all else nothing.

    Args:
        loads: the load record of each slot.
    """

    def __init__(self, loads: Mapping[int, Any]) -> None:
        super().__init__(f"grpc+tcp://{_HOST}:0")
        self._summary = [to_json(Summary(100, 0, {"CRQ": 100}, dict(given))) for given in (loads, {})]
        self._ends = to_json(Routed((1_000_000,) * len(loads)))
        self._calls = self._bytes = 0

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:
        """As :class:`~spatialstream.actors.actor.Actor` does; ``counted`` tells calls and bytes."""
        body = action.body.to_pybytes()
        answer: Any = None
        if action.type == "counted":
            answer = self._calls, self._bytes
        else:
            self._calls += 1
            self._bytes += len(body)
            if action.type == "gather":
                matched = _PART.search(body)
                assert matched is not None
                answer = [self._summary[int(matched[1]) > 0]]
            elif action.type == "map":
                told = [self._ends] if b'"route"' in body else []
                answer = [told for _ in json.loads(body)["items"]]
        yield flight.Result(json.dumps({"answer": answer}).encode())

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:
        """No rows."""
        return flight.GeneratorStream(BLOCKS, iter(()))


def _serve(told: Any) -> None:
    """Answer until somebody says that it is enough."""
    with _Endpoint({}) as server:
        told["address"].send(endpoint(_HOST, server.port))
        told["over"].wait()


def _be(spec: tuple[str, str], count: int, loads: Mapping[int, Any], told: Any) -> None:
    """Be so many actors, until somebody says that it is enough."""
    with _Endpoint(loads) as server:
        (registry, secret), address = spec, endpoint(_HOST, server.port)
        client = client_of(registry)
        for number in range(count):
            about = {"name": f"actor{number:05d}", "number": number, "address": address, "executor": "0", "pid": 1}
            said = {**about, "known": False, "worked": {}, "asked": told["asked"], "requests": told["requests"]}
            said |= {"progress": 0, "memory": 0}
            act(client, "heartbeat", json.dumps(said).encode(), options(secret), registry)
        told["ready"].set()
        told["over"].wait()


@dataclass(slots=True)
class MuteActorLauncher:
    """So many actors; see :class:`~spatialstream.actors.engine.ActorLauncher`.

    Attributes:
        count: of actors.
        loads: what MERGE says of each slot.
    """

    count: int
    loads: Mapping[int, Any]
    _over: Any = None

    host = _HOST

    def begin(self, spec: ActorSpec) -> None:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        context = multiprocessing.get_context("spawn")
        self._over, ready = context.Event(), context.Event()
        told = {"ready": ready, "over": self._over, "asked": none_asked().tolist(), "requests": no_requests().tolist()}
        given = (spec.driver, spec.secret), self.count, self.loads, told
        context.Process(target=_be, args=given, daemon=True).start()
        ready.wait()

    def serve(self) -> str:
        """Have an endpoint without a driver; its address."""
        context = multiprocessing.get_context("spawn")
        self._over, (here, there) = context.Event(), context.Pipe(duplex=False)
        context.Process(target=_serve, args=({"address": there, "over": self._over},), daemon=True).start()
        return str(here.recv())

    def check(self) -> None:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""

    def end(self) -> None:
        """See :class:`~spatialstream.actors.engine.ActorLauncher`."""
        self._over.set()


_T0 = 1_764_000_000_000
"""Timestamps are as long as those of our days."""


@dataclass(slots=True)
class _Engine:
    """The real engine of mute actors, but for INGEST, which gives runs of records that nobody has.

    Attributes:
        engine: of the actors.
        watermark: timestamp up to which records have come.
    """

    engine: ActorEngine
    watermark: int = _T0
    moves = 0
    unsettled = False

    @property
    def world(self) -> Any:
        return self.engine.world

    @property
    def is_near(self) -> bool:
        return self.engine.is_near

    @property
    def width(self) -> int:
        return self.engine.width

    def map(self, do: Any, items: Sequence[Any], *, anywhere: bool = False) -> list[str]:
        if not isinstance(do.__self__, InputTasks):
            return self.engine.map(do, items)
        lines = self.engine.map(do, items, anywhere=True)
        assert not lines
        return [to_json(self._intake(do.__self__.epoch, i, *item)) for i, item in enumerate(items)]

    def _intake(self, epoch: int, i: int, name: str, first: int, end: int) -> Intake:
        times = tuple(range(self.watermark, self.watermark + 128))
        run = Run(f"{epoch:09d}-{i}", name.partition("/")[0], 200, name, times)
        return Intake(name, self.watermark, run, "", 200, 0, end - 1)

    def gather(self, do: Any, items: Sequence[Any], merge: Any, parts: Sequence[int] = (0,)) -> list[str]:
        return self.engine.gather(do, items, merge, parts)

    def settled(self) -> None: ...

    def check(self) -> None: ...

    def cancel(self) -> None:
        self.engine.cancel()


class Driven:
    """The drivers of a stream whose actors do nothing, over memory; as a context manager.

    Args:
        version: the routing version.
        partitions: of objects, of the router; as many parts of MERGE, but 64 at most.
        actors: how many.
        loads: the load record of each slot.
    """

    def __init__(self, version: RoutingVersion, partitions: int, actors: int, loads: Mapping[int, Any]) -> None:
        given = {"slots": version.slots, "partitions": partitions, "mergers": min(partitions, 64)}
        settings = StreamSettings("s", space=version.index.space, **given)
        storage, store = MemoryStorage(), MemoryStore()
        store.create(version)
        channel = MemoryChannel([MemoryLog() for _ in range(version.slots)], MemoryLog())
        world = settings.world(storage, channel, MemorySink([MemoryLog()], MemoryLog()))
        self.actors = ActorEngine(world, MuteActorLauncher(actors, loads), heartbeat_timeout=1e6)
        self._engine = _Engine(self.actors)
        self._names = [f"objects/{i}" for i in range(partitions)]
        self.router = Router(settings, storage, store, self._names, lambda: self._engine.watermark, due=lambda: False)
        self._epochs = RouterTurns(self.router, self._engine)
        worker = Worker(settings, storage, store, due=lambda: False)
        self._rounds = WorkerTurns(worker, self._engine, version.slots)

    def __enter__(self) -> Self:
        """Begin to have actors."""
        self.actors.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        """Let them go."""
        self.actors.__exit__(*given)

    def epoch(self) -> None:
        """An epoch with records of every partition."""
        self._engine.watermark += 200
        bounds = dict.fromkeys(self._names, (0, self._engine.watermark - _T0))
        self._epochs.epoch(self._epochs.ingestion(news(bounds, self.router.read, 10**9)))

    def round(self) -> tuple[RoundRecord, Summary]:
        """The round of what has been announced."""
        record = self._rounds.next(64)
        assert record is not None
        return record, self._rounds.do(record)

    def counted(self) -> tuple[int, int]:
        """Commands of turns so far, and their bytes."""
        actor = self.actors.observed()[0]
        calls, size = act(actor.client, "counted", b"", options(""), actor.address)
        return calls, size

"""Answers snapshot queries in one actor, which a client has chosen: the coordinating node of Elasticsearch.

A client sends its queries to any actor, best to the one that is likely to hold most of the answer. That actor knows the
newest round (:mod:`~spatialstream.actors.read_point`), searches its own slots directly, asks the other actors that have
slots which the queries concern, in both phases of SKQs, and makes the rows
(:mod:`~spatialstream.stages.snapshot_queries`). Slots that have nothing for a query it does not ask, as far as it knows
their signatures (:mod:`~spatialstream.actors.signatures`). If a view of the round has gone, a slot is moving or an
actor does not answer, it makes another attempt with the round that is the newest then, unless it has sent a row
already.

Between processes queries travel parsed (:mod:`~spatialstream.model.parsed_queries`), what slots find as one Arrow block
per query type, and rows as lines: all are messages on persistent calls (:mod:`~spatialstream.actors.call_pool`). What
is large comes in several messages, which wait until the client reads them; so an actor holds a few megabytes of each
answer, or what is found for one query where that is more, and of all answers together no more than :data:`MEMORY`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol, Self

import pyarrow as pa

from spatialstream.actors.call_pool import CallPool
from spatialstream.actors.query_endpoint import AskedQuery, QueriesRefusedError, Request
from spatialstream.actors.query_metrics import QueryMetrics
from spatialstream.actors.read_point import LocatedReadPoint
from spatialstream.actors.signatures import SignatureCache, signatures_here
from spatialstream.actors.wire import ActorLost, error_json, raised
from spatialstream.connectors.calls import called
from spatialstream.model.errors import Gone, RecordError, TooLarge, Unavailable
from spatialstream.model.queries import Query
from spatialstream.model.times import check_time
from spatialstream.stages import messages
from spatialstream.stages.signatures import has_words
from spatialstream.stages.snapshot_queries import Part, SnapshotRows, Wanted, found_here, gathered, joined, scattered
from spatialstream.stages.tasks import World
from spatialstream.stages.views import RoundId, views_here

__all__ = ["MEMORY", "QueryCoordinator"]

MEMORY = 256 << 20
"""Maximum bytes that an actor holds of what is found for queries, for all together."""

MESSAGE_BYTES = 1 << 20
"""Bytes of rows of a message, about."""

_MUCH = 4 << 20
"""Bytes from which on rows are made for one answer at a time: sorted, and as texts, they take several times as much."""

_SHORTEST = 0.75
"""Bytes that an object has in a row, at least, for each that it takes as columns: 36 and its id, where all its numbers
have one digit, for 44 and its id."""

_AGAIN_SECONDS = 0.5
"""For how long a coordinator begins again; then the client may, at another one."""

_PAUSES = (0.002, 0.1)
"""Seconds before it begins again: the first time, and at most."""


class ReadPointSource(Protocol):
    """Provides the newest read point, see :class:`~spatialstream.actors.read_point.ReadPoints`."""

    def __call__(self, seconds: float) -> LocatedReadPoint | None:
        """The newest read point; None: no round is done."""

    def doubt(self) -> None:
        """The read point is outdated: fetch it anew next time."""


class QueryCoordinator:
    """Answers queries of clients, and searches slots for other coordinators; thread-safe.

    Args:
        world: of the actor.
        secret: of the job.
        newest: provides the newest read point.
        calls: to other actors.
        lose: called with the address of an endpoint that does not answer.
        metrics: counts the queries.
        memory: maximum bytes of what is found, of all queries together.
        pause: waits for so many seconds before another attempt.
        start: calls a function in the background.

    Attributes:
        world: of the actor.
        signatures: what it knows of the views of slots.
        memory: what is found and not yet sent, of all queries together.
        message_bytes: bytes of rows after which a message of an answer is sent.
    """

    def __init__(
        self,
        world: World,
        secret: str,
        newest: ReadPointSource,
        calls: CallPool,
        lose: Callable[[str], None],
        metrics: QueryMetrics,
        memory: int = MEMORY,
        pause: Callable[[float], object] = time.sleep,
        start: Callable[[Callable[[], None]], object] = called,
    ) -> None:
        self.world, self._secret, self._newest, self._calls = world, secret, newest, calls
        self._lose, self._metrics, self.memory = lose, metrics, _Memory(memory)
        self._pause = pause
        self.signatures = SignatureCache(world, secret, calls, start=start)
        self.message_bytes = MESSAGE_BYTES

    def ask(self, body: bytes) -> Generator[bytes]:
        """Answer a client's :class:`~spatialstream.actors.query_endpoint.Request`.

        Yields messages: a line of JSON, ``{"numbers": [...]}`` followed by a line with the row of each of these
        queries; or, at the end, ``{"refused": {number: reason}}`` if queries have impossible times, or ``{"failed":
        error}``.
        """
        try:
            request = Request.of_json(body)
            yield from self._answer(request, time.monotonic() + request.seconds)
        except QueriesRefusedError as error:
            yield _head(refused=error.reasons)
        except Exception as error:  # noqa: BLE001 - sent to the caller
            yield _head(failed=error_json(error))

    def _answer(self, request: Request, until: float) -> Iterator[bytes]:
        """The messages of the first attempt that succeeds, until a time, s of the monotonic clock."""
        last, pause, begun = min(until, time.monotonic() + _AGAIN_SECONDS), _PAUSES[0], False
        while True:
            try:
                for message in self._attempt(request, until):
                    begun = True
                    yield message
            except (Gone, ActorLost) as error:
                self._newest.doubt()
                self._lose(error.address if isinstance(error, ActorLost) else "")
                if begun or time.monotonic() + pause > last:
                    raise
            else:
                return
            self._pause(pause)
            pause = min(2 * pause, _PAUSES[1])

    def _attempt(self, request: Request, until: float) -> Iterator[bytes]:
        """The answer as of the newest round."""

        def left() -> float:
            return max(0.001, until - time.monotonic())

        known = self._newest(left())
        if known is None or not known.read_point.begun:
            raise Unavailable("the stream has just started: its clock has no time yet, so it cannot answer queries")
        read_point, settings, limits = known.read_point, self.world.settings, self.world.limits
        if request.at_least is not None and read_point.clock < request.at_least:
            raise Unavailable(f"the stream's clock has not reached {request.at_least}: it is at {read_point.clock}")
        queries, longest = _at(request.asked, read_point.clock), None if limits is None else limits.longest
        as_of = f', "as_of": {json.dumps(read_point.as_of)}}}'.encode()
        with self._counting(queries), ExitStack() as opened:
            tally = opened.enter_context(_Tally(self.memory, request.largest))

            def find(wanted: Sequence[Wanted]) -> Iterator[Part]:
                return self._found(wanted, known, left(), opened)

            pruning = self.signatures.pruning(known)
            given = read_point.routing, read_point.clock, settings.space, settings.retention, longest, pruning
            for numbers, lines in SnapshotRows(queries, *given).rows(find, tally):
                yield from _pieces(numbers, lines, as_of, tally, self.message_bytes)

    @contextmanager
    def _counting(self, queries: Sequence[Query]) -> Iterator[None]:
        """Count queries by what becomes of them."""
        began, outcome = time.perf_counter(), "failed"
        try:
            yield
            outcome = "answered"
        except (Gone, ActorLost):
            outcome = "again"
            raise
        except GeneratorExit:
            outcome = "abandoned"
            raise
        finally:
            self._metrics.count([each.type for each in queries], outcome, time.perf_counter() - began)

    # ------------------------------------------------------------------------------------------------------- searching

    def _found(
        self, wanted: Sequence[Wanted], known: LocatedReadPoint, seconds: float, opened: ExitStack
    ) -> Iterator[Part]:
        """What slots find, see :data:`~spatialstream.stages.snapshot_queries.Find`; other actors begin at once.

        Raises:
            Gone: a slot is moving.
            ActorLost: an actor does not answer.
        """
        round_id, place = known.read_point.round, self.world.storage.place
        here = views_here(place, {slot for each in wanted for slot in each.slots}, round_id).keys()
        by_actor = dict[str, list[Wanted]]()
        for each in wanted:
            for address, slots in _by_actor(each.slots, here, known.actors).items():
                by_actor.setdefault(address, []).append(replace(each, slots=slots))
        mine = by_actor.pop("", [])
        self.signatures.learn(
            known, (at for at, some in by_actor.items() if any(has_words(each.query) for each in some))
        )
        streams = [(some, self._found_at(at, some, round_id, seconds, opened)) for at, some in by_actor.items()]
        return joined([*streams, (mine, found_here(place, round_id, mine))])

    def _found_at(
        self, address: str, wanted: Sequence[Wanted], round_id: RoundId, seconds: float, opened: ExitStack
    ) -> Iterator[Part]:
        """What slots of another actor find."""
        body = json.dumps({"round": round_id, "wanted": [each.to_record() for each in wanted]}).encode()
        answer = self._calls.ask(address, self._secret, body, seconds)
        opened.callback(answer.close)
        return gathered(map(_blocks_in, answer))

    def find(self, body: bytes) -> Generator[bytes]:
        """Search slots of this actor for another one: messages for :func:`_blocks_in`; or send their signatures."""
        try:
            given = json.loads(body)
            if "signatures" in given:
                (number, revision), place = given["round"], self.world.storage.place
                yield from signatures_here(place, (number, revision), given["signatures"], given["room"])
                return
            (number, revision), wanted = given["round"], [Wanted.of(each) for each in given["wanted"]]
            types = {each.number: each.query.type for each in wanted}
            parts = found_here(self.world.storage.place, (number, revision), wanted)
            for done, batches in scattered(parts, types):
                blocks = [messages.pack(batch).to_pybytes() for batch in batches]
                yield b"".join([_head(numbers=done, sizes=[len(block) for block in blocks]), b"\n", *blocks])
        except Exception as error:  # noqa: BLE001 - sent to the caller
            yield _head(failed=error_json(error))


def _by_actor(slots: Iterable[int], here: Iterable[int], actors: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Slots by the address of their actor; those of which a view is here are under ""."""
    found: dict[str, tuple[int, ...]] = {}
    for slot in slots:
        address = "" if slot in here else actors.get(slot)
        if address is None:
            raise Gone(f"slot {slot} is moving: try again")
        found[address] = (*found.get(address, ()), slot)
    return found


def _head(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _blocks_in(message: bytes) -> tuple[list[int], list[pa.RecordBatch]]:
    """What a message of :meth:`QueryCoordinator.find` holds.

    Raises:
        Exception: the one that it carries.
    """
    head, _, blocks = message.partition(b"\n")
    given, first, batches = json.loads(head), 0, list[pa.RecordBatch]()
    if "failed" in given:
        raise raised(given["failed"])
    for size in given["sizes"]:
        batches.append(messages.unpack(memoryview(blocks)[first : first + size]))
        first += size
    return given["numbers"], batches


def _pieces(numbers: Sequence[int], lines: Sequence[bytes], end: bytes, tally: _Tally, most: int) -> Iterator[bytes]:
    """Messages of some ``most`` bytes with rows and the read point that they are as of."""
    some, rows, size = list[int](), list[bytes](), 0
    for number, line in zip(numbers, lines, strict=True):
        some.append(number)
        rows.append(line[:-1] + end)
        size += len(rows[-1])
        if size >= most:
            tally.made(size)
            yield b"\n".join([_head(numbers=some), *rows])
            some, rows, size = [], [], 0
    if some:
        tally.made(size)
        yield b"\n".join([_head(numbers=some), *rows])


def _at(asked: Iterable[AskedQuery], clock: int) -> list[Query]:
    """Queries with their times; those without one have that of the clock.

    Raises:
        QueriesRefusedError: some are about a time that cannot be meant, or not be answered yet.
    """
    queries, reasons = list[Query](), dict[int, str]()
    for number, (query, timed, checked) in enumerate(asked):
        try:
            queries.append(query if timed else query.at(clock))
            if checked is not None:
                check_time(checked, clock)
            if timed and query.t > clock:
                late = f"{query.t} is later than the stream's clock, which is at {clock}"
                raise RecordError("t", f"{late}; leave t out, or wait with at_least={query.t}")
        except RecordError as error:
            reasons[number] = str(error)
    if reasons:
        raise QueriesRefusedError(reasons)
    return queries


# -------------------------------------------------------------------------------------------------------------- memory


class _Memory:
    """The memory of an actor for what is found."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0
        self.lock, self.making = threading.Lock(), threading.Lock()


class _Tally:
    """What one attempt holds, see :class:`~spatialstream.stages.snapshot_queries.Tally`.

    Args:
        memory: of the actor.
        largest: bytes of its rows, together; None: any number.
    """

    def __init__(self, memory: _Memory, largest: int | None) -> None:
        self._memory, self._largest = memory, largest
        self._held = self._listed = self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._hold(-self._held)

    def _hold(self, more: int) -> None:
        memory = self._memory
        with memory.lock:
            if more > 0 and memory.taken + more > memory.most:
                if memory.taken == self._held:
                    raise TooLarge(
                        f"the answer needs more than the {memory.most} bytes of memory that an actor has for answers"
                    )
                raise Unavailable("the actor has no memory left for answers at present: try again")
            memory.taken += more
            self._held += more

    def found(self, size: int, *, listed: bool) -> None:
        """More has been found.

        Raises:
            TooLarge: the rows will be larger than they may be.
            Unavailable: others hold the memory.
        """
        self._hold(size)
        if listed:
            self._listed += size
            self._check(int(self._listed * _SHORTEST), "more than ")

    @contextmanager
    def making(self, size: int) -> Iterator[None]:
        """While rows are made of what was found: of much, for one answer at a time."""
        turn: AbstractContextManager[object] = self._memory.making if size >= _MUCH else nullcontext()
        with turn:
            yield
            if size >= _MUCH:
                pa.default_memory_pool().release_unused()

    def sent(self, size: int) -> None:
        """What was found, so many bytes, is not held any more."""
        self._hold(-size)

    def made(self, size: int) -> None:
        """Rows have been made, of so many bytes; errors as in :meth:`found`."""
        self._made += size
        self._check(self._made, "")

    def _check(self, size: int, about: str) -> None:
        if self._largest is not None and size > self._largest:
            raise TooLarge(f"the answer would have {about}{size} bytes, and the most is {self._largest}")

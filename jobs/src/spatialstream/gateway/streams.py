"""A stream behind the gateway: opened when first needed, and called in threads of its own.

A waiting request holds no thread. The stream's progress is polled by one thread for all requests (:class:`_Polls`), and
a query that cannot be answered now is retried until its timeout. Threads, calls that answer several requests together,
and waiting requests are shared by clients (:mod:`~.threads`, :mod:`~.rates`).
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from spatialstream.client import Connection, LiveSample
from spatialstream.client.history import Log, ResultsLog
from spatialstream.client.live_sample import DeadLetters, dead_letters
from spatialstream.client.record_writer import RecordWriter
from spatialstream.client.snapshot_client import MOST
from spatialstream.client.stream import Stream
from spatialstream.gateway.answers import Room
from spatialstream.gateway.feed import Feed
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.rates import Shares
from spatialstream.gateway.threads import CLIENT, Threads
from spatialstream.model.answer_bounds import AnswerBounds
from spatialstream.model.errors import (
    RecordError,
    Replaced,
    SettingError,
    SpatialStreamError,
    Suspended,
    TooLarge,
    Unavailable,
)
from spatialstream.model.times import check_time, looks_like, parse_time

__all__ = ["ServedStream"]

T = TypeVar("T")
AsOf = dict[str, int]

_THREADS, _SHARE = 16, 8
_READERS, SHARE_OF_READERS = 4, 2
"""Reads of past results take long, so they have threads of their own."""
MOST_READING = 64
_MOST_WAITING = 1_024
"""Most requests without an answer yet, of all clients."""
_READY_SECONDS = 2.0
_FEW = 16
"""Most queries of a request that is answered together with others."""
_TOGETHER, _SHARE_OF_TOGETHER = 8, 4
"""Most concurrent calls that answer requests together, and most of them with queries of one client."""
_OF_ONE = 128
"""Most queries of one client in such a call: this many cost little more than one."""
_PAUSES = (0.002, 0.1)
"""Seconds between two tries: the first, and the longest."""
_BETWEEN_LOOKS = 0.005
_GOES_ON = (
    "advances only with an object, a query or a watermark of a later time; "
    "without at_least the answer is as of the current clock"
)
_GRACE = 1.0
"""Least seconds of a try, however little of the timeout is left."""


Places = list[tuple[str, object]]
"""Queries of a request, each with the name of its origin, for error messages."""
Answered = tuple[bool, list[bytes]]
"""Whether the stream's space is wgs84, and a line for each query."""


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A waiting request.

    Attributes:
        client: name of the client.
        places: the queries.
        timeout: seconds for the answer to arrive.
        room: that the answer has.
        answer: the answer, or its error.
    """

    client: str
    places: Places
    timeout: float
    room: Room
    answer: asyncio.Future[Answered]


class _Queue:
    """Waiting requests, in order for each client."""

    def __init__(self) -> None:
        self._waiting = OrderedDict[str, deque[_Request]]()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, request: _Request) -> None:
        """Add a request."""
        self._waiting.setdefault(request.client, deque()).append(request)

    def take(self, may: Callable[[str], bool], busy: Callable[[str], bool]) -> list[_Request]:
        """Take requests to answer together, one of each allowed client in turn, as long as there is room.

        A busy client, one of whose requests is being answered, gets a batch of its own: so its expensive requests delay
        no other client.
        """
        batch, room, of = list[_Request](), MOST, Counter[str]()
        turns = deque(client for client in self._waiting if may(client))
        if turns and busy(turns[0]):
            turns = deque([turns[0]])
        else:
            turns = deque(client for client in turns if not busy(client))
        while turns:
            client = turns.popleft()
            waiting = self._waiting[client]
            size = len(waiting[0].places)
            if size > room or of[client] + size > _OF_ONE:
                continue
            request = waiting.popleft()
            if waiting:
                turns.append(client)
            else:
                del self._waiting[client]
            if not request.answer.done():  # the client is still there
                batch.append(request)
                room, of[client] = room - size, of[client] + size
        for client in of:  # clients served now come after the others next time
            if client in self._waiting:
                self._waiting.move_to_end(client)
        return batch


class _Polls:
    """Polls the progress of a stream in a thread of its own, once for all requests that wait for it.

    Args:
        poll: returns the progress.
        name: name of the thread.
    """

    def __init__(self, poll: Callable[[], AsOf | None], name: str) -> None:
        self._poll, self._thread = poll, ThreadPoolExecutor(1, name)
        self._now: asyncio.Task[AsOf | None] | None = None
        self._next: asyncio.Task[AsOf | None] | None = None

    async def get(self) -> AsOf | None:
        """Return the result of the poll that starts next, or raise its error."""
        if self._next is None:
            self._next = asyncio.create_task(self._after(self._now))
            # retrieve the exception, since all waiting requests may have gone
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._next)

    async def _after(self, last: asyncio.Task[AsOf | None] | None) -> AsOf | None:
        if last is not None:
            await asyncio.wait([last])
            await asyncio.sleep(_BETWEEN_LOOKS)
        self._now, self._next = self._next, None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._poll)

    def close(self) -> None:
        """Stop polling."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _together(
    opened: Stream, asked: Sequence[_Request], at_least: int | None, bounds: AnswerBounds
) -> list[Answered | SettingError | Unavailable]:
    """Answer several requests; each gets its answer or its error."""
    geographic = opened.space.geographic
    found = opened.snapshots.together([(each.places, each.timeout) for each in asked], at_least, bounds)
    return [(geographic, each) if isinstance(each, list) else each for each in found]


def _handed_on(request: _Request, outcome: Answered | SettingError | Unavailable) -> Answered | Exception:
    """The answer of one of several, for which it needs room of its own."""
    if not isinstance(outcome, tuple):
        return outcome
    try:
        request.room.hold(sum(map(len, outcome[1])))
    except Problem as problem:
        return problem
    return outcome


class ServedStream:
    """One stream.

    Args:
        name: the stream's name.
        opener: connects to it. Raises Unavailable; the next request tries again then.
        feed: distributes its results.
        record_writer: sends records to it.
        broker: how to reach its topics; None: objects and dead letters cannot be shown.
        patience: seconds for which new requests wait for the call under way before another one starts: so no request
            waits for a slow call but its own, and as many as possible are answered together.
        long: seconds after which a call with queries of several clients takes long: those that wait for it are then
            answered apart.

    Attributes:
        patient: whether new requests wait, because a call has begun within the last ``patience`` seconds.
    """

    def __init__(
        self,
        name: str,
        opener: Callable[[], Stream],
        feed: Feed,
        record_writer: RecordWriter,
        broker: Connection | None = None,
        *,
        patience: float = 0.05,
        long: float = 1.0,
    ) -> None:
        self._patience, self._long = patience, long
        self.name, self.feed, self.record_writer, self._opener, self._broker = name, feed, record_writer, opener, broker
        self._threads = Threads(_THREADS, _SHARE, f"ask-{name}")
        self._readers = Threads(_READERS, SHARE_OF_READERS, f"history-{name}", MOST_READING)
        self._together = ThreadPoolExecutor(_TOGETHER, f"together-{name}")
        self._polls = _Polls(lambda: self._do(lambda opened: opened.as_of()), f"poll-{name}")
        self._waiting = Shares(_MOST_WAITING, "requests that wait for answers")
        self._opening = threading.Lock()
        self._stream: Stream | None = None
        self._unreached = ""  # why it could not be opened, when that was tried last
        self._users: dict[Stream, int] = {}
        self._asked, self._busy = _Queue(), Counter[str]()
        self._again = list[list[_Request]]()
        self._answering: set[asyncio.Task[None]] = set()
        self.patient = self._closed = self._ending = False

    @property
    def queued(self) -> int:
        """The number of requests that wait for a call that answers them."""
        return len(self._asked)

    @property
    def unanswered(self) -> int:
        """The number of requests without an answer yet, of all clients."""
        return self._waiting.taken

    def _do(self, work: Callable[[Stream], T]) -> T:
        """Do some work with the stream; if the stream was recreated, again with a new connection."""
        with self._held() as stream:
            try:
                return work(stream)
            except Replaced:
                self._drop(stream)
        with self._held() as stream:
            return work(stream)

    @contextmanager
    def _held(self) -> Iterator[Stream]:
        """Yield the stream, which is not closed while in use.

        Raises:
            Unavailable: it cannot be reached.
        """
        with self._opening:
            if self._stream is None:
                try:
                    self._stream = self._opener()
                except Unavailable as error:
                    self._unreached = f": {error}"
                    raise
            stream = self._stream
            self._users[stream] = self._users.get(stream, 0) + 1
        try:
            yield stream
        finally:
            with self._opening:
                self._users[stream] -= 1
                if not self._users[stream]:
                    del self._users[stream]
                    if stream is not self._stream:
                        stream.close()

    def _drop(self, stream: Stream) -> None:
        """Have the stream closed once unused, and opened again when needed."""
        with self._opening:
            if stream is self._stream:
                self._stream = None

    async def call(self, work: Callable[[Stream], T], seconds: float = 10.0) -> T:
        """Do some work with the stream in a thread.

        Args:
            work: the work.
            seconds: time within which it must start.

        Raises:
            Problem: too many calls are under way.
            Exception: whatever the work raises, or Unavailable.
        """
        return await self._threads.run(lambda: self._do(work), seconds)

    async def opened(self) -> Stream:
        """Return the stream, for its space and term rule, which need no call. Errors as in :meth:`call`."""
        known = self._stream
        return known if known is not None else await self.call(lambda opened: opened)

    async def as_of(self) -> AsOf | None:
        """Return the round and the clock as of which a query would be answered now; None before the clock has started.

        No client can delay this for another one.

        Raises:
            Unavailable: the stream does not answer.
        """
        return await self._polls.get()

    async def check_unit(self, name: str, text: str) -> None:
        """Refuse a parameter that is a number and looks as if it were not of ms, unless the stream's clock does too.

        If the stream does not say its clock at once, the parameter is taken as it is.

        Args:
            name: of the parameter.
            text: a time.

        Raises:
            SettingError: it looks so.
        """
        if not text.lstrip("-").isdecimal() or looks_like(np.array([parse_time(text)])) is None:
            return
        as_of: AsOf | None = None
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                as_of = await self.as_of()
        if as_of is not None:
            try:
                check_time(text, as_of["clock"])
            except RecordError as error:
                raise SettingError(name, error.problem) from None

    async def wait(self, done: Callable[[AsOf], bool], until: float) -> AsOf | None:
        """Wait until the stream has reached some progress.

        Args:
            done: says whether it has, given the result of :meth:`as_of`.
            until: event-loop time at which to stop waiting; at least one poll is made.

        Returns:
            The last result of :meth:`as_of`, also if the wait ended early.

        Raises:
            Unavailable: the stream does not answer.
        """
        loop, pause = asyncio.get_running_loop(), _PAUSES[0]
        try:
            async with asyncio.timeout_at(max(until, loop.time()) + _GRACE):
                while True:
                    as_of = await self.as_of()
                    if (as_of is not None and done(as_of)) or self._ending or loop.time() + pause > until:
                        return as_of
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _PAUSES[1])
        except TimeoutError:
            raise self._late("the stream's worker does not answer") from None

    async def ask(self, places: Places, at_least: int | None, timeout: float, room: Room) -> Answered:
        """Answer queries as of one round; also returns whether the stream's space is wgs84.

        The cost of a call is mostly the same for one query and for a hundred. So requests without ``at_least`` that
        arrive while others are being answered are answered together.

        Args:
            places: the name of each query's origin, for error messages, and the query.
            at_least: ms: no answer before the clock has reached this time; None: at once.
            timeout: seconds for the answers to arrive. At least one try of a second is made.
            room: memory of the answers, from their search until the client has received them.

        Raises:
            Problem: too many requests of this client are under way, or there is no room.
            TooLarge: they are larger than they may be.
            SettingError, Unavailable: see :meth:`~spatialstream.client.snapshot_client.SnapshotClient.lines`.
        """
        loop, pause = asyncio.get_running_loop(), _PAUSES[0]
        began = loop.time()
        until = began + timeout
        with self._waiting.held(CLIENT.get()):
            while True:
                try:
                    if at_least is not None:
                        await self._reach(at_least, until)
                    return await self._tried(places, at_least, until - loop.time(), room)
                except (Replaced, Suspended):
                    raise  # no later try can succeed, or is likely to
                except Unavailable as error:
                    if self._stream is None:  # the whole stream is unavailable: fail at once
                        raise
                    if self._ending or loop.time() + pause > until:
                        raise Unavailable(f"{error}; waited {loop.time() - began:.3g} s") from None
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSES[1])

    async def _reach(self, at_least: int, until: float) -> None:
        """Wait until the clock has reached a time."""
        as_of = await self.wait(lambda as_of: as_of["clock"] >= at_least, until)
        if as_of is None:
            raise Unavailable("the stream has just started: its clock has no time yet, so it cannot answer queries")
        if as_of["clock"] < at_least:
            told = f"the stream's clock has not reached {at_least}: it is at {as_of['clock']}"
            raise Unavailable(f"{told}, and {_GOES_ON}")

    async def _tried(self, places: Places, at_least: int | None, timeout: float, room: Room) -> Answered:
        """Make one try."""
        loop, seconds = asyncio.get_running_loop(), max(timeout, _GRACE)
        request = _Request(CLIENT.get(), places, max(timeout, 0.0), room, loop.create_future())
        if at_least is not None or len(places) > _FEW:
            (found,) = await self.call(lambda opened: _together(opened, [request], at_least, room.bounds), seconds)
            if isinstance(found, Exception):
                raise found
            return found
        self._asked.add(request)
        self._see_to()
        try:
            async with asyncio.timeout(seconds + _GRACE):
                return await request.answer
        except TimeoutError:
            raise self._late("the answer is not ready in time, as many requests are under way") from None

    def _late(self, why: str) -> Unavailable:
        """The error of a request that timed out: the given reason, unless the stream has not even been opened."""
        if self._stream is None:
            return Unavailable(f"{self.name} has not been reached yet{self._unreached}")
        return Unavailable(why)

    def _may(self, client: str) -> bool:
        return self._busy[client] < _SHARE_OF_TOGETHER

    def _see_to(self) -> None:
        """Start a call for waiting requests, unless they are to wait for the call under way."""
        if (self._again or self._asked) and not self.patient and len(self._answering) < _TOGETHER:
            task = asyncio.create_task(self._answer())
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _taken(self) -> list[_Request]:
        """What is to be answered next, as much as fits together."""
        for requests in self._again:
            requests[:] = [each for each in requests if not each.answer.done()]
        self._again = [requests for requests in self._again if requests]
        for requests in self._again:
            now = [each for each in requests if self._may(each.client)]
            if now:
                requests[:] = [each for each in requests if each not in now]
                return now
        return self._asked.take(self._may, lambda client: self._busy[client] > 0)

    async def _answer(self) -> None:
        """Answer waiting requests, in calls of as many as fit together."""
        while not self.patient and (requests := self._taken()):
            clients = {each.client for each in requests}
            self._busy.update(clients)
            try:
                with self._under_way(requests):
                    outcomes = await self._outcomes(requests)
            finally:
                self._busy.subtract(clients)
                self._busy = +self._busy
            for request, outcome in zip(requests, outcomes, strict=True):
                if request.answer.done():  # the client has gone
                    continue
                if isinstance(outcome, Exception):
                    request.answer.set_exception(outcome)
                else:
                    request.answer.set_result(outcome)

    def _part(self, requests: Sequence[_Request]) -> None:
        """A call takes long: have what was asked by half of its clients answered apart from the rest.

        So nobody is held up for long by what is dear of somebody else's. A call in which no query is dear, but the
        machine is slow, is done twice at most by that, as its halves do not take long; one with a dear query about
        as often as its clients can be halved.
        """
        waiting = [each for each in requests if not each.answer.done()]
        clients = list(dict.fromkeys(each.client for each in waiting))
        if len(clients) > 1:
            half = clients[: len(clients) // 2]
            self._again.append([each for each in waiting if each.client in half])
            self._again.append([each for each in waiting if each.client not in half])
            self._see_to()

    @contextmanager
    def _under_way(self, requests: Sequence[_Request]) -> Iterator[None]:
        """Have new requests wait for this call, but not longer than ``patience``."""
        mine, loop = True, asyncio.get_running_loop()

        def end_of_patience() -> None:
            nonlocal mine
            mine = self.patient = False
            self._see_to()

        self.patient = True
        timers = loop.call_later(self._patience, end_of_patience), loop.call_later(self._long, self._part, requests)
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()
            if mine:
                self.patient = False

    async def _outcomes(self, requests: Sequence[_Request]) -> Sequence[Answered | Exception]:
        """What becomes of requests that are answered together; where that fails, or takes much, of each by itself."""
        alone = requests[0] if len(requests) == 1 else None
        with ExitStack() as held:
            room = requests[0].room if alone is not None else held.enter_context(requests[0].room.another(""))

            def work() -> list[Answered | SettingError | Unavailable]:
                return self._do(lambda opened: _together(opened, requests, None, room.bounds))

            if self._closed:
                return [Unavailable(f"{self.name} is no longer served here")] * len(requests)
            try:
                outcomes = await asyncio.get_running_loop().run_in_executor(self._together, work)
                return outcomes if alone is not None else list(map(_handed_on, requests, outcomes))
            except (Problem, TooLarge) as error:
                if alone is not None:
                    return [error]
            except SpatialStreamError as error:
                return [error] * len(requests)
            except Exception as error:  # noqa: BLE001 -- a defect: only the request that causes it is to fail
                if alone is not None:
                    return [error]
        return [outcome for one in requests for outcome in await self._outcomes([one])]

    async def look_back(self, work: Callable[[Log], T]) -> T:
        """Do some work with past results in a thread.

        Raises:
            Problem: too many such calls are under way.
            Exception: whatever the work raises.
        """
        return await self._readers.run(lambda: work(self.log()))

    def log(self) -> Log:
        """Return the log of past results.

        Raises:
            Unavailable: the broker's address is not known.
        """
        return ResultsLog(self._known_broker(), self.name)

    def live_sample(self) -> LiveSample:
        """Start sampling the objects as they are sent.

        Raises:
            Unavailable: the broker cannot be reached.
        """
        return LiveSample(self._known_broker(), self.name, self._do(lambda opened: opened.space))

    def dead_letters(self, most: int) -> DeadLetters:
        """Return the newest records that the stream rejected.

        Raises:
            Unavailable: the broker cannot be reached.
        """
        return dead_letters(self._known_broker(), self.name, most)

    def _known_broker(self) -> Connection:
        if self._broker is None:
            raise Unavailable("this gateway has no broker's address for the stream")
        return self._broker

    async def ready(self) -> bool:
        """Whether the stream answers. Independent of every resource that clients can exhaust."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self.as_of()
                return True
        except (TimeoutError, Unavailable):
            return False

    def end(self, why: str) -> None:
        """End all waiting requests and listeners; clients get a request to reconnect."""
        self._ending = True
        self.feed.end(why)

    def close(self) -> None:
        """Close the stream, without waiting for calls under way."""
        self._closed = True
        self._together.shutdown(wait=False, cancel_futures=True)
        for each in (self._threads, self._readers, self._polls):
            each.close()
        if self._stream is not None:
            self._stream.close()

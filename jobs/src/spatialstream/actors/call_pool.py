"""A pool of persistent calls: a request is a message on an open Flight exchange, and its answer one or more.

A Flight call per request takes both sides twice the processor time of two messages. So a thread that sends a request
takes a call from the pool for its own use and returns it afterwards; a call that stays unused for a while is closed.
Persistent calls have no deadline, so a watcher thread cancels a call whose request has waited for too long. Connecting
takes no longer than the request's own timeout either.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
from pyarrow import flight

from spatialstream.actors.wire import ActorLost, answering, options
from spatialstream.connectors.calls import called

__all__ = ["AnswerMessages", "CallPool", "serve_calls"]

_LOOK_SECONDS = 0.1
"""A request may wait for so much longer than its timeout."""

_LAST, _MORE = b".", b"+"
"""The first byte of a message of an answer: whether it is the last one."""

_CLOSE_SECONDS = 1.0
"""For how long :meth:`CallPool.close` waits until the cancelled calls of other threads have ended."""


@dataclass(eq=False, slots=True)
class _Call:
    """A persistent call.

    Attributes:
        address: of the endpoint.
        secret: with which the call was opened.
        writer, reader: the two ends of the exchange.
        until: when to cancel it, s of the monotonic clock.
    """

    address: str
    secret: str
    writer: Any
    reader: Any
    until: float


class AnswerMessages:
    """The messages of an answer, as they come; an iterator.

    Args:
        pool: of the call.
        call: to which this belongs until it is over.
        until: when the call is cancelled, s of the monotonic clock.
    """

    def __init__(self, pool: CallPool, call: _Call, until: float) -> None:
        self._pool, self._call, self._until = pool, call, until
        self._over = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """The next message.

        Raises:
            ActorLost: the endpoint does not answer in time, or at all.
        """
        if self._over:
            raise StopIteration
        self._over = True  # unless there is one, and another one after it
        message, self._over = self._pool._read(self._call, self._until)
        return message

    def close(self) -> None:
        """End the call, if the answer is not at its end: the other side makes no more of it."""
        if not self._over:
            self._over = True
            self._pool._end([self._call])


class CallPool:
    """Persistent calls to endpoints that run :func:`serve_calls`; thread-safe.

    Args:
        name: the command of the exchange.
        client: returns the client of the endpoint at an address.
        idle: seconds after which an unused call is closed.
    """

    def __init__(self, name: str, client: Callable[[str], flight.FlightClient], idle: float = 5.0) -> None:
        self._descriptor = flight.FlightDescriptor.for_command(name)
        self._client, self._idle, self._changed = client, idle, threading.Condition()
        self._free: list[_Call] = []
        self._all: set[_Call] = set()
        self._watcher: threading.Thread | None = None
        self._closed = False

    @property
    def size(self) -> int:
        """The number of open calls."""
        return len(self._all)

    @property
    def unused(self) -> int:
        """The number of open calls that no request uses."""
        return len(self._free)

    def ask(
        self, address: str, secret: str, body: bytes, seconds: float, first_timeout: float | None = None
    ) -> AnswerMessages:
        """Send a request, and return its answer, which has to be closed or read to its end.

        Args:
            address: of the endpoint.
            secret: authenticates the call.
            body: the request.
            seconds: timeout of the answer.
            first_timeout: timeout of its first message; None: the same.

        Raises:
            ActorLost: the endpoint cannot be reached in time, or at all; when the answer is read: it does not answer.
        """
        until = time.monotonic() + seconds
        with answering(address):
            call = self._taken(address, secret, until if first_timeout is None else time.monotonic() + first_timeout)
            try:
                call.writer.write_metadata(pa.py_buffer(body))
            except BaseException:
                self._lose(call)
                raise
        return AnswerMessages(self, call, until)

    def _read(self, call: _Call, until: float) -> tuple[bytes, bool]:
        """The next message of an answer, and whether it is the last one: then the call is free."""
        with answering(call.address):
            try:
                message = call.reader.read_chunk().app_metadata.to_pybytes()
            except StopIteration:
                self._lose(call)
                raise ActorLost(f"the process at {call.address} has ended the call", call.address) from None
            except BaseException:
                self._lose(call)
                raise
        last = message[:1] == _LAST
        with self._changed:
            call.until = time.monotonic() + self._idle if last else until
            if last:
                self._free.append(call)
        return message[1:], last

    def close(self) -> None:
        """Close all calls and stop the watcher thread, so that the process can exit.

        :meth:`ask` must not be called any more.
        """
        with self._changed:
            self._closed, idle, self._free = True, self._free, []
            watcher = self._watcher
            self._changed.notify_all()
        self._end(idle)
        if watcher is not None:  # CPython up to 3.13 aborts if the process exits while this thread releases a call
            watcher.join(_CLOSE_SECONDS)

    def _taken(self, address: str, secret: str, until: float) -> _Call:
        """A call for the exclusive use of this thread."""
        with self._changed:
            for call in reversed(self._free):  # the most recently used one; the others may expire
                if (call.address, call.secret) == (address, secret):
                    self._free.remove(call)
                    call.until = until
                    return call
        call = _Call(address, secret, *self._begun(address, secret, until), until)
        with self._changed:
            self._all.add(call)
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="call-pool", daemon=True)
                self._watcher.start()
        return call

    def _begun(self, address: str, secret: str, until: float) -> tuple[Any, Any]:
        """Open a call. gRPC may wait for a connection without limit, so another thread does that."""
        begun = called(lambda: self._client(address).do_exchange(self._descriptor, options(secret)))
        try:
            ends: tuple[Any, Any] = begun.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            begun.add_done_callback(_end_unused)
            raise TimeoutError("could not connect in time") from None
        return ends

    def _watch(self) -> None:
        """Cancel calls that take too long and close unused ones, as long as there are calls."""
        while True:
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)
                now = time.monotonic()
                late = {call for call in self._all if call.until < now or self._closed}
                idle = late & set(self._free)
                self._free = [call for call in self._free if call not in idle]
                if not self._all:
                    self._watcher = None
                    return
            self._end(idle)
            for call in late - idle:
                call.reader.cancel()  # the thread that waits for it closes it

    def _lose(self, call: _Call) -> None:
        """Close a failed call and the unused ones to the same endpoint, so that the next request does not fail too."""
        with self._changed:
            others = [each for each in self._free if each.address == call.address]
            self._free = [each for each in self._free if each.address != call.address]
        self._end([call, *others])

    def _end(self, calls: Iterable[_Call]) -> None:
        """Close calls that no other thread uses."""
        for call in calls:
            _break_off(call.writer, call.reader)
            with self._changed:
                self._all.discard(call)


def _end_unused(begun: Future[Any]) -> None:
    """Close a call that was opened too late."""
    if begun.exception() is None:
        _break_off(*begun.result())


def _break_off(writer: Any, reader: Any) -> None:
    reader.cancel()
    with suppress(pa.ArrowException):  # close reports the cancellation; unclosed, Flight would log it
        writer.close()


def serve_calls(reader: Any, writer: Any, answer: Callable[[bytes], Generator[bytes]]) -> None:
    """Answer each request that comes on a call, in one or more messages, until the other side closes it."""
    for body in _bodies(reader):
        with closing(answer(body)) as messages:
            waiting = next(messages, b"")
            for message in messages:
                writer.write_metadata(pa.py_buffer(_MORE + waiting))
                waiting = message
            writer.write_metadata(pa.py_buffer(_LAST + waiting))


def _bodies(reader: Any) -> Iterator[bytes]:
    while True:
        try:
            body = reader.read_chunk().app_metadata
        except (StopIteration, pa.ArrowException, flight.FlightError):  # the client has gone
            return
        yield body.to_pybytes()

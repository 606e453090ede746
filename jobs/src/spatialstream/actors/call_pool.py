"""Calls that stand: a query is a message on one, and its answer another.

A call of its own, as Flight makes them, takes both sides twice the processor time that two messages do. So each thread
that asks has a call for itself meanwhile, and leaves it to the next one; what nobody has used for a while ends. Such a
call has no deadline, for it is to last: another thread looks whether a query has waited for too long, and breaks its
call off; nor does anybody wait for its connection for longer than for an answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from spatialstream.actors.wire import ActorLost, answering, options
from spatialstream.connectors.calls import called

__all__ = ["CallPool", "serve_calls"]

_IDLE_SECONDS = 5.0
"""For which a call stands that nobody uses."""

_LOOK_SECONDS = 0.1
"""By so much a query may wait longer than it says."""

_CLOSE_SECONDS = 1.0
"""For which is waited for calls to end that others use; they are broken off."""


@dataclass(eq=False, slots=True)
class _Call:
    """A call.

    Attributes:
        address: of the endpoint.
        secret: with which it was begun.
        writer, reader: its ends.
        until: when it is to be broken off, s of the monotonic clock.
    """

    address: str
    secret: str
    writer: Any
    reader: Any
    until: float


class CallPool:
    """Calls of endpoints that answer as :func:`serve_calls` does; any number of threads may ask.

    Args:
        name: of what is asked for.
        client: of the endpoint at an address.
    """

    def __init__(self, name: str, client: Callable[[str], flight.FlightClient]) -> None:
        self._descriptor = flight.FlightDescriptor.for_command(name)
        self._client, self._changed = client, threading.Condition()
        self._free: list[_Call] = []
        self._all: set[_Call] = set()
        self._watcher: threading.Thread | None = None
        self._closed = False

    def ask(self, address: str, secret: str, body: bytes, seconds: float) -> bytes:
        """What an endpoint answers.

        Args:
            address: of the endpoint.
            secret: that lets one in.
            body: what it is asked.
            seconds: within which it has to answer.

        Raises:
            ActorLost: it does not.
        """
        until = time.monotonic() + seconds
        with answering(address):
            call = self._taken(address, secret, until)
            try:
                call.writer.write_metadata(pa.py_buffer(body))
                answer: bytes = call.reader.read_chunk().app_metadata.to_pybytes()
            except StopIteration:
                self._lose(call)
                raise ActorLost(f"the process at {address} has ended the call", address) from None
            except BaseException:
                self._lose(call)
                raise
        with self._changed:
            call.until = time.monotonic() + _IDLE_SECONDS
            self._free.append(call)
        return answer

    def close(self) -> None:
        """End all calls, and the thread that looks after them, so that the process may end.

        Nothing is to be asked any more.
        """
        with self._changed:
            self._closed, idle, self._free = True, self._free, []
            watcher = self._watcher
            self._changed.notify_all()
        self._end(idle)
        if watcher is not None:  # CPython to 3.13 aborts if the process ends while it lets go of a call
            watcher.join(_CLOSE_SECONDS)

    def _taken(self, address: str, secret: str, until: float) -> _Call:
        """A call for this thread alone."""
        with self._changed:
            for call in reversed(self._free):  # the one that was used last; the others may end
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
        """A new call's ends. gRPC waits for a connection for as long as it likes, so another thread does."""
        begun = called(lambda: self._client(address).do_exchange(self._descriptor, options(secret)))
        try:
            ends: tuple[Any, Any] = begun.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            begun.add_done_callback(_end_unused)
            raise TimeoutError("there is no connection in time") from None
        return ends

    def _watch(self) -> None:
        """Break off what takes too long, and end what nobody uses, for as long as there are calls."""
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
                call.reader.cancel()  # whoever waits for it ends it

    def _lose(self, call: _Call) -> None:
        """End a call that has failed, and those that stand with it: the next one who asks is not to fail of them."""
        with self._changed:
            others = [each for each in self._free if each.address == call.address]
            self._free = [each for each in self._free if each.address != call.address]
        self._end([call, *others])

    def _end(self, calls: Iterable[_Call]) -> None:
        """End calls that nobody uses, or this thread alone."""
        for call in calls:
            _break_off(call.writer, call.reader)
            with self._changed:
                self._all.discard(call)


def _end_unused(begun: Future[Any]) -> None:
    """End a call that has come too late."""
    if begun.exception() is None:
        _break_off(*begun.result())


def _break_off(writer: Any, reader: Any) -> None:
    reader.cancel()
    with suppress(pa.ArrowException):  # it says that it was cancelled; unasked it would write that to the log
        writer.close()


def serve_calls(reader: Any, writer: Any, answer: Callable[[bytes], bytes]) -> None:
    """Answer what comes on a call, until its other side ends it."""
    for body in _bodies(reader):
        writer.write_metadata(pa.py_buffer(answer(body)))


def _bodies(reader: Any) -> Iterator[bytes]:
    while True:
        try:
            body = reader.read_chunk().app_metadata
        except (StopIteration, pa.ArrowException, flight.FlightError):  # it has gone
            return
        yield body.to_pybytes()

"""Persistent calls: each thread uses one exclusively, slow ones are cancelled, and unused ones are closed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import flight

from spatialstream.actors.actor import Actor, ActorSpec
from spatialstream.actors.call_pool import CallPool, serve_calls
from spatialstream.actors.wire import ActorLost, Guard, client_of, options
from tests.contracts.engines import until, world


class Endpoint(flight.FlightServerBase):  # type: ignore[misc]
    """Answers requests with their bytes reversed; ``slow`` when it is allowed to, and ``wrong`` with an error.

    Attributes:
        begun, ended: number of calls.
        made: number of messages of the answer to ``many``.
        slow: set when it may answer.
    """

    def __init__(self) -> None:
        super().__init__("grpc+tcp://127.0.0.1:0", middleware={Guard.NAME: Guard("own", "asking")})
        self.begun, self.ended, self.made, self.slow, self.lock = 0, 0, 0, threading.Event(), threading.Lock()
        self.address = f"127.0.0.1:{self.port}"

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        assert descriptor.command == b"name"
        with self.lock:
            self.begun += 1
        try:
            serve_calls(reader, writer, self.answer)
        finally:
            with self.lock:
                self.ended += 1

    def answer(self, body: bytes) -> Generator[bytes]:
        if body == b"slow":
            assert self.slow.wait(60.0)
        if body == b"wrong":
            raise RuntimeError("a defect")
        if body == b"late":
            yield b"first"
            yield b"second"  # so that the first one is sent
            assert self.slow.wait(60.0)
        if body.startswith(b"many"):
            for self.made in range(int(body[4:])):
                yield bytes(str(self.made), "ascii") * 10_000
        yield body[::-1]


def once(asking: CallPool, address: str, secret: str, body: bytes, seconds: float) -> bytes:
    """The only message of an answer."""
    (message,) = asking.ask(address, secret, body, seconds)
    return message


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.slow.set()
    made.shutdown()


def watchers() -> list[threading.Thread]:
    """The threads that look after calls."""
    return [each for each in threading.enumerate() if each.name == "call-pool"]


@pytest.fixture
def asking() -> Iterator[CallPool]:
    made = CallPool("name", client_of)
    yield made
    made.close()


def test_each_thread_gets_its_own_answers_and_no_call_is_begun_twice(endpoint: Endpoint, asking: CallPool) -> None:
    def ask(number: int) -> None:
        for i in range(50):
            body = f"{number}-{i}-{'x' * 100 * i}".encode()
            assert once(asking, endpoint.address, "asking", body, 60.0) == body[::-1]

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(ask, number) for number in range(8)]:
            each.result(120.0)
    begun = endpoint.begun
    assert begun <= 8
    ask(0)
    assert endpoint.begun == begun


def test_an_answer_may_be_larger_than_a_message(endpoint: Endpoint, asking: CallPool) -> None:
    body = bytes(range(256)) * 100_000
    assert once(asking, endpoint.address, "asking", body, 60.0) == body[::-1]


def test_an_answer_may_be_of_many_messages(endpoint: Endpoint, asking: CallPool) -> None:
    for _ in range(3):
        messages = list(asking.ask(endpoint.address, "asking", b"many50", 60.0))
        assert messages == [*(bytes(str(i), "ascii") * 10_000 for i in range(50)), b"05ynam"]
    assert endpoint.begun == 1


def test_of_an_answer_that_nobody_reads_no_more_is_made(endpoint: Endpoint, asking: CallPool) -> None:
    with closing(asking.ask(endpoint.address, "asking", b"many100000", 60.0)) as messages:
        assert next(messages) == b"0" * 10_000
    until(lambda: endpoint.ended == 1)
    assert endpoint.made < 5_000
    assert not asking.size
    assert once(asking, endpoint.address, "asking", b"ab", 60.0) == b"ba"
    unread = asking.ask(endpoint.address, "asking", b"ab", 60.0)
    unread.close()
    assert list(unread) == []
    assert not asking.size


def test_who_has_begun_to_answer_has_more_time(endpoint: Endpoint, asking: CallPool) -> None:
    messages = asking.ask(endpoint.address, "asking", b"late", 60.0, 1.0)
    assert next(messages) == b"first"
    time.sleep(1.5)
    endpoint.slow.set()
    assert list(messages) == [b"second", b"etal"]
    endpoint.slow.clear()
    with pytest.raises(ActorLost, match="does not answer"):
        next(asking.ask(endpoint.address, "asking", b"slow", 60.0, 0.3))


def test_what_takes_too_long_is_broken_off_and_nothing_else(endpoint: Endpoint, asking: CallPool) -> None:
    began = time.monotonic()
    with pytest.raises(ActorLost, match="does not answer") as lost:
        once(asking, endpoint.address, "asking", b"slow", 0.3)
    assert 0.3 <= time.monotonic() - began < 30.0
    assert lost.value.address == endpoint.address
    assert once(asking, endpoint.address, "asking", b"ab", 60.0) == b"ba"
    endpoint.slow.set()
    until(lambda: endpoint.ended == 1)


def test_of_one_that_has_gone_only_the_first_to_ask_hears(endpoint: Endpoint, asking: CallPool) -> None:
    with ThreadPoolExecutor(4) as pool:
        held = [pool.submit(once, asking, endpoint.address, "asking", b"slow", 60.0) for _ in range(4)]
        until(lambda: endpoint.begun == 4)
        endpoint.slow.set()
        for each in held:
            each.result(60.0)
    assert asking.unused == 4
    with pytest.raises(ActorLost):
        once(asking, endpoint.address, "asking", b"wrong", 60.0)
    assert not asking.unused
    until(lambda: endpoint.ended == 4)
    assert once(asking, endpoint.address, "asking", b"ab", 60.0) == b"ba"


def test_an_error_ends_the_call_and_nothing_else(endpoint: Endpoint, asking: CallPool) -> None:
    with pytest.raises(ActorLost, match="does not answer"):
        once(asking, endpoint.address, "asking", b"wrong", 60.0)
    assert once(asking, endpoint.address, "asking", b"ab", 60.0) == b"ba"


def test_calls_that_nobody_uses_end_and_so_does_who_looks_after_them(endpoint: Endpoint) -> None:
    asking = CallPool("name", client_of, idle=0.2)
    for round_number in (1, 2):
        once(asking, endpoint.address, "asking", b"ab", 60.0)
        until(lambda number=round_number: endpoint.ended == number)  # type: ignore[misc]
        until(lambda: not watchers())
        assert not asking.unused
        assert not asking.size


def test_all_end_with_who_asks(endpoint: Endpoint, asking: CallPool) -> None:
    with ThreadPoolExecutor(4) as pool:
        waits = pool.submit(once, asking, endpoint.address, "asking", b"slow", 60.0)
        until(lambda: endpoint.begun == 1)
        assert once(asking, endpoint.address, "asking", b"ab", 60.0) == b"ba"
        asking.close()
        with pytest.raises(ActorLost):
            waits.result(60.0)
        endpoint.slow.set()
    until(lambda: endpoint.ended == 2)
    until(lambda: not watchers())


def test_nothing_of_one_that_is_closed_runs_any_more(endpoint: Endpoint) -> None:
    class Slow:
        """The end of a call that takes its time to be cancelled, as on a busy machine."""

        def __init__(self, reader: Any) -> None:
            self.read_chunk, self._cancel = reader.read_chunk, reader.cancel

        def cancel(self) -> None:
            time.sleep(0.3)
            self._cancel()

    class Client:
        def do_exchange(self, *given: Any) -> tuple[Any, Any]:
            writer, reader = client_of(endpoint.address).do_exchange(*given)
            return writer, Slow(reader)

    asking = CallPool("name", lambda address: cast("flight.FlightClient", Client()))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(once, asking, endpoint.address, "asking", b"slow", 60.0)
        until(lambda: asking.size == 1)
        (watcher,) = watchers()
        asking.close()
        assert not watcher.is_alive()  # the process may end now
        with pytest.raises(ActorLost):
            waits.result(60.0)
        endpoint.slow.set()


def test_who_is_not_there_or_does_not_know_the_secret(endpoint: Endpoint, asking: CallPool) -> None:
    with pytest.raises(ActorLost, match="the connection failed"):
        once(asking, "127.0.0.1:1", "asking", b"ab", 60.0)
    with pytest.raises(ActorLost, match="secret of this stream"):
        once(asking, endpoint.address, "guessed", b"ab", 60.0)
    assert endpoint.begun == 0


def test_nobody_waits_for_a_connection_for_longer_than_for_an_answer(asking: CallPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # lets in whoever comes, and says nothing
        address, began = f"127.0.0.1:{silent.getsockname()[1]}", time.monotonic()
        with pytest.raises(ActorLost, match="could not connect in time"):
            once(asking, address, "asking", b"ab", 0.2)
        assert time.monotonic() - began < 10.0  # gRPC gives up after 20 s
    assert not asking.size


def test_a_call_that_is_begun_too_late_is_ended(endpoint: Endpoint) -> None:
    late = threading.Event()

    class Late:
        def do_exchange(self, *given: Any) -> Any:
            assert late.wait(60.0)
            ends = client_of(endpoint.address).do_exchange(*given)
            until(lambda: endpoint.begun == 1)  # one that is broken off sooner may never be heard of there
            return ends

    asking = CallPool("name", lambda address: Late())
    with pytest.raises(ActorLost, match="could not connect in time"):
        once(asking, endpoint.address, "asking", b"ab", 0.1)
    late.set()
    until(lambda: endpoint.ended == 1)
    assert not asking.size


def test_one_that_was_there_and_is_another_now() -> None:
    first, asking = Endpoint(), CallPool("name", client_of, idle=0.2)
    assert once(asking, first.address, "asking", b"ab", 60.0) == b"ba"
    with ThreadPoolExecutor(1) as pool:
        gone = pool.submit(first.shutdown)  # waits for the open call, and takes no other
        until(lambda: not asking.unused, within=60.0)  # which ends when nobody has used it for a while
        gone.result(60.0)
    with pytest.raises(ActorLost, match="does not answer"):
        once(asking, first.address, "asking", b"ab", 60.0)


@pytest.mark.parametrize(
    ("name", "secret", "why"), [("find", "asking", "own processes"), ("other", "own", "unknown exchange")]
)
def test_an_actor_refuses_strangers_and_what_it_does_not_know(name: str, secret: str, why: str) -> None:
    actor = Actor(ActorSpec("127.0.0.1:1", "own", world(), "asking"), "127.0.0.1")
    asking = CallPool(name, client_of)
    try:
        with pytest.raises(ActorLost, match=why):
            once(asking, actor.address, secret, json.dumps({}).encode(), 60.0)
    finally:
        asking.close()
        actor.shutdown()


def test_an_actor_tells_what_is_wrong_with_what_it_is_asked() -> None:
    actor = Actor(ActorSpec("127.0.0.1:1", "own", world(), "asking"), "127.0.0.1")
    asking = CallPool("ask", client_of)
    try:
        for body in (b"{", b"[]", b"\xff"):
            assert b'"failed"' in once(asking, actor.address, "asking", body, 60.0)
    finally:
        asking.close()
        actor.shutdown()


def test_who_ends_a_call_without_a_word_is_gone(endpoint: Endpoint) -> None:
    client = client_of(endpoint.address)
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command("name"), options("own"))
    writer.write_metadata(pa.py_buffer(b"ab"))
    assert reader.read_chunk().app_metadata.to_pybytes() == b".ba"
    writer.close()
    until(lambda: endpoint.ended == 1)

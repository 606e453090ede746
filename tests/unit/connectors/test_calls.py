"""Calls in other threads, which do one call after the other."""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import Future
from functools import partial

import pytest

from spatialstream.connectors.calls import THREADS, CallThreads, called
from spatialstream.servers.process import await_condition

WITHIN = 30.0


def test_what_comes_of_a_call_is_told() -> None:
    def fail() -> None:
        raise KeyError("it")

    assert called(lambda: 3).result(WITHIN) == 3
    with pytest.raises(KeyError, match="it"):
        called(fail).result(WITHIN)
    assert called(lambda: 4).result(WITHIN) == 4


def test_a_thread_that_is_free_does_the_next_call() -> None:
    threads, used = CallThreads(), set[int]()
    for _ in range(100):
        used.add(threads.called(threading.get_ident).result(WITHIN))
        assert await_condition(lambda: threads.waiting == 1, WITHIN)
    assert len(used) == 1


def test_calls_do_not_wait_for_one_another() -> None:
    together = threading.Barrier(20)
    begun = [called(partial(together.wait, WITHIN)) for _ in range(20)]
    assert sorted(each.result(WITHIN) for each in begun) == list(range(20))


@pytest.mark.parametrize("idle", [0.0, 0.0005])
def test_a_thread_ends_that_has_nothing_to_do_and_no_call_is_lost_by_it(idle: float) -> None:
    threads, pause = CallThreads(idle), threading.Event()
    before = {each for each in threading.enumerate() if each.name == "calls"}
    for number in range(1_000):
        assert threads.called(partial(int, str(number))).result(WITHIN) == number
        if number % 10 == 0:
            pause.wait(idle)  # so that some come just when a thread gives up
    assert await_condition(
        lambda: not [each for each in threading.enumerate() if each.name == "calls" and each not in before], WITHIN
    )
    assert not threads.waiting


def test_what_a_call_has_held_is_let_go() -> None:
    class Large:
        pass

    def begin() -> tuple[weakref.ref[Large], Future[str]]:
        large = Large()
        return weakref.ref(large), called(lambda: type(large).__name__)

    held, future = begin()
    assert future.result(WITHIN) == "Large"
    assert await_condition(lambda: held() is None, WITHIN)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_has_threads_of_its_own() -> None:
    assert called(lambda: 1).result(WITHIN) == 1
    assert await_condition(lambda: THREADS.waiting > 0, WITHIN)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(called(lambda: 7).result(WITHIN))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

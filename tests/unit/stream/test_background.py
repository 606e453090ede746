"""Background work of a job."""

from __future__ import annotations

import threading

import pytest

from spatialstream.stream.background import Background


def test_only_the_last_of_what_waits_is_done() -> None:
    background, done, begun, go = Background("test"), [], threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go.wait(60.0)
        done.append(1)

    background.give(first)
    assert begun.wait(60.0)
    background.give(lambda: done.append(2))
    background.give(lambda: done.append(3))
    assert not background.wait(0.01)
    go.set()
    assert background.wait(60.0)
    assert done == [1, 3]


def test_nothing_given_is_done_at_once() -> None:
    assert Background("test").wait(0.0)


def test_a_failure_is_raised_once_where_more_is_given_and_it_goes_on() -> None:
    background, done = Background("test"), []
    background.give(lambda: done.append(1 // 0))
    with pytest.raises(ZeroDivisionError):
        background.wait(60.0)
    background.give(lambda: done.append(1))
    assert background.wait(60.0)
    assert done == [1]

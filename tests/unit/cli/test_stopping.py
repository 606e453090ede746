"""How a command ends that is to stop: when it has finished, at the second signal, or when it has taken too long."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Iterator

import pytest

from spatialstream.cli.live import stopping

QUIET = argparse.Namespace(quiet=True)


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {each: signal.getsignal(each) for each in before} == before


def end(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60.0)
    pytest.fail("nobody has ended this")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_told_and_the_second_one_ends(number: signal.Signals) -> None:
    told: list[bool] = []
    with stopping(QUIET, lambda: told.append(True)) as stop:
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert told == [True]
        with pytest.raises(KeyboardInterrupt):
            end(signal.SIGTERM)


def test_who_takes_too_long_to_finish_is_ended() -> None:
    with stopping(QUIET, grace=0.1), pytest.raises(KeyboardInterrupt):
        end(signal.SIGTERM)


def test_who_finishes_in_time_is_not_interrupted_afterwards() -> None:
    with stopping(QUIET, grace=0.1):
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.3)  # longer than the grace

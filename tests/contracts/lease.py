"""The contract of every lease; a test module gives the class its ``rival`` and its ``die``."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable

import pytest

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.store.lease import Lease

SOON = 120.0

Rival = Callable[[], Lease]
"""Creates one more process's view of a lease: of the same lease throughout a test, or until :data:`Die` requests a new
one."""


def refusal(lease: Lease, patience: float) -> str:
    """The error of a process that cannot become the holder; a busy server may take its time to report it."""
    while True:
        with contextlib.suppress(Unavailable):
            try:
                lease.acquire(patience)
            except SettingError as error:
                return str(error)
            raise AssertionError("it has become the holder")


class LeaseContract:
    """Fixtures: ``rival``; ``anew`` starts with another lease; ``die`` ends a process without notice."""

    examples = 20
    moment = 0.05
    """Seconds that a rival waits if it is certain to be refused."""

    def test_one_is_the_holder_and_the_others_are_told_who_is(self, rival: Rival) -> None:
        first, second = rival(), rival()
        assert (first.held, first.number, first.superseded) == (False, 0, False)
        first.acquire(SOON)
        assert (first.held, first.superseded) == (True, False)
        assert first.number >= 1

        assert re.search(r"another router\b.* is running", refusal(second, self.moment))

        assert (first.held, second.held, second.number) == (True, False, 0)

    def test_who_waits_becomes_the_holder_once_it_is_free(self, rival: Rival) -> None:
        first, second = rival(), rival()
        first.acquire(SOON)
        free = threading.Timer(0.3, first.release)
        free.start()
        second.acquire(SOON)
        free.join()

        assert (first.held, second.held) == (False, True)
        assert second.number > first.number

    def test_who_is_asked_again_is_the_same_holder(self, rival: Rival) -> None:
        lease = rival()
        lease.acquire(SOON)
        number = lease.number
        lease.acquire(0.0)

        assert (lease.held, lease.number) == (True, number)

    def test_a_successor_of_a_holder_that_died(self, rival: Rival, die: Callable[[Lease], None]) -> None:
        first, second = rival(), rival()
        first.acquire(SOON)
        die(first)
        second.acquire(SOON)

        assert second.held
        assert second.number > first.number

    def test_of_many_at_once_one_is_the_holder_at_a_time(self, rival: Rival) -> None:
        numbers: list[int] = []
        inside: list[int] = []

        def work(lease: Lease) -> None:
            lease.acquire(SOON)
            inside.append(1)
            assert len(inside) == 1
            numbers.append(lease.number)
            time.sleep(0.01)
            inside.pop()
            lease.release()

        threads = [threading.Thread(target=work, args=(rival(),)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(numbers) == 5
        assert numbers == sorted(set(numbers))

    def test_whoever_comes_and_goes_numbers_grow(self, anew: Callable[[], Rival], die: Callable[[Lease], None]) -> None:
        for seed in range(self.examples):
            draw = random.Random(seed)
            rival = anew()
            leases = [rival() for _ in range(3)]
            holder: int | None = None  # the oracle: a counter and a name
            number = 0
            for _ in range(12):
                step, who = draw.choice(["come", "go", "die"]), draw.randrange(3)
                if step == "come":
                    if holder in (None, who):
                        leases[who].acquire(SOON)
                        number += holder is None
                        holder = who
                    else:
                        with pytest.raises((SettingError, Unavailable)):  # a busy server may not even say who is
                            leases[who].acquire(self.moment)
                        leases[who].release()
                        leases[who] = rival()
                elif holder == who:
                    leases[who].release() if step == "go" else die(leases[who])
                    leases[who], holder = rival(), None
                assert [lease.held for lease in leases] == [i == holder for i in range(3)]
                if holder is not None:
                    assert leases[holder].number == number
            for lease in leases:
                lease.release()

"""Leases in memory and by a folder's lock file: the contract, and specific tests of specific to each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from spatialstream.model.errors import StateError, Unavailable
from spatialstream.store.lease import FolderLease, Lease
from tests.contracts.lease import LeaseContract, Rival
from tests.leases import Leases, MemoryLease


class TestMemory(LeaseContract):
    @pytest.fixture
    def anew(self) -> Callable[[], Rival]:
        def make() -> Rival:
            leases = Leases()
            return lambda: MemoryLease(leases, "router")

        return make

    @pytest.fixture
    def rival(self, anew: Callable[[], Rival]) -> Rival:
        return anew()

    @pytest.fixture
    def die(self) -> Callable[[Lease], None]:
        def kill(lease: Lease) -> None:
            assert isinstance(lease, MemoryLease)
            lease.reachable = False
            lease.leases.expire()

        return kill


class TestFolder(LeaseContract):
    @pytest.fixture
    def anew(self, tmp_path: Path) -> Callable[[], Rival]:
        numbers = itertools.count()

        def make() -> Rival:
            folder = tmp_path / str(next(numbers))
            return lambda: FolderLease(folder, "router")

        return make

    @pytest.fixture
    def rival(self, anew: Callable[[], Rival]) -> Rival:
        return anew()

    @pytest.fixture
    def die(self) -> Callable[[Lease], None]:
        return lambda lease: lease.release()  # as the kernel does


def test_who_was_cut_off_is_the_holder_again_if_nobody_was_meanwhile() -> None:
    leases = Leases()
    lease, other = MemoryLease(leases), MemoryLease(leases)
    lease.acquire(0.0)
    lease.reachable = False
    assert (lease.held, lease.superseded) == (False, False)
    leases.expire()
    lease.reachable = True
    assert (lease.held, lease.number) == (True, 1)

    lease.reachable = False
    leases.expire()
    other.acquire(0.0)
    other.release()
    lease.reachable = True
    assert (lease.held, lease.superseded, lease.number) == (False, True, 1)


def test_who_goes_on_without_becomes_the_holder_later_or_is_superseded() -> None:
    leases = Leases()
    early, late = MemoryLease(leases), MemoryLease(leases)
    for lease in (early, late):
        lease.reachable = False
        with pytest.raises(Unavailable):
            lease.acquire(0.0)
        assert (lease.held, lease.superseded) == (False, False)
    for lease in (early, late):
        lease.reachable = True
    assert (early.held, late.held) == (True, False)
    assert (early.superseded, late.superseded) == (False, True)


def test_a_lock_file_of_an_older_release_or_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "router.lock").touch()
    with FolderLease(tmp_path, "router") as lease:
        lease.acquire(0.0)
        assert lease.number == 1

    (tmp_path / "router.lock").write_text("a diary")
    with pytest.raises(StateError, match=r"router\.lock is damaged"), FolderLease(tmp_path, "router") as lease:
        lease.acquire(0.0)
    (tmp_path / "router.lock").unlink()
    with FolderLease(tmp_path, "router") as lease:
        lease.acquire(0.0)

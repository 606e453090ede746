"""A lease in a real ZooKeeper: the contract, lost servers, expired sessions, and who may see it."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.servers.ports import free_port
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.lease import Lease, ZooKeeperLease
from spatialstream.store.zookeeper import ZooKeeperStore
from tests.cluster.sessions import end_session
from tests.contracts.lease import SOON, LeaseContract, Rival, refusal
from tests.unit.store.contract import eventually

SESSION = 4.0

_names = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One that a test may kill."""
    with ZooKeeperServer(tmp_path_factory.mktemp("lone")) as running:
        yield running


@pytest.fixture
def stores() -> Iterator[list[ZooKeeperStore]]:
    opened: list[ZooKeeperStore] = []
    yield opened
    for store in opened:
        store.close()


@pytest.fixture
def anew(server: ZooKeeperServer, stores: list[ZooKeeperStore]) -> Callable[[], Rival]:
    def make() -> Rival:
        stream = f"lease-{next(_names)}"

        def rival() -> Lease:
            stores.append(ZooKeeperStore(server.hosts, stream, session=SESSION))
            return stores[-1].lease("router")

        return rival

    return make


@pytest.fixture
def rival(anew: Callable[[], Rival]) -> Rival:
    return anew()


@pytest.fixture
def die(server: ZooKeeperServer) -> Callable[[Lease], None]:
    """A process ends without a word; its session is ended too, or the test would have to wait for that."""

    def kill(lease: Lease) -> None:
        assert isinstance(lease, ZooKeeperLease)
        lease.abandon()
        end_session(server, lease.connection.client)
        assert eventually(lambda: not lease.held)

    return kill


class TestZooKeeper(LeaseContract):
    examples = 6
    moment = 1.0


def test_an_expired_session_is_no_reason_to_end(server: ZooKeeperServer, rival: Rival) -> None:
    lease, other = rival(), rival()
    lease.acquire(SOON)
    assert isinstance(lease, ZooKeeperLease)
    end_session(server, lease.connection.client)

    assert eventually(lambda: lease.held)
    assert (lease.number, lease.superseded) == (1, False)
    assert re.search(r"another router of lease-\d+ is running, on .* \(process \d+\)", refusal(other, 1.0))


def test_whose_place_was_taken_meanwhile_is_superseded(server: ZooKeeperServer, rival: Rival) -> None:
    lease, other = rival(), rival()
    lease.acquire(SOON)
    assert isinstance(lease, ZooKeeperLease)
    with pytest.MonkeyPatch.context() as patch:  # it is paused, and looks again only afterwards
        patch.setattr(lease, "_look", lambda: time.sleep(0.1))
        end_session(server, lease.connection.client)
        other.acquire(SOON)

    assert eventually(lambda: lease.superseded)
    assert (lease.held, lease.number, other.held, other.number) == (False, 1, True, 2)


def test_a_server_that_goes_and_comes(lone_server: ZooKeeperServer) -> None:
    with ZooKeeperStore(lone_server.hosts, "s", session=SESSION) as store, store.lease("router") as lease:
        lease.acquire(SOON)
        lone_server.kill()
        assert eventually(lambda: not lease.held)
        assert not lease.superseded

        time.sleep(1.5 * SESSION)  # longer than the session lasts
        lone_server.start()
        assert eventually(lambda: lease.held)
        assert (lease.number, lease.superseded) == (1, False)


def test_nobody_to_ask() -> None:
    with ZooKeeperStore(f"127.0.0.1:{free_port()}", "s", timeout=0.2) as store, store.lease("router") as lease:
        with pytest.raises(Unavailable, match="did not report within"):
            lease.acquire(0.3)
        assert (lease.held, lease.superseded) == (False, False)


def test_who_began_without_a_server_becomes_the_holder_when_it_comes(lone_server: ZooKeeperServer) -> None:
    lone_server.kill()
    with ZooKeeperStore(lone_server.hosts, "s") as store, store.lease("router") as lease:
        with pytest.raises(Unavailable):
            lease.acquire(0.3)
        lone_server.start()
        assert eventually(lambda: lease.held)
        with ZooKeeperStore(lone_server.hosts, "s") as another, another.lease("router") as late:
            assert refusal(late, 1.0)
            assert not late.held


def test_a_removed_stream_has_no_holder_and_is_not_made_anew_by_one(
    server: ZooKeeperServer, rival: Rival, stores: list[ZooKeeperStore]
) -> None:
    lease = rival()
    lease.acquire(SOON)
    stores[0].erase()

    assert eventually(lambda: lease.superseded)
    raw = KazooClient(server.hosts)
    raw.start()
    assert raw.exists(stores[0].root) is None
    raw.stop()
    raw.close()


def test_the_lease_belongs_to_the_user_of_the_stream(lone_server: ZooKeeperServer) -> None:
    own = ZooKeeperStore(lone_server.hosts, "s", credentials=("ada", "secret"))
    foreign = ZooKeeperStore(lone_server.hosts, "s", credentials=("eve", "guess"))
    with own as store, foreign as intruder, store.lease("router") as lease, intruder.lease("router") as wish:
        lease.acquire(SOON)
        with pytest.raises(SettingError, match="the credentials do not give access"):
            wish.acquire(SOON)
        lease.release()
        with pytest.raises(SettingError, match="the credentials do not give access"):
            intruder.lease("router").acquire(SOON)


def test_who_is_known_to_be_dead_is_not_waited_for(server: ZooKeeperServer, stores: list[ZooKeeperStore]) -> None:
    """Killed on this machine: the session lasts 40 seconds more, the lease does not."""
    script = (
        "import sys; from spatialstream.store.zookeeper import ZooKeeperStore\n"
        "lease = ZooKeeperStore(sys.argv[1], 'dead', session=40.0).lease('router')\n"
        "lease.acquire(20.0); print(lease.number, flush=True); input()"
    )
    command = [sys.executable, "-c", script, server.hosts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        stores.append(ZooKeeperStore(server.hosts, "dead", session=SESSION))
        with stores[0].lease("router") as other:
            assert "another router of dead is running" in refusal(other, 1.0)
        process.kill()
        process.wait()
        stores.append(ZooKeeperStore(server.hosts, "dead", session=SESSION))
        with stores[1].lease("router") as successor:
            successor.acquire(30.0)
            assert (successor.held, successor.number) == (True, 2)

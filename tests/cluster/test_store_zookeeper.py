"""The store in a real ZooKeeper: the contract, lost servers, expired sessions, access, and what is left behind."""

import itertools
import logging
import pickle
import threading

import numpy as np
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from spatialstream.model.errors import Conflict, SettingError, StateError, Unavailable
from spatialstream.servers.ports import free_port
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.blobs import PIECE
from spatialstream.store.state import Binding, Pending
from spatialstream.store.zookeeper import ZooKeeperStore
from tests.cluster.sessions import end_session
from tests.unit.store.contract import SLOTS, StoreContract, equal, eventually, version

pytestmark = pytest.mark.gate

numbers = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def connect(server):
    stream, stores = f"stream-{next(numbers)}", []

    def make(name="", **options):
        stores.append(ZooKeeperStore(server.hosts, f"{stream}{name}", **{"session": 4.0, **options}))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def raw(server):
    """A client that knows nothing of stores, nor any password."""
    client = KazooClient(server.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


class TestZooKeeperStore(StoreContract):
    @pytest.fixture
    def connect(self, connect):
        return connect


def tree(client, path="/spatialstream"):
    """All nodes from one down: path -> bytes."""
    result = {path: len(client.get(path)[0])}
    for name in client.get_children(path):
        result |= tree(client, f"{path}/{name}")
    return result


def root(store):
    return store.root


def test_a_stream_that_does_not_exist_is_told_beside_those_that_do(connect):
    connect("-here").create(version(0))

    with pytest.raises(StateError, match=r"there is no stream '.*-nosuch' in the routing store; there is stream-\d+"):
        connect("-nosuch").state()


# ------------------------------------------------------------------------------------------- somebody is in between


def republished(other):
    """Version 1 is withdrawn, and 2 is pending in its place."""
    other.withdraw(1, "p")
    other.publish(version(2), 0, "q", {})


def overtaken(other):
    """Version 1 is active, and 2 is pending."""
    other.activate(1, 3)
    other.publish(version(2), 1, "q", {})


@pytest.mark.parametrize("between", [republished, overtaken])
@pytest.mark.parametrize(
    ("call", "accepted"),
    [
        (lambda store: store.activate(1, 4), ()),
        (lambda store: store.withdraw(1, "p"), (republished,)),
        (lambda store: store.acknowledge(1, "exported", [0]), (republished, overtaken)),
    ],
    ids=["activate", "withdraw", "acknowledge"],
)
def test_a_change_that_was_decided_on_an_old_state_is_decided_again(connect, raw, monkeypatch, call, accepted, between):
    store, other = connect(), connect()
    store.create(version(0))
    store.publish(version(1), 0, "p", {})
    actions, read = [between], store._read

    def read_and_be_late(wait, watch=None):
        result = read(wait, watch)
        if watch is None and actions:
            actions.pop()(other)
        return result

    monkeypatch.setattr(store, "_read", read_and_be_late)
    if between in accepted:
        call(store)
    else:
        with pytest.raises(Conflict):
            call(store)

    assert actions == []
    state = other.state()
    assert state.pending == Pending(2, 1 if between is overtaken else 0, "q", {})
    assert state.active == (Binding(1, 3) if between is overtaken else Binding(0, 0))
    assert state.exported == frozenset()
    assert raw.get_children(f"{root(store)}/acks") == []
    assert other.versions() == ((0, 1, 2) if between is overtaken else (0, 2))


def test_a_version_computed_from_one_that_is_superseded_meanwhile_is_refused(connect, monkeypatch):
    store, other = connect(), connect()
    store.create(version(0))
    read = store._read

    def read_and_be_late(wait, watch=None):
        result = read(wait, watch)
        if watch is None and result and result[0].last == 0:
            other.publish(version(1), 0, "p", {})
            other.activate(1, 3)
        return result

    monkeypatch.setattr(store, "_read", read_and_be_late)
    with pytest.raises(Conflict, match="computed from version 0"):
        store.publish(version(2), 0, "q", {})

    assert (other.state().active, other.state().pending) == (Binding(1, 3), None)
    assert other.versions() == (0, 1)


def test_a_state_is_read_at_one_moment(connect, monkeypatch):
    store, other = connect(), connect()
    store.create(version(0))
    store.publish(version(1), 0, "p", {})
    get, moments = store.connection.client.get_async, []

    def get_late(path, watch=None):
        if watch is None and path.endswith("epochs"):
            moments.append(path)
            if len(moments) == 1:
                other.activate(1, 3)
        return get(path, watch)

    monkeypatch.setattr(store.connection.client, "get_async", get_late)
    state = store.state()

    assert len(moments) >= 2
    assert state == other.state()
    assert state.bindings == (Binding(0, 0), Binding(1, 3))


# ------------------------------------------------------------------------------------------------------------- outages


@pytest.fixture
def lone_server(tmp_path):
    server = ZooKeeperServer(tmp_path / "zookeeper").start()
    yield server
    server.kill()


def test_a_server_that_is_killed_and_comes_back(lone_server):
    hosts = lone_server.hosts
    with (
        ZooKeeperStore(hosts, "s") as store,
        ZooKeeperStore(hosts, "s") as other,
        ZooKeeperStore(hosts, "s", timeout=0.3) as impatient,
    ):
        store.create(version(0))
        store.publish(version(1), 0, "p", {"a": 1})
        state = store.state()
        clients = (store, other, impatient)
        assert eventually(lambda: all(each.latest() == state for each in clients))

        lone_server.kill()

        assert eventually(lambda: all(each.latest() is None for each in clients))
        for call in (
            impatient.state,
            impatient.versions,
            lambda: impatient.load(0),
            lambda: impatient.activate(1, 3),
            lambda: impatient.acknowledge(1, "loaded", [0]),
            lambda: impatient.save_statistics("J", {}, {}),
            lambda: impatient.load_statistics("J"),
        ):
            with pytest.raises(Unavailable, match=r"did not answer within 0\.3 s"):
                call()
        lone_server.start()

        assert eventually(lambda: all(each.latest() == state for each in clients))
        other.acknowledge(1, "exported", [0])
        assert eventually(lambda: (found := store.latest()) is not None and found.exported == {0})
        store.activate(1, 3)
        assert store.state().active == Binding(1, 3)
        assert equal(store.load(1), version(1))


def test_a_call_waits_for_a_server_that_comes_in_time(lone_server):
    with ZooKeeperStore(lone_server.hosts, "s", timeout=240.0) as store:
        store.create(version(0))
        lone_server.kill()
        assert eventually(lambda: store.latest() is None)
        starting = threading.Thread(target=lone_server.start)
        starting.start()

        store.publish(version(1), 0, "p", {})

        starting.join()
        assert store.state().pending == Pending(1, 0, "p", {})


def test_changes_while_the_server_is_killed_again_and_again(lone_server):
    """Whatever the moment, a change that is asked for until it is answered is made exactly once."""
    done = threading.Event()

    def insist(call, *arguments):
        while True:
            try:
                return call(*arguments)
            except Unavailable:
                continue

    def disturb():
        for _ in range(3):
            lone_server.kill()
            lone_server.start()
        done.set()

    with ZooKeeperStore(lone_server.hosts, "s", session=2.0, timeout=1.0) as store:
        store.create(version(0))
        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        number = 0
        while not done.is_set() or number < 3:
            number += 1
            insist(store.publish, version(number), number - 1, f"p{number}", {})
            insist(store.acknowledge, number, "loaded", range(SLOTS))
            insist(store.activate, number, number)
        disturbing.join()

        state = insist(store.state)
        assert state.bindings == tuple(Binding(each, each) for each in range(number + 1))
        assert store.versions() == tuple(range(number + 1))
        assert equal(store.load(number), version(number))
        assert eventually(lambda: store.latest() == state)


def test_no_server_at_all():
    with ZooKeeperStore(f"127.0.0.1:{free_port()}", "s", timeout=0.3) as store:
        assert store.latest() is None
        with pytest.raises(Unavailable, match="did not answer"):
            store.state()
    with pytest.raises(Unavailable, match="closed"):
        store.state()


def test_an_expired_session(server, connect):
    store, other = connect(), connect()
    store.create(version(0))
    state = store.state()
    assert eventually(lambda: store.latest() == state)
    end_session(server, store.connection.client)

    assert eventually(lambda: store.latest() == state)
    other.publish(version(1), 0, "p", {})
    assert eventually(lambda: store.latest() == other.state())
    store.activate(1, 2)
    assert eventually(lambda: other.latest() == store.state())


# -------------------------------------------------------------------------------------------------------------- access

CREDENTIALS = ("steward", "correct-horse")


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory):
    """A server of its own, as the root of all streams becomes the user's."""
    with ZooKeeperServer(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture
def guarded(guarded_server, caplog):
    """The server, a store in it, and everything that is logged."""
    caplog.set_level(0)
    server = guarded_server
    with ZooKeeperStore(server.hosts, f"s{next(numbers)}", credentials=CREDENTIALS) as store:
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "loaded", [0])
        store.save_statistics("J", {"a": np.ones(3)}, {})
        yield server, store


def test_every_node_is_the_users_alone(guarded):
    server, store = guarded
    anonymous = KazooClient(server.hosts)
    user = KazooClient(server.hosts, auth_data=[("digest", ":".join(CREDENTIALS))])
    for client in (anonymous, user):
        client.start()

    nodes = tree(user)

    assert {"/spatialstream", f"{root(store)}/active", f"{root(store)}/acks/1-loaded-0"} <= nodes.keys()
    for path in nodes:
        for call in (
            anonymous.get,
            anonymous.get_children,
            lambda path: anonymous.set(path, b""),
            lambda path: anonymous.create(f"{path}/more"),
            lambda path: anonymous.set_acls(path, OPEN_ACL_UNSAFE),
        ):
            with pytest.raises(NoAuthError):
                call(path)
    for client in (anonymous, user):
        client.stop()
        client.close()


@pytest.mark.parametrize("credentials", [None, ("steward", "wrong-horse"), ("guest", "correct-horse")])
def test_other_credentials_do_not_suffice(guarded, credentials):
    server, store = guarded

    with ZooKeeperStore(server.hosts, root(store).rpartition("/")[2], credentials=credentials) as other:
        for call in (other.state, lambda: other.withdraw(1, "p"), lambda: other.load(0)):
            with pytest.raises(SettingError, match="credentials") as caught:
                call()
            assert "horse" not in repr(caught.value)
        assert other.latest() is None

    assert store.state().pending == Pending(1, 0, "p", {})


def test_the_password_is_nowhere_to_be_seen(guarded, caplog):
    _, store = guarded
    digest = store.connection.client.default_acl[0].id.id.partition(":")[2]

    for secret in (CREDENTIALS[1], digest):
        assert secret not in repr(store)
        assert secret not in caplog.text


@pytest.mark.parametrize(
    ("hosts", "stream", "credentials"),
    [
        ("127.0.0.1:port", "s", None),
        ("127.0.0.1:1", "a/b", None),
        ("127.0.0.1:1", "", None),
        ("127.0.0.1:1", "s", ("", "secret")),
        ("127.0.0.1:1", "s", ("a:b", "secret")),
        ("127.0.0.1:1", "s", ("a", "")),
    ],
)
def test_settings_that_cannot_be_used(hosts, stream, credentials):
    before = set(threading.enumerate())

    with pytest.raises(SettingError) as caught:
        ZooKeeperStore(hosts, stream, credentials=credentials)

    assert "secret" not in str(caught.value)
    assert set(threading.enumerate()) <= before


def test_streams_below_a_path(server, raw):
    raw.ensure_path("/tenant")

    with ZooKeeperStore(f"{server.hosts}/tenant", "s") as store:
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.activate(1, 1)
        assert equal(store.load(1), version(1))
        assert eventually(lambda: store.latest() == store.state())

    assert raw.exists("/tenant/spatialstream/s/active")


def test_a_client_is_closed_at_once_while_a_call_waits():
    store = ZooKeeperStore(f"127.0.0.1:{free_port()}", "s", timeout=60.0)
    refused = []

    def call():
        try:
            store.state()
        except Unavailable as error:
            refused.append(str(error))

    waiting = threading.Thread(target=call)
    waiting.start()

    store.close()
    waiting.join(60.0)

    assert refused == ["the connection to ZooKeeper has been closed"]


# ------------------------------------------------------------------------------------------------- what is left behind


def test_nodes_are_small_and_none_is_left_over(connect, raw):
    store = connect()
    store.create(version(0))
    for number in range(1, 5):
        store.publish(version(number), 0, "p", {})
        store.acknowledge(number, "exported", range(SLOTS))
        store.withdraw(number, "p")
        store.save_statistics("J", {"a": np.random.default_rng(number).random(300_000)}, {})
    store.publish(version(5), 0, "p", {})
    store.acknowledge(5, "exported", range(SLOTS))
    store.activate(5, 1)
    store.remove([0])

    nodes = tree(raw, root(store))

    assert max(nodes.values()) <= PIECE
    names = {path.removeprefix(root(store)) for path in nodes}
    pieces = {each for each in names if "." in each}
    assert names - pieces == {
        "",
        "/acks",
        "/active",
        "/epochs",
        "/statistics",
        "/statistics/J",
        "/versions",
        "/versions/5",
        "/versions/5/block",
        "/versions/5/meta",
    }
    folders = [each.rpartition("/")[0] for each in pieces]
    assert {each: folders.count(each) for each in folders} == {
        "/statistics/J": 3,
        "/versions/5/block": 1,
    }


def test_what_a_dead_publisher_has_left_is_not_seen_and_goes(connect, raw):
    store = connect()
    store.create(version(0))
    left = [f"{root(store)}/versions/{number}/block/{dead}.0000" for number in (1, 2, 3) for dead in ("one", "other")]
    for path in left:
        raw.create(path, b"remains", makepath=True)
    assert store.versions() == (0,)

    store.publish(version(2), 0, "p", {})

    assert [path for path in left if raw.exists(path)] == left[4:]  # number 3 may be somebody's who is just at it
    assert not raw.exists(f"{root(store)}/versions/1")
    assert store.versions() == (0, 2)
    assert equal(store.load(2), version(2))
    store.activate(2, 1)
    store.publish(version(3), 2, "q", {})
    assert not any(raw.exists(path) for path in left)
    assert equal(store.load(3), version(3))


def test_a_refused_publisher_leaves_nothing(connect, raw):
    store = connect()
    store.create(version(0))
    store.publish(version(1), 0, "p", {})
    before = tree(raw, root(store))

    with pytest.raises(Conflict):
        store.publish(version(2), 0, "q", {})

    assert tree(raw, root(store)) == before


def test_a_record_that_is_too_large_is_refused(connect, raw):
    store = connect()
    store.create(version(0))
    noise = np.random.default_rng(1).bytes(1_200_000).hex()  # compressed to half

    with pytest.raises(StateError, match="too large"):
        store.publish(version(1), 0, "p", {"noise": noise})

    assert store.versions() == (0,)
    assert not any(path.endswith(".0000") for path in tree(raw, f"{root(store)}/versions/1"))


def test_damage_is_noticed(connect, raw):
    store = connect()
    store.create(version(0))
    store.save_statistics("J", {"a": np.ones(9)}, {})
    (piece,) = raw.get_children(f"{root(store)}/versions/0/block")
    (block,) = raw.get_children(f"{root(store)}/statistics/J")

    raw.set(f"{root(store)}/versions/0/block/{piece}", b"other")
    raw.delete(f"{root(store)}/statistics/J/{block}")

    with pytest.raises(StateError, match="damaged"):
        store.load(0)
    with pytest.raises(StateError, match="damaged"):
        store.load_statistics("J")
    raw.set(f"{root(store)}/versions/0/meta", b"[]")
    raw.set(f"{root(store)}/statistics/J", b"{}")
    with pytest.raises(StateError, match="damaged"):
        store.load(0)
    with pytest.raises(StateError, match="damaged"):
        store.load_statistics("J")
    raw.set(f"{root(store)}/active", b"{}")
    with pytest.raises(StateError, match="damaged"):
        store.state()
    assert eventually(lambda: store.latest() is None)


def test_refusals_survive_pickling():
    for error in (Conflict("refused"), Unavailable("away")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)


def test_an_outage_is_logged_once(lone_server, caplog):
    with ZooKeeperStore(lone_server.hosts, "s") as store, caplog.at_level(logging.INFO):
        store.create(version(0))
        lone_server.kill()
        assert eventually(lambda: store.latest() is None)
        lone_server.start()
        assert eventually(lambda: store.latest() is not None)

    hosts = lone_server.hosts
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"ZooKeeper ({hosts}) cannot be reached", f"ZooKeeper ({hosts}) is back"]

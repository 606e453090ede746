"""The store in memory: the contract, and the ways in which it can be made to fail."""

import pytest

from spatialstream.model.errors import Conflict, Unavailable
from spatialstream.store.memory import Memory, MemoryStore
from spatialstream.store.state import Binding
from tests.unit.store.contract import StoreContract, version


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def connect(self):
        memories = {}
        return lambda stream="": MemoryStore(memories.setdefault(stream, Memory()))


def test_a_client_that_is_cut_off():
    memory = Memory()
    one, other = MemoryStore(memory), MemoryStore(memory)
    one.create(version(0))
    one.reachable = False

    assert one.latest() is None
    for call in (
        one.state,
        one.versions,
        lambda: one.load(0),
        lambda: one.create(version(0)),
        lambda: one.publish(version(1), 0, "p", {}),
        lambda: one.acknowledge(0, "loaded", [0]),
        lambda: one.activate(1, 1),
        lambda: one.withdraw(1, "p"),
        lambda: one.remove([1]),
        lambda: one.save_statistics("J", {}, {}),
        lambda: one.load_statistics("J"),
    ):
        with pytest.raises(Unavailable):
            call()
    other.publish(version(1), 0, "p", {})
    one.reachable = True

    assert one.latest() == other.state()


@pytest.mark.parametrize(("when", "made"), [("before", False), ("after", True)])
def test_a_change_whose_answer_is_lost(when, made):
    store = MemoryStore()
    store.create(version(0))
    store.publish(version(1), 0, "p", {})
    store.fail_next_write(when)

    with pytest.raises(Unavailable):
        store.activate(1, 4)

    assert (store.state().active == Binding(1, 4)) == made
    store.activate(1, 4)
    assert store.state().active == Binding(1, 4)


def test_a_refused_change_changes_nothing_for_others():
    store = MemoryStore()
    store.create(version(0))
    before = store.latest()

    with pytest.raises(Conflict):
        store.activate(1, 4)

    assert store.latest() is before

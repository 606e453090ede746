"""What holds for every store of routing versions; a module of tests gives the class its ``connect``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spatialstream.index.qt.tree import QTTree
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import Conflict, StateError
from spatialstream.model.hashing import make_table
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.store.base import RoutingStore
from spatialstream.store.state import STAGES, Binding, Pending
from tests.unit.index.samples import PLANE, obj, query

SLOTS = 4
PATIENCE = 120.0

Connect = Callable[..., RoutingStore]
"""Makes a client of the stream of that name; without a name, of the same one throughout a test."""


def version(number: int, leaves: int = 7, slots: int = SLOTS) -> RoutingVersion:
    """A small version; those with equal arguments are equal."""
    sample = ObjectBatch.of([obj(f"o{i}", i % 5 * 0.7, i % 3 * 1.1, "abcd"[i % 4 :]) for i in range(40)])
    asked = QueryBatch.of([query("SRQ", None, "ab"), query("CRQ", None, "cd"), query("STQ")])
    return build(PLANE, sample, asked, leaves, slots, number=number)


def large_version(number: int) -> RoutingVersion:
    """4,000 leaves, and a dictionary of 6 MB that nothing compresses."""
    small = build(PLANE, ObjectBatch.of([]), QueryBatch.of([]), 4000, SLOTS, number=number)
    tree = small.index
    assert isinstance(tree, QTTree)
    assert len(tree.leaves) == 4000
    terms = np.unique(np.random.default_rng(1).integers(1, 2**63, 750_000, dtype=np.uint64))
    texts = tree.texts._replace(
        mask=np.zeros((0, len(terms)), np.uint8), chance=np.zeros((0, len(terms), 2), np.uint32)
    )
    return replace(small, index=QTTree(PLANE, tree.nodes, texts, make_table(terms), tree.leaves))


def equal(one: RoutingVersion, other: RoutingVersion) -> bool:
    """Whether two versions say the same."""
    (arrays, meta), (others, other_meta) = one.index.to_arrays(), other.index.to_arrays()
    return (
        (one.number, one.slots, meta) == (other.number, other.slots, other_meta)
        and np.array_equal(one.mapping, other.mapping)
        and arrays.keys() == others.keys()
        and all(
            array.dtype == others[name].dtype and np.array_equal(array, others[name]) for name, array in arrays.items()
        )
    )


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes to hold within PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def outcomes(*calls: Callable[[], None]) -> list[bool]:
    """Make calls at the same moment; for each, whether it was accepted (False: Conflict)."""
    result: list[bool | BaseException] = [False] * len(calls)
    barrier = threading.Barrier(len(calls))

    def run(i: int) -> None:
        barrier.wait()
        try:
            calls[i]()
        except Conflict:
            return
        except BaseException as error:  # noqa: BLE001 (raised again by the caller's thread)
            result[i] = error
        else:
            result[i] = True

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failures = [each for each in result if isinstance(each, BaseException)]
    if failures:
        raise failures[0]
    return [each is True for each in result]


class StoreContract:
    """The suite."""

    @pytest.fixture
    def connect(self) -> Connect:
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------- creation

    def test_a_stream_that_does_not_exist_has_no_versions(self, connect):
        store = connect()

        assert store.versions() == ()
        assert store.latest() is None
        for call in (
            store.state,
            lambda: store.load(0),
            lambda: store.publish(version(1), 0, "p", {}),
            lambda: store.acknowledge(1, "loaded", [0]),
            lambda: store.activate(1, 1),
            lambda: store.withdraw(1, "p"),
            lambda: store.remove([1]),
        ):
            with pytest.raises(StateError, match=r"there is no|not in the store"):
                call()

    def test_the_first_version_is_active_from_epoch_0(self, connect):
        store = connect()

        store.create(version(3))

        state = store.state()
        assert state.active == Binding(3, 0)
        assert state.pending is None
        assert state.bindings == (Binding(3, 0),)
        assert (state.last, state.slots) == (3, SLOTS)
        assert store.versions() == (3,)
        assert equal(store.load(3), version(3))
        assert eventually(lambda: store.latest() == state)

    def test_to_create_a_stream_again_does_nothing(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.activate(1, 5)
        store.remove([0])

        connect().create(version(0))

        assert store.state().active == Binding(1, 5)
        assert store.versions() == (1,)

    def test_a_stream_is_not_created_anew_with_another_version(self, connect):
        store = connect()
        store.create(version(0))

        for other in (version(0, leaves=10), version(1)):
            with pytest.raises(Conflict, match="another routing version"):
                connect().create(other)

        assert store.versions() == (0,)
        assert equal(store.load(0), version(0))

    def test_a_life_is_kept_through_all_changes(self, connect):
        store = connect()
        store.create(version(0), "one")
        store.create(version(0), "one")
        for other in ("", "other"):
            with pytest.raises(Conflict, match="with the incarnation one"):
                connect().create(version(0), other)

        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "exported", range(SLOTS))
        store.activate(1, 5)

        assert connect().state().incarnation == "one"
        store.erase()
        store.create(version(0, leaves=10), "other")
        assert store.state().incarnation == "other"

    def test_streams_do_not_know_each_other(self, connect):
        one, other = connect("one"), connect("other")
        one.create(version(0))

        other.create(version(0, leaves=10))
        other.publish(version(1), 0, "p", {})

        assert one.state().pending is None
        assert one.versions() == (0,)
        assert equal(one.load(0), version(0))

    # ------------------------------------------------------------------------------------------------------ publishing

    def test_a_published_version_is_pending_with_its_record(self, connect):
        store = connect()
        store.create(version(0))
        record = {"strategy": "FM", "moves": [[1, 2, 3], [4, 5, 6]], "imbalance": 6.5, "Bezirk": "Österreich"}

        store.publish(version(1), 0, "proposal", record)

        state = connect().state()
        assert state.pending == Pending(1, 0, "proposal", record)
        assert state.active == Binding(0, 0)
        assert (state.exported, state.loaded, state.last) == (frozenset(), frozenset(), 1)
        assert store.versions() == (0, 1)
        assert equal(connect().load(1), version(1))

    def test_to_publish_again_does_nothing(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "exported", [2])
        before = store.state()

        connect().publish(version(1), 0, "p", {})

        assert store.state() == before
        assert equal(store.load(1), version(1))

    def test_to_publish_again_what_has_become_active_does_nothing(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.activate(1, 6)
        before = store.state()
        assert before.adopted == "p"

        store.publish(version(1), 0, "p", {})

        assert store.state() == before
        assert equal(store.load(1), version(1))

    def test_the_last_version_whose_tree_was_built_anew_is_kept(self, connect):
        store = connect()
        store.create(version(0))
        seen = [store.state().rebuilt]
        for number, strategy in enumerate(["FG", "rebuild", "PM", "rebuild"], 1):
            store.publish(version(number), number - 1, "p", {"strategy": strategy})
            seen.append(connect().state().rebuilt)
            store.activate(number, number)
            seen.append(connect().state().rebuilt)
        store.publish(version(5), 4, "p", {"strategy": "rebuild"})
        store.withdraw(5, "p")
        store.remove([1, 2, 3])

        assert seen == [None, None, None, None, 2, 2, 2, 2, 4]
        assert connect().state().rebuilt == 4

    def test_only_what_was_computed_from_the_active_version_is_published(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.activate(1, 4)

        with pytest.raises(Conflict, match="computed from version 0"):
            store.publish(version(2), 0, "q", {})

        assert store.state().pending is None
        assert store.versions() == (0, 1)

    def test_one_version_is_pending_at_a_time(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})

        for number, proposal in ((1, "q"), (2, "p"), (2, "q")):
            with pytest.raises(Conflict, match="pending"):
                store.publish(version(number), 0, proposal, {})

        assert store.state().pending == Pending(1, 0, "p", {})
        assert store.versions() == (0, 1)

    def test_numbers_are_not_used_again(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(5), 0, "p", {})
        store.withdraw(5, "p")

        for number in (0, 4, 5):
            with pytest.raises(Conflict, match="used before"):
                store.publish(version(number), 0, "q", {})
        store.publish(version(6), 0, "q", {})

        assert store.versions() == (0, 6)

    def test_the_number_of_slots_is_fixed(self, connect):
        store = connect()
        store.create(version(0))

        with pytest.raises(StateError, match="slots"):
            store.publish(version(1, slots=SLOTS + 1), 0, "p", {})

        assert store.versions() == (0,)

    def test_a_version_of_megabytes(self, connect):
        store = connect()
        store.create(version(0))
        large = large_version(1)
        record = {"moves": [[leaf, leaf % 4, (leaf + 1) % 4] for leaf in range(4000)]}

        store.publish(large, 0, "p", record)

        assert equal(connect().load(1), large)
        assert connect().state().pending == Pending(1, 0, "p", record)
        store.withdraw(1, "p")
        assert store.versions() == (0,)

    # -------------------------------------------------------------------------------------------------- confirmations

    def test_slots_confirm_stage_by_stage(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})

        store.acknowledge(1, "exported", [0, 2])
        store.acknowledge(1, "exported", [2, 3])
        store.acknowledge(1, "loaded", range(SLOTS))
        store.acknowledge(1, "loaded", [])

        state = connect().state()
        assert (state.exported, state.loaded) == (frozenset({0, 2, 3}), frozenset(range(SLOTS)))
        assert (state.confirmed("exported"), state.confirmed("loaded")) == (False, True)

    def test_confirmations_of_what_is_not_pending_are_ignored(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "exported", [0])
        store.withdraw(1, "p")
        store.publish(version(2), 0, "q", {})

        store.acknowledge(0, "exported", [1])
        store.acknowledge(1, "exported", [1])
        store.acknowledge(3, "exported", [1])

        assert store.state().exported == frozenset()

    @pytest.mark.parametrize(("stage", "slot"), [("exported", SLOTS), ("exported", -1), ("done", 0)])
    def test_confirmations_of_slots_and_stages_that_there_are_not(self, connect, stage, slot):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})

        with pytest.raises(ValueError, match="not a stage and slots"):
            store.acknowledge(1, stage, [slot])

    def test_slots_confirm_at_the_same_time(self, connect):
        connect().create(version(0))
        connect().publish(version(1), 0, "p", {})
        clients = [connect() for _ in range(SLOTS)]

        def confirm(i: int) -> None:
            clients[i].acknowledge(1, "exported", [i])
            clients[i].acknowledge(1, "loaded", [i, (i + 1) % SLOTS])

        assert outcomes(*(lambda i=i: confirm(i) for i in range(SLOTS))) == [True] * SLOTS
        assert clients[0].state().confirmed("exported")
        assert clients[0].state().confirmed("loaded")

    # ------------------------------------------------------------------------------------------ activation, withdrawal

    def test_activation(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "exported", range(SLOTS))

        for _ in range(2):
            store.activate(1, 7)

        state = connect().state()
        assert (state.active, state.pending) == (Binding(1, 7), None)
        assert state.bindings == (Binding(0, 0), Binding(1, 7))
        assert state.exported == frozenset()
        assert [state.at(epoch) for epoch in (0, 6, 7, 100)] == [0, 0, 1, 1]
        assert store.versions() == (0, 1)

    def test_activations_that_are_refused(self, connect):
        store = connect()
        store.create(version(0))
        with pytest.raises(Conflict, match="not pending"):
            store.activate(1, 5)
        store.publish(version(1), 0, "p", {})
        for number, epoch in ((2, 5), (1, 0)):
            with pytest.raises(Conflict):
                store.activate(number, epoch)
        store.activate(1, 5)
        store.publish(version(2), 1, "q", {})

        for number, epoch in ((1, 6), (2, 5), (2, 4)):
            with pytest.raises(Conflict):
                store.activate(number, epoch)

        assert store.state().bindings == (Binding(0, 0), Binding(1, 5))

    def test_withdrawal(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "exported", [1])

        for number, proposal in ((1, "q"), (2, "p")):
            store.withdraw(number, proposal)
            assert store.state().pending == Pending(1, 0, "p", {})
        for _ in range(2):
            store.withdraw(1, "p")

        state = connect().state()
        assert (state.active, state.pending, state.exported) == (Binding(0, 0), None, frozenset())
        assert store.versions() == (0,)
        with pytest.raises(StateError, match="not in the store"):
            store.load(1)

    def test_what_is_active_cannot_be_withdrawn(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.activate(1, 7)

        with pytest.raises(Conflict, match="active"):
            store.withdraw(1, "p")

        assert equal(store.load(1), version(1))

    # --------------------------------------------------------------------------------------------------------- removal

    def test_removal(self, connect):
        store = connect()
        store.create(version(0))
        for number in (1, 2, 3):
            store.publish(version(number), number - 1, "p", {})
            store.activate(number, 10 * number)

        store.remove([1, 77])
        assert store.versions() == (0, 2, 3)
        assert store.state().at(15) == 1
        store.remove([0])
        store.remove([0])

        state = connect().state()
        assert state.bindings == (Binding(2, 20), Binding(3, 30))
        with pytest.raises(StateError, match="removed"):
            state.at(19)
        with pytest.raises(StateError, match="not in the store"):
            store.load(0)
        assert equal(store.load(2), version(2))

    def test_active_and_pending_versions_are_not_removed(self, connect):
        store = connect()
        store.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.activate(1, 3)
        store.publish(version(2), 1, "q", {})

        for number in (1, 2):
            with pytest.raises(Conflict, match="cannot be removed"):
                store.remove([0, number])

        assert store.versions() == (0, 1, 2)

    # ----------------------------------------------------------------------------------------------------- concurrency

    def test_one_of_many_publishers_wins(self, connect):
        connect().create(version(0))
        clients = [connect() for _ in range(4)]
        for base in range(3):
            number = base + 1
            candidates = [version(number, leaves=4 + 3 * i) for i in range(4)]

            won = outcomes(
                *(
                    lambda i=i: clients[i].publish(candidates[i], base, f"p{i}", {"who": i})  # noqa: B023 (joined here)
                    for i in range(4)
                )
            )

            assert won.count(True) == 1
            winner = won.index(True)
            assert clients[0].state().pending == Pending(number, base, f"p{winner}", {"who": winner})
            assert equal(clients[0].load(number), candidates[winner])
            clients[0].activate(number, number)

    def test_either_activation_or_withdrawal_wins(self, connect):
        one, other = connect(), connect()
        one.create(version(0))
        for number in range(1, 9):
            base = one.state().active.number
            one.publish(version(number), base, "p", {})

            activated, _ = outcomes(
                lambda number=number: one.activate(number, number),
                lambda number=number: other.withdraw(number, "p"),
            )

            state = one.state()
            assert state.pending is None
            assert state.active.number == (number if activated else base)
            assert (number in one.versions()) == activated
            assert other.state() == state

    # ------------------------------------------------------------------------------------------------------- following

    def test_clients_hear_of_changes(self, connect):
        one, other = connect(), connect()
        changes = [
            lambda: one.create(version(0)),
            lambda: one.publish(version(1), 0, "p", {"a": 1}),
            lambda: one.acknowledge(1, "exported", [0, 1]),
            lambda: one.acknowledge(1, "exported", [2, 3]),
            lambda: one.acknowledge(1, "loaded", range(SLOTS)),
            lambda: one.activate(1, 8),
            lambda: one.remove([0]),
            lambda: one.publish(version(2), 1, "q", {}),
            lambda: one.withdraw(2, "q"),
        ]

        for change in changes:
            change()
            state = one.state()
            assert eventually(lambda state=state: other.latest() == state)

        assert other.latest() is other.latest()

    # ------------------------------------------------------------------------------------------------------ statistics

    def test_an_erased_stream_is_as_if_it_had_never_been(self, connect):
        store, other = connect(), connect("other")
        store.create(version(0))
        other.create(version(0))
        store.publish(version(1), 0, "p", {})
        store.acknowledge(1, "exported", [0, 2])
        store.save_statistics("load", {"x": np.arange(3)}, {})
        store.erase()
        store.erase()
        assert store.versions() == ()
        assert store.load_statistics("load") is None
        with pytest.raises(StateError):
            store.state()
        assert other.state().active == Binding(0, 0)
        store.create(version(0, leaves=10))
        assert store.state().active == Binding(0, 0)
        assert equal(store.load(0), version(0, leaves=10))

    def test_statistics_are_kept_and_replaced(self, connect):
        store = connect()
        assert store.load_statistics("J") is None
        arrays = {
            "a": np.arange(5, dtype=np.int32),
            "b.c": np.zeros((2, 0, 3)),
            "d": np.array([[True, False]]),
            "e": np.array(2.5),
        }

        store.save_statistics("J", arrays, {"span": 3.5, "terms": ["ä"]})
        store.save_statistics("slot-loads", {}, {})

        found, meta = connect().load_statistics("J")
        assert meta == {"span": 3.5, "terms": ["ä"]}
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
            assert np.array_equal(found[name], array)
        assert store.load_statistics("slot-loads") == ({}, {})
        store.save_statistics("J", {"z": np.ones(2)}, {})
        found, meta = connect().load_statistics("J")
        assert (list(found), meta) == (["z"], {})

    def test_statistics_of_megabytes_are_whole_whoever_writes(self, connect):
        clients = [connect() for _ in range(3)]
        blocks = [np.random.default_rng(seed).random(300_000) for seed in range(2)]

        def write(i: int) -> None:
            for _ in range(4):
                clients[i].save_statistics("J", {"block": blocks[i]}, {"who": i})

        def read() -> None:
            for _ in range(12):
                arrays, meta = clients[2].load_statistics("J")
                assert np.array_equal(arrays["block"], blocks[meta["who"]])

        write(0)
        assert outcomes(lambda: write(0), lambda: write(1), read) == [True] * 3
        read()

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä"])
    def test_names_of_statistics_that_cannot_stand_in_a_path(self, connect, name):
        store = connect()

        with pytest.raises(ValueError, match="a name may have"):
            store.save_statistics(name, {}, {})
        with pytest.raises(ValueError, match="a name may have"):
            store.load_statistics(name)

    # ------------------------------------------------------------------------------------------------------- histories

    def test_random_histories_of_two_clients(self, connect):
        streams = iter(range(10**6))

        @settings(max_examples=30)
        @given(st.lists(st.tuples(st.integers(0, 1), steps), min_size=8, max_size=16))
        def check(history):
            name = f"history-{next(streams)}"
            clients, oracle = [connect(name), connect(name)], Oracle()
            clients[0].create(version(0))
            for client, rough in history:
                step = oracle.resolved(rough)
                assert accepted(clients[client], step) == oracle.accepts(step), step
                state = clients[1 - client].state()
                pending = state.pending and (state.pending.number, state.pending.proposal)
                assert (state.active.number, pending) == (oracle.active, oracle.pending)
                assert {each.epoch: each.number for each in state.bindings} == oracle.bindings
                assert (state.exported, state.loaded) == (oracle.acks["exported"], oracle.acks["loaded"])
                assert set(clients[client].versions()) == oracle.versions
            for each in clients:
                each.close()

        check()


# --------------------------------------------------------------------------------------------------------------- oracle

numbers = st.sampled_from(["next", "next", "pending", "pending", "active", "oldest", 1, 2])
"""Numbers of versions, some of them in words: so that most steps are accepted."""
steps = st.one_of(
    st.tuples(st.just("publish"), numbers, st.sampled_from(["active", "active", 0, 1]), st.sampled_from("pq")),
    st.tuples(st.just("acknowledge"), numbers, st.sampled_from(STAGES), st.integers(0, SLOTS - 1)),
    st.tuples(st.just("activate"), numbers, st.integers(1, 3)),
    st.tuples(st.just("withdraw"), numbers, st.sampled_from("pq")),
    st.tuples(st.just("remove"), numbers),
)


def accepted(store: RoutingStore, step: tuple) -> bool:
    """Whether a store takes a step."""
    name, number, *rest = step
    try:
        if name == "publish":
            store.publish(replace(SMALL, number=number), rest[0], rest[1], {})
        elif name == "acknowledge":
            store.acknowledge(number, rest[0], [rest[1]])
        elif name == "remove":
            store.remove([number])
        else:
            getattr(store, name)(number, *rest)
    except Conflict:
        return False
    return True


@dataclass
class Oracle:
    """The rules once more, on plain dictionaries."""

    active: int = 0
    pending: tuple[int, str] | None = None
    base: int = -1
    used: set[int] = field(default_factory=lambda: {0})
    versions: set[int] = field(default_factory=lambda: {0})
    adopted: str = ""
    bindings: dict[int, int] = field(default_factory=lambda: {0: 0})
    acks: dict[str, set[int]] = field(default_factory=lambda: {stage: set() for stage in STAGES})

    def resolved(self, step: tuple) -> tuple:
        """A step with numbers in place of words, and an epoch in place of a difference to the newest one."""
        words = {
            "next": max(self.used) + 1,
            "pending": -1 if self.pending is None else self.pending[0],
            "active": self.active,
            "oldest": min(self.versions),
        }
        name, *rest = (words.get(each, each) for each in step)
        return (name, rest[0], max(self.bindings) + rest[1] - 1) if name == "activate" else (name, *rest)

    def accepts(self, step: tuple) -> bool:
        name, *rest = step
        return getattr(self, name)(*rest)

    def settle(self) -> None:
        self.pending = None
        self.acks = {stage: set() for stage in STAGES}

    def publish(self, number: int, base: int, proposal: str) -> bool:
        if self.pending == (number, proposal) and base == self.base:
            return True
        if (number, proposal) == (self.active, self.adopted):
            return True
        if base != self.active or self.pending is not None or number <= max(self.used):
            return False
        self.pending, self.base = (number, proposal), base
        self.used.add(number)
        self.versions.add(number)
        return True

    def acknowledge(self, number: int, stage: str, slot: int) -> bool:
        if self.pending is not None and self.pending[0] == number:
            self.acks[stage].add(slot)
        return True

    def activate(self, number: int, epoch: int) -> bool:
        if self.bindings.get(epoch) == number:
            return True
        if self.pending is None or self.pending[0] != number or epoch <= max(self.bindings):
            return False
        self.active, self.adopted = number, self.pending[1]
        self.bindings[epoch] = number
        self.settle()
        return True

    def withdraw(self, number: int, proposal: str) -> bool:
        if number in self.bindings.values():
            return False
        if self.pending == (number, proposal):
            self.versions.discard(number)
            self.settle()
        return True

    def remove(self, number: int) -> bool:
        if number == self.active or (self.pending is not None and self.pending[0] == number):
            return False
        self.versions.discard(number)
        while self.bindings[min(self.bindings)] not in self.versions:
            del self.bindings[min(self.bindings)]
        return True


SMALL = version(0)

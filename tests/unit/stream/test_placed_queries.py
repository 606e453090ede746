"""A stream in which each CKQ is on one slot (``--nearest dkm``): every row is the oracle's, while versions change,
queries end, words are cleaned, and processes die.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spatialstream.balance.settings import DKM, EVERYWHERE, SETTLE
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.index.version import RoutingVersion
from spatialstream.model.errors import StateError
from spatialstream.model.kinds import QueryType
from spatialstream.model.queries import Cancellation, Lifetime, Nearest, Predicate, Query, QueryBatch
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import SUBSCRIPTIONS
from spatialstream.stages import work
from spatialstream.stages.copies import Delivery
from spatialstream.stages.settling import RADII
from spatialstream.stages.turns import PREPARE
from spatialstream.stages.versions import load_version
from spatialstream.stages.words import WORDS, WordFilter
from spatialstream.stages.work import SlotIndexes, slot_state
from spatialstream.store.memory import MemoryStore
from spatialstream.stream import router as deciding_epochs
from spatialstream.stream import worker as deciding_rounds
from spatialstream.stream.bootstrap import FirstIndex, ensure_first_version
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, Stream, random_stream
from tests.unit.stream.test_stream import differences, in_order

SLOTS = 8


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots write words every few rounds, and the router looks for them with each epoch."""
    monkeypatch.setattr(deciding_rounds, "CENSUS", 3)
    monkeypatch.setattr(deciding_epochs, "LOOK_FOR_WORDS", 1)


CONTINUOUS = [QueryType.CKQ, QueryType.CRQ, QueryType.CTQ]


def stream_of(seed: int, space: Space, types: Sequence[str], objects: int = 400) -> Stream:
    return in_order(random_stream(seed, objects, 40, space, types=types, vocabulary=30, where=0.2))


def settings_of(stream: Stream, seed: int, **more: Any) -> StreamSettings:
    sizes: dict[str, Any] = {"partitions": 2, "mergers": 1 + seed % 2, "epoch_records": [5, 40][seed % 2]}
    given_: dict[str, Any] = {"slots": SLOTS, "idle": IDLE, "rule": stream.rule, "nearest": DKM} | sizes | more
    return StreamSettings("s", space=stream.space, **given_)


def simulated(stream: Stream, setup: StreamSettings, seed: int, folder: str, **more: Any) -> Simulation:
    given_ = stream.space, stream.objects, stream.queries, setup, seed
    return Simulation(Path(folder), *given_, **more)


@settings(max_examples=examples(6, 60), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from([WGS84, PLANE]), st.sampled_from(["qt-tree", "kd-t", "auto"]))
@example(633525, PLANE, "auto")  # the last round aborts a version
def test_while_versions_change_rows_are_the_oracles_and_each_is_on_its_slot(
    seed: int, space: Space, index: str
) -> None:
    types = [*CONTINUOUS, QueryType.SKQ, QueryType.SRQ] if seed % 3 else [QueryType.CKQ, QueryType.CRQ]
    stream = stream_of(seed, space, types)
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulated(stream, settings_of(stream, seed), seed, folder, chaos=0.004 * (seed % 3), index=index)
        simulation.run(0.5)
        assert differences(stream, simulation) == []
        assert simulation.storage.list(RADII) == []
        alone(simulation)


def alone(simulation: Simulation) -> None:
    """Each CKQ is on the slot that the active version says, or one that a version says that was prepared since.

    What was registered for a version that is aborted stays until the next change of version, and no longer.
    """
    record = simulation.rounds[-1][0].round
    for slot, queries in continuous_at_end(simulation):
        placed = [version.nearest for version in active_and_prepared_since(simulation, record.version)]
        own = [nearest.slots_of(queries) == slot for nearest in placed if nearest is not None]
        assert len(own) == len(placed)
        assert np.any(own, axis=0).all()


def continuous_at_end(simulation: Simulation) -> Iterator[tuple[int, QueryBatch]]:
    """Slots whose state is in memory, with their CKQs after the last round."""
    record = simulation.rounds[-1][0].round
    for slot in range(SLOTS):
        indexes: SlotIndexes | None = slot_state(slot, record, simulation.storage).ended()
        if indexes is not None:
            (index,) = indexes.settling()
            yield slot, index.continuous(record.watermark)[1]


def active_and_prepared_since(simulation: Simulation, active: int) -> list[RoutingVersion]:
    controls = [each for turn, _ in simulation.rounds for each in turn.round.controls]
    since = {number for control, number in controls if control == PREPARE and number > active}
    return [load_version(simulation.storage, number) for number in sorted({active, *since})]


def test_queries_that_a_slot_keeps_after_a_change_of_version_would_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(3, PLANE, CONTINUOUS)
    simulation = simulated(stream, settings_of(stream, 3), 3, str(tmp_path))
    monkeypatch.setattr(work, "release_queries", lambda *_: None)
    simulation.run(0.5)
    assert simulation.rounds[-1][0].round.version
    with pytest.raises(AssertionError):
        alone(simulation)


@settings(max_examples=examples(2, 30), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.sampled_from(["qt-tree", "kd-t"]))
def test_beside_dropped_objects_rows_are_the_oracles(seed: int, index: str) -> None:
    stream = stream_of(seed, PLANE, CONTINUOUS)
    rule = replace(stream.rule, serves=SUBSCRIPTIONS)
    with tempfile.TemporaryDirectory() as folder:
        setup = settings_of(stream, seed, rule=rule)
        simulation = simulated(stream, setup, seed, folder, chaos=0.004 * (seed % 3), index=index)
        simulation.run(0.5)
        assert differences(stream, simulation) == []


def rare_words() -> tuple[Stream, StreamSettings]:
    """CKQs, each with a word that one object in twenty has or fewer."""
    drawn = random_stream(3, 1_500, 40, PLANE, types=[QueryType.CKQ], cancelled=0.4, vocabulary=400)
    stream = in_order(drawn)
    rare = [each for each in stream.queries if isinstance(each, Cancellation) or all(each.predicate.expression.groups)]
    stream = replace(stream, queries=rare)
    return stream, settings_of(stream, 3)


def copies_of(simulation: Simulation) -> int:
    return sum(
        load["copies"] for _, summary in simulation.rounds for load in summary.loads.values() if "copies" in load
    )


def test_a_slot_gets_copies_of_objects_with_words_of_its_queries_alone(tmp_path: Path) -> None:
    stream, setup = rare_words()
    simulation = simulated(stream, setup, 3, str(tmp_path))
    simulation.run(0.0)
    assert differences(stream, simulation) == []
    assert 100 < copies_of(simulation) < 0.3 * (SLOTS - 1) * len(stream.objects)
    assert simulation.storage.list(WORDS)


def test_a_filter_that_is_an_epoch_late_loses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with the oracle would tell."""
    advance, late = WordFilter.advance, dict[int, Any]()

    def behind(self: WordFilter, epoch: Any, routing: Any, objects: Any, queries: Any, storage: Any) -> None:
        advance(self, epoch, routing, objects, late.get(id(self)), storage)
        late[id(self)] = queries

    monkeypatch.setattr(WordFilter, "advance", behind)
    stream, setup = rare_words()
    simulation = simulated(stream, setup, 3, str(tmp_path))
    simulation.run(0.0)
    assert differences(stream, simulation)


def test_without_copies_rows_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Delivery, "for_nearest", property(lambda self: False))
    stream, setup = rare_words()
    simulation = simulated(stream, setup, 3, str(tmp_path))
    simulation.run(0.0)
    assert differences(stream, simulation)


def test_it_is_for_life() -> None:
    for own, others in ((DKM, (SETTLE, EVERYWHERE)), (SETTLE, (DKM,)), (EVERYWHERE, (DKM,))):
        storage = MemoryStorage()
        StreamSettings("s", nearest=own).claim(storage)
        for other in others:
            with pytest.raises(StateError, match="belongs to a stream with nearest '") as caught:
                StreamSettings("s", nearest=other).claim(storage)
            assert "'dkm'" in str(caught.value)
            assert "'settle or everywhere'" in str(caught.value)
    storage = MemoryStorage()
    assert StreamSettings("s", nearest=SETTLE).claim(storage) == StreamSettings("s", nearest=EVERYWHERE).claim(storage)


def first_version(folder: Path, setup: StreamSettings, first: FirstIndex) -> RoutingVersion:
    store, storage = MemoryStore(), Folder(folder)
    ensure_first_version(store, storage, setup, first, 0.0, "one")
    known, copied = store.load(0), load_version(storage, 0)
    if known.nearest is not None:
        assert copied.nearest is not None
        assert known.nearest.slot.tolist() == copied.nearest.slot.tolist()
    return known


def asked(at: list[tuple[float, float]]) -> QueryBatch:
    forever = Lifetime(10**9, True)
    return QueryBatch.of(
        [Query(f"q{i}", i, Predicate(None, ("a",)), Nearest(*each, 2), forever) for i, each in enumerate(at)]
    )


def test_a_stream_begins_with_queries_dealt_evenly_or_cut_by_its_history(tmp_path: Path) -> None:
    chance = random.Random(1)
    places = [(chance.gauss(0.0, 0.3), chance.gauss(4.0, 0.3)) for _ in range(300)]
    objects, queries = tmp_path / "objects.jsonl", tmp_path / "queries.jsonl"
    lines = [{"id": f"o{i}", "t": i, "x": x, "y": y, "terms": ["a"]} for i, (x, y) in enumerate(places)]
    objects.write_text("\n".join(map(json.dumps, lines)))
    queries.write_text("\n".join(json.dumps(asked(places)[i].to_record()) for i in range(300)))
    setup = StreamSettings("s", slots=4, space=PLANE, nearest=DKM)

    plain = first_version(tmp_path / "a", replace(setup, nearest=SETTLE), FirstIndex(leaves=4))
    even = first_version(tmp_path / "b", setup, FirstIndex(leaves=4))
    cut = first_version(tmp_path / "c", setup, FirstIndex(None, 4, objects, queries))

    assert plain.nearest is None
    for version in (even, cut):
        assert version.nearest is not None
        counts = np.bincount(version.nearest.slots_of(asked(places)), minlength=4)
        assert counts.max() < 2 * counts.min()
    assert even.nearest is not None
    assert even.nearest.dealt.sum() == np.count_nonzero(even.nearest.child >= 0)
    assert cut.nearest is not None
    assert cut.nearest.dealt.sum() < np.count_nonzero(cut.nearest.child >= 0), "it is cut by space too"

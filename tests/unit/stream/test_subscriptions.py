"""A stream that serves subscriptions only: every row is the oracle's although most objects are dropped, while versions
change, queries end, words are cleaned, and processes die.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spatialstream.index.kinds import AUTO
from spatialstream.model.errors import SettingError, StateError
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import WGS84, Space
from spatialstream.model.terms import SUBSCRIPTIONS, TermRule
from spatialstream.oracle import answers, check
from spatialstream.stages.route import registry_state
from spatialstream.stages.words import WORDS, WordFilter
from spatialstream.stages.work import slot_objects
from spatialstream.stream import router as deciding_epochs
from spatialstream.stream import worker as deciding_rounds
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE, Simulation
from tests.streams import PLANE, Stream, random_stream
from tests.unit.stream.test_stream import by_query, in_order

CONTINUOUS = ("CRQ", "CKQ", "CTQ", "CBQ")
RULE = TermRule(ranking=True, serves=SUBSCRIPTIONS)


class Filtering(Simulation):
    """A simulation that counts the objects which its router has dropped, and the censuses that it has taken over."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.dropped: dict[int, int] = {}
        self.censuses: set[int] = set()

    def run_router(self) -> None:
        super().run_router()
        if self.router is not None and self.router.last is not None and not self.router.unfinished:
            epoch = self.router.last.epoch
            self.dropped[epoch.number] = max(self.dropped.get(epoch.number, 0), self._epochs.dropped)
            if epoch.census is not None:
                self.censuses.add(epoch.number)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots write words every few rounds, and the router looks for them with each epoch."""
    monkeypatch.setattr(deciding_rounds, "CENSUS", 3)
    monkeypatch.setattr(deciding_epochs, "LOOK_FOR_WORDS", 1)


def subscriptions(drawn: Stream, seed: int, open_: float = 0.02) -> Iterator[Query | Cancellation]:
    """The queries with words; of a share of the others those that keep the objects of their region only."""
    chance = random.Random(seed)
    for query in in_order(drawn).queries:
        if isinstance(query, Cancellation) or query.kind.is_ranked or not query.lifetime.continuous:
            yield query
            continue
        has_region = query.predicate.region is not None
        if all(query.predicate.expression.groups) or (has_region and chance.random() < open_):
            yield query


def stream_of(seed: int, space: Space, types: Iterable[str] = CONTINUOUS, objects: int = 500, each: int = 12) -> Stream:
    drawn = random_stream(seed, objects, each, space, types=[*types], cancelled=0.4, vocabulary=400)
    return replace(in_order(drawn), queries=[*subscriptions(drawn, seed)])


def settings_of(seed: int, space: Space, **more: Any) -> StreamSettings:
    sizes: dict[str, Any] = {"slots": 1 + seed % 5, "partitions": 1 + seed % 3, "mergers": 1 + seed % 2} | more
    return StreamSettings(
        "s", **sizes, space=space, idle=IDLE, interval=60_000, rule=RULE, epoch_records=[5, 40, 200][seed % 3]
    )


def simulated(folder: Path, stream: Stream, seed: int, rebalances: float = 0.4, **more: Any) -> Filtering:
    setup = settings_of(seed, stream.space)
    simulation = Filtering(folder, stream.space, stream.objects, stream.queries, setup, seed, **more)
    simulation.run(rebalances, 0.03)
    return simulation


def differences(stream: Stream, simulation: Simulation) -> list[str]:
    places = [i for i, query in enumerate(stream.queries) if not isinstance(query, Query) or query.lifetime.continuous]
    taken = [stream.queries[i] for i in places]
    expected, refused = answers(stream.objects, taken, stream.space, None, 60_000)
    found = [str(each) for each in check(simulation.rows(), expected, 5)]
    wrong = sorted({*range(len(stream.queries))} - {*places} | {places[i] for i, _ in refused})
    if simulation.refused() != wrong:
        found.append(f"rejected {simulation.refused()}, expected {wrong}")
    return found


@pytest.mark.parametrize("seed", range(examples(8, 120)))
def test_rows_are_the_oracles_while_everything_fails(tmp_path: Path, seed: int) -> None:
    stream = stream_of(seed, (WGS84, PLANE)[seed % 2])
    index = ("qt-tree", AUTO, "a-grid", "kd-t")[seed // 2 % 4]
    simulation = simulated(tmp_path, stream, seed, chaos=0.02, checkpoints=0.4, index=index)
    assert differences(stream, simulation) == []
    assert sum(simulation.dropped.values()) > 50
    assert simulation.crashes > 5


@pytest.mark.parametrize("kind", CONTINUOUS)
@pytest.mark.parametrize("seed", range(examples(2, 40)))
def test_each_type_alone_has_the_objects_that_it_needs(tmp_path: Path, seed: int, kind: str) -> None:
    stream = stream_of(seed, (WGS84, PLANE)[seed % 2], [kind], each=8)
    simulation = simulated(tmp_path, stream, seed + 1, 0.3, chaos=0.004)
    assert differences(stream, simulation) == []
    assert sum(simulation.dropped.values()) > 50


@pytest.mark.parametrize("seed", range(examples(2, 30)))
def test_queries_without_words_keep_the_objects_of_their_leaves(tmp_path: Path, seed: int) -> None:
    drawn = in_order(random_stream(seed, 400, 12, PLANE, types=["CRQ", "CTQ"], cancelled=0.4))
    bare = [
        replace(query, predicate=replace(query.predicate, keywords=(), any=())) if isinstance(query, Query) else query
        for query in drawn.queries
    ]
    stream = replace(drawn, queries=bare)
    simulation = simulated(tmp_path, stream, seed, chaos=0.004)
    assert differences(stream, simulation) == []


def test_a_filter_that_is_an_epoch_late_loses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with the oracle would tell."""
    advance = WordFilter.advance
    late: dict[int, Any] = {}

    def behind(self: WordFilter, epoch: Any, routing: Any, objects: Any, queries: Any, storage: Any) -> None:
        advance(self, epoch, routing, objects, late.get(id(self)), storage)
        late[id(self)] = queries

    monkeypatch.setattr(WordFilter, "advance", behind)
    stream = stream_of(2, PLANE)
    setup = settings_of(2, PLANE, partitions=1)
    simulation = Filtering(tmp_path, PLANE, stream.objects, stream.queries, setup, 2)
    simulation.run(0.0, 0.0)
    assert differences(stream, simulation) != []


def test_words_of_queries_that_have_ended_are_cleaned(tmp_path: Path) -> None:
    """At the end nothing is registered, so filters know no word; and files of words do not pile up."""
    drawn = in_order(random_stream(3, 900, 20, PLANE, types=CONTINUOUS[:3], cancelled=0.0, repeated=0.0))
    first, last = drawn.objects[0].t, drawn.objects[-1].t
    middle = first + (last - first) // 2
    lasting = [
        replace(query, t=first, lifetime=replace(query.lifetime, duration=middle - first))
        for query in subscriptions(drawn, 3, 1.0)
        if isinstance(query, Query) and query.lifetime.continuous
    ]
    half = len(lasting) // 2
    ended = [Cancellation(query.id, first + (last - first) // 3) for query in lasting[:half]]
    stream = replace(drawn, queries=[*lasting, *ended])
    setup = StreamSettings(
        "s", slots=3, partitions=2, space=PLANE, idle=IDLE, interval=60_000, rule=RULE, epoch_records=20
    )
    simulation = Filtering(tmp_path, PLANE, stream.objects, stream.queries, setup, 3, chaos=0.002, checkpoints=0.6)
    simulation.run(0.1, 0.0)
    assert differences(stream, simulation) == []
    assert len(simulation.censuses) > 3
    assert len(simulation.storage.list(WORDS)) < 60
    assert simulation.router is not None
    assert simulation.router.last is not None
    epoch = simulation.router.last.epoch
    filters = [registry_state(epoch, each, simulation.storage).ended().words for each in range(2)]
    assert [len(each) for each in filters] == [0, 0]


def test_nothing_is_stored_and_what_is_refused_says_so(tmp_path: Path) -> None:
    stream = stream_of(5, WGS84, [*CONTINUOUS, "SRQ", "SKQ", "STQ", "SBQ"], 200, 6)
    simulation = simulated(tmp_path, stream, 5)
    assert differences(stream, simulation) == []
    letters = [letter for letter in simulation.letters() if "serves subscriptions" in letter["reason"]]
    told = {letter["reason"] for letter in letters}
    same = "is a snapshot query, and the stream stores no objects: it serves subscriptions; register a"
    assert told == {f"type: S{each} {same} C{each}" for each in ("RQ", "KQ", "TQ", "BQ")}
    assert len(letters) == sum(isinstance(q, Query) and not q.lifetime.continuous for q in stream.queries)
    assert simulation.worker is not None
    assert simulation.worker.last is not None
    for slot in range(simulation.settings.slots):
        turn = simulation.worker.last.round
        assert len(slot_objects(slot, turn, simulation.storage, done=turn.checkpoint)) == 0


def test_whichever_way_it_is_cut_a_query_has_the_same_rows(tmp_path: Path) -> None:
    stream = stream_of(7, PLANE)
    found = []
    for seed in (7, 11):
        simulation = simulated(tmp_path / str(seed), stream, seed, chaos=0.004)
        found.append(by_query(simulation.rows()))
    assert found[0] == found[1]


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(
        SettingError,
        match="retention: a stream that serves subscriptions stores no objects; leave it out, or serve everything",
    ):
        StreamSettings("s", retention=600_000, rule=RULE).validate()
    StreamSettings("s", rule=RULE).validate()


def test_what_a_stream_serves_is_for_its_life(tmp_path: Path) -> None:
    from spatialstream.connectors.folder import Folder

    StreamSettings("s").claim(Folder(tmp_path))
    with pytest.raises(StateError, match="belongs to a stream with serves 'everything', not 'subscriptions'"):
        StreamSettings("s", rule=TermRule(serves=SUBSCRIPTIONS)).claim(Folder(tmp_path))

"""Signatures between actors: what is sent, when, and that nothing wrong is ever skipped by what is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from spatialstream.actors.read_point import LocatedReadPoint
from spatialstream.actors.signatures import SignatureCache
from spatialstream.actors.wire import ActorLost
from spatialstream.stages import views
from spatialstream.stages.signatures import SlotPruning
from spatialstream.stages.views import View
from tests.asking import world_of
from tests.unit.actors.test_coordinator import ACTORS, CLOCK, RECORDS, Cluster, request
from tests.unit.client.test_snapshot_client import PLANE, SKQ, SLOTS, SRQ, STQ

RARE: list[dict[str, Any]] = [
    SKQ | {"k": 40, "keywords": ["w3"]},
    SKQ | {"keywords": ["never"]},
    SRQ | {"keywords": ["w1", "never"]},
    STQ | {"any": [["never"], ["w2", "a"]]},
]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    views.forget()
    made = Cluster()
    made.actors.signing = True
    yield made
    views.forget()


def searched(cluster: Cluster) -> int:
    """How often actors have been asked since the last time."""
    cluster.actors.searched, before = [], cluster.actors.searched
    return len(before)


@pytest.mark.parametrize("name", ACTORS.values())
def test_rows_are_the_same_and_others_are_asked_for_signatures_once_a_round(cluster: Cluster, name: str) -> None:
    others = sorted(set(ACTORS.values()) - {name})
    cases: list[Any] = [RECORDS, RARE, RECORDS[::-1]]
    for number in range(3):
        for records in cases:
            assert cluster.ask(records, name) == cluster.right(records)
        assert sorted((at, done) for at, done, _ in cluster.actors.signed) == [(each, (number, 0)) for each in others]
        cluster.actors.signed.clear()
        cluster.round(CLOCK + 1_000 * (number + 1), 100)


def test_nobody_is_asked_for_what_nobody_has(cluster: Cluster) -> None:
    cluster.ask([RARE[0]])
    searched(cluster)
    (row,) = cluster.ask([RARE[1]])
    assert row == cluster.right([RARE[1]])[0]
    assert searched(cluster) == 0
    cluster.actors.away.update("bc")  # nor does it matter that they do not answer
    assert cluster.ask([RARE[1]]) == cluster.right([RARE[1]])
    assert cluster.actors.lost == []


def test_queries_without_words_ask_for_no_signatures(cluster: Cluster) -> None:
    records: list[dict[str, Any]] = [SRQ, SKQ, STQ, SRQ | {"none": ["w1"]}]
    assert cluster.ask(records) == cluster.right(records)
    assert cluster.actors.signed == []


def test_signatures_of_another_round_are_not_used(cluster: Cluster) -> None:
    """A word that comes with a round is found, though all that is known says that nobody has it."""
    asked = SKQ | {"keywords": ["new"], "k": 40}
    assert cluster.ask([asked])[0]["objects"] == []
    cluster.actors.signing = False
    stream, seen = cluster.stream, cluster.stream.seen
    new = [type(each)(f"new-{i}", 1_500, each.x, each.y, ("new",)) for i, each in enumerate(seen[:20])]
    stream.round(2_000, new)
    cluster.keep()
    cluster.newest = stream.newest(1.0)
    (row,) = cluster.ask([asked])
    assert row == cluster.right([asked])[0]
    assert len(row["objects"]) == 20


def cache_of(cluster: Cluster, memory: int = 1 << 20) -> tuple[SignatureCache, list[bytes]]:
    """A cache of an actor without slots, and what others have sent to it; they do not answer if they are away."""
    sent = list[bytes]()

    class Calls:
        def ask(self, address: str, secret: str, body: bytes, seconds: float) -> Any:
            if address in cluster.actors.away:
                raise ActorLost("nobody is there", address)

            def answer() -> Iterator[bytes]:
                for message in cluster.actors.coordinators[address].find(body):
                    sent.append(message)
                    yield message

            return answer()

    def start(do: Callable[[], None]) -> None:
        do()

    world = world_of(PLANE, SLOTS, "nobody")
    return SignatureCache(world, "secret", Calls(), memory, start), sent  # type: ignore[arg-type]


def queries(cluster: Cluster) -> Any:
    return [replace(each.query, t=10_000) for each in request(RARE).asked]


def learnt(cache: SignatureCache, cluster: Cluster) -> Callable[[], SlotPruning]:
    """What is known as of the newest round, after all actors have been asked."""
    made = cache.pruning(known(cluster))
    cache.learn(known(cluster), ACTORS.values())
    return made


def known(cluster: Cluster) -> LocatedReadPoint:
    assert cluster.newest is not None
    return LocatedReadPoint(cluster.newest, ACTORS)


@pytest.mark.parametrize("gone", ["away", "view", "moving"])
def test_of_an_actor_that_does_not_send_them_nothing_is_known(cluster: Cluster, gone: str) -> None:
    if gone == "away":
        cluster.actors.away.add("c")
    elif gone == "view":
        views.forget("c", 2)
    cache, _ = cache_of(cluster)
    assert cluster.newest is not None
    where = {0: "a", 1: "b"} if gone == "moving" else ACTORS
    now = LocatedReadPoint(cluster.newest, where)
    pruning, every, query = cache.pruning(now), [*range(SLOTS)], queries(cluster)[1]
    for _ in range(2):
        cache.learn(now, ACTORS.values())
        assert pruning().may_have(every, query, 0, None) == [2]
    cluster.actors.away.clear()
    cluster.round(2_000, 30)
    assert learnt(cache, cluster)().may_have(every, query, 0, None) == []


def test_what_has_been_sent_is_not_sent_again(cluster: Cluster) -> None:
    cache, sent = cache_of(cluster)
    learnt(cache, cluster)
    assert len(sent) == SLOTS
    assert cache.nbytes > 0
    sent.clear()
    cluster.round(2_000, 30)
    pruning = learnt(cache, cluster)
    listed = [json.loads(message.partition(b"\n")[0])["segments"] for message in sent]
    assert [[size is None for _, _, _, size in some] for some in listed] == [[True, False]] * SLOTS
    assert pruning().may_have([0, 1, 2], queries(cluster)[1], 0, None) == [], "all that was sent is still known"
    sent.clear()
    learnt(cache, cluster)
    assert sent == [], "once a round"


def test_beyond_the_memory_only_times_are_known(cluster: Cluster) -> None:
    cache, sent = cache_of(cluster, 0)
    pruning = learnt(cache, cluster)
    assert len(sent) == SLOTS
    assert cache.nbytes == 0
    query = queries(cluster)[1]
    every = [*range(SLOTS)]
    assert pruning().may_have(every, query, CLOCK - 200, None) == every
    assert pruning().may_have(every, query, CLOCK, None) == [], "they are known to be older"


def test_of_a_round_that_is_not_the_newest_any_more_nothing_is_known(cluster: Cluster) -> None:
    cache, _ = cache_of(cluster)
    before = learnt(cache, cluster)
    query, every = queries(cluster)[1], [*range(SLOTS)]
    assert before().may_have(every, query, 0, None) == []
    cluster.round(2_000, 30)
    now = learnt(cache, cluster)
    assert now().may_have(every, query, 0, None) == []
    assert before().may_have(every, query, 0, None) == every


def test_slots_that_come_here_are_known_from_their_views(cluster: Cluster) -> None:
    cache, _ = cache_of(cluster)
    learnt(cache, cluster)
    cluster.round(2_000, 30)
    assert cluster.stream.turn is not None
    views.keep("nobody", 1, View.of(cluster.stream.stores[1], cluster.stream.turn, None))
    before = cache.nbytes
    pruning = learnt(cache, cluster)
    assert cache.nbytes < before + 10_000
    assert pruning().here == 1
    assert pruning().may_have([0, 1, 2], queries(cluster)[1], 0, None) == []
    views.forget("nobody")

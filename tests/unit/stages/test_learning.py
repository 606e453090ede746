"""What goes into the sample, and how often that goes into the routing store."""

from __future__ import annotations

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch, parse_query
from spatialstream.model.space import WGS84
from spatialstream.stages.learning import SAMPLES, Learner, write_sample
from spatialstream.stages.turns import Epoch
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import read_sample, read_seen

PER_EPOCH = 100


class Stream:
    """Epochs of objects whose ids are long, a second each."""

    def __init__(self) -> None:
        self.storage, self.store, self.now, self.epochs = MemoryStorage(), MemoryStore(), 0.0, 0
        self.learner = Learner(self.storage, self.store, WGS84, clock=lambda: self.now)

    def go_on(self, letters: int = 0) -> None:
        first = self.epochs * PER_EPOCH
        objects = [SpatialObject(f"{i:0{letters}d}", first + i, 0, 0, ()) for i in range(first, first + PER_EPOCH)]
        epoch = Epoch(self.epochs, 1, first, first + PER_EPOCH, 0, None, (), (), ())
        write_sample(self.storage, epoch, 0, ObjectBatch.of(objects), None)
        self.now += 1.0
        self.epochs += 1

    @property
    def kept(self) -> float:
        return read_seen(self.store) / PER_EPOCH


def test_a_small_sample_is_kept_each_time_that_ten_seconds_have_passed() -> None:
    stream = Stream()
    for _ in range(5):
        for _ in range(10):
            stream.go_on()
        assert stream.learner.learn()
        assert stream.kept == stream.epochs
        known = read_sample(stream.store)
        assert known is not None
        assert known.seen == stream.epochs * PER_EPOCH


def test_a_large_sample_is_kept_less_often_and_in_the_end() -> None:
    stream = Stream()
    stream.go_on(1_000)
    assert stream.learner.learn()
    assert stream.kept == 1
    stream.go_on(1_000)
    assert stream.learner.learn()
    assert stream.kept == 1, "100 kB a second ago"
    assert stream.storage.list(SAMPLES) == []
    stream.now += 3_600
    assert not stream.learner.learn(), "nothing new has come"
    assert stream.kept == 2


def test_who_has_registered_a_query_is_not_in_the_sample() -> None:
    asked = {"id": "q", "type": "CRQ", "t": 5, "region": {"box": [0, 0, 1, 1]}, "by": "system:serviceaccount:geo:anna"}
    storage, epoch = MemoryStorage(), Epoch(0, 1, 0, 10, 0, None, (), (), ())
    write_sample(storage, epoch, 0, None, QueryBatch.of([parse_query(asked, WGS84)]))
    (name,) = storage.list(SAMPLES)
    kept = storage.get(name).to_pybytes()
    assert b"anna" not in kept

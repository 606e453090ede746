"""The contract of every source (:class:`spatialstream.connectors.contracts.Source`)."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pyarrow as pa
import pytest

from spatialstream.connectors.contracts import MESSAGE, Source
from spatialstream.connectors.memory import Message
from spatialstream.model.errors import StateError
from tests.contracts.harness import Sources

LARGE = (16 << 20) - 1024
"""Bytes of a value whose message is just below the largest that a topic accepts."""


def some(count: int, first: int = 0) -> list[Message]:
    return [(f"key {i}".encode(), b"value %d " % i * (i % 50)) for i in range(first, first + count)]


def given(source: Source, partition: str, start: int, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    batches = list(source.read(partition, start, end))
    assert all(batch.schema == MESSAGE for batch in batches)
    table = pa.Table.from_batches(batches, MESSAGE)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


class TestSource:
    def test_bounds_of_partitions_that_hold_nothing(self, sources: Sources) -> None:
        assert sources.source.bounds() == dict.fromkeys(["objects/0", "objects/1", "queries/0"], (0, 0))
        for partition in sources.source.bounds():
            assert given(sources.source, partition, 0, 0) == []

    def test_a_range_is_the_messages_between_the_bounds(self, sources: Sources) -> None:
        sources.append("objects/1", some(2345))
        sources.append("queries/0", some(2))
        bounds = sources.source.bounds()
        assert bounds == {"objects/0": (0, 0), "objects/1": (0, 2345), "queries/0": (0, 2)}
        whole = given(sources.source, "objects/1", *bounds["objects/1"])
        assert whole == [(i, *message) for i, message in enumerate(some(2345))]
        assert whole == given(sources.source, "objects/1", *bounds["objects/1"]), "read twice, the same"

    def test_parts_of_a_range_are_the_range(self, sources: Sources) -> None:
        sources.append("objects/0", some(100))
        whole = [(i, *message) for i, message in enumerate(some(100))]
        for cuts in ([0, 1, 2, 3, 50, 50, 99, 100], [0, 37, 100]):
            parts = [given(sources.source, "objects/0", *part) for part in pairwise(cuts)]
            assert [each for part in parts for each in part] == whole
            for part, span in reversed(list(zip(parts, pairwise(cuts), strict=True))):
                assert given(sources.source, "objects/0", *span) == part, "in any order"

    def test_keys_and_values_may_be_missing_or_empty(self, sources: Sources) -> None:
        messages: list[Message] = [(None, b"x"), (b"", b""), (b"gone", None), (None, None), (b"\xff\x00", b"\n\xfe")]
        sources.append("queries/0", messages)
        assert given(sources.source, "queries/0", 0, 5) == [(i, *message) for i, message in enumerate(messages)]

    def test_messages_that_are_gone(self, sources: Sources) -> None:
        sources.append("objects/0", some(10))
        sources.remove("objects/0", 4)
        assert sources.source.bounds()["objects/0"] == (4, 10)
        assert [each[0] for each in given(sources.source, "objects/0", 4, 10)] == [4, 5, 6, 7, 8, 9]
        for start in (0, 3):
            with pytest.raises(StateError):
                given(sources.source, "objects/0", start, 6)
        assert given(sources.source, "objects/0", 2, 2) == [], "nothing is gone of nothing"

    def test_messages_that_never_were(self, sources: Sources) -> None:
        sources.append("objects/0", some(3))
        with pytest.raises(StateError):
            given(sources.source, "objects/0", 2, 5)
        with pytest.raises(StateError):
            given(sources.source, "objects/0", 7, 9)
        assert len(given(sources.source, "objects/0", 2, 3)) == 1, "and it goes on"

    def test_a_range_is_the_same_while_its_partition_grows(self, sources: Sources) -> None:
        sources.append("objects/0", some(50))
        ended = threading.Event()

        def grow() -> None:
            while not ended.is_set():
                sources.append("objects/0", some(20, 50))
                time.sleep(0.005)

        growing = threading.Thread(target=grow)
        growing.start()
        try:
            last = 50
            for _ in range(20):
                assert [each[1:] for each in given(sources.source, "objects/0", 0, 50)] == some(50)
                start, end = sources.source.bounds()["objects/0"]
                assert (start, end >= last) == (0, True), "it only grows"
                assert [each[0] for each in given(sources.source, "objects/0", last, end)] == list(range(last, end))
                last = end
        finally:
            ended.set()
            growing.join()

    def test_the_largest_messages(self, sources: Sources) -> None:
        messages: list[Message] = [(None, bytes([65 + i]) * LARGE) for i in range(3)]
        sources.append("objects/1", messages)
        assert given(sources.source, "objects/1", 0, 3) == [(i, *message) for i, message in enumerate(messages)]

    def test_what_was_taken_back_was_never_said(self, sources: Sources) -> None:
        """A range may hold offsets without a message, also at its end."""
        source, place = sources.source, "objects/0"
        for first in (0, 3):
            sources.append(place, some(3, first))
            sources.append(place, some(2, 100), abort=True)
        start, end = source.bounds()[place]
        whole = given(source, place, start, end)
        assert [each[1:] for each in whole] == some(6)
        offsets = [each[0] for each in whole]
        assert offsets == sorted(set(offsets))
        assert [each for at in range(end) for each in given(source, place, at, at + 1)] == whole, "each by itself"
        sources.append(place, some(1, 6))
        later = source.bounds()[place][1]
        assert [each[1:] for each in given(source, place, end, later)] == some(1, 6)
        assert given(source, place, start, end) == whole

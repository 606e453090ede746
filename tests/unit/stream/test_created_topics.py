"""What a checkpoint says about topics: which are the stream's own, and which it continues from."""

from __future__ import annotations

import pytest

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.model.errors import StateError
from spatialstream.stream.created_topics import read_created_topics, record_topics
from spatialstream.stream.router import EPOCHS

IDS = {"s.objects": "1", "s.blocks": "2"}


def test_a_stream_does_not_continue_from_a_topic_that_was_created_again() -> None:
    storage = MemoryStorage()
    record_topics(storage, "s", "one", set(), dict).check({"s.objects": "0"})
    record_topics(storage, "s", "one", set(), dict).check(IDS)  # it has not begun: any topic will do
    storage.put(f"{EPOCHS}000000000.json", b"{}")
    recorder = record_topics(storage, "s", "one", set(), dict)
    recorder.check(IDS)
    recorder.check({"s.objects": "1"})  # a topic that is missing now is none that was created again
    recorder.add({"s.blocks": "3"})
    with pytest.raises(StateError, match=r"s\.blocks was deleted and created again, so the stream cannot continue: "):
        recorder.check(IDS | {"s.blocks": "3"})
    made = read_created_topics(storage)
    assert made is not None
    assert (made.topics, made.continued) == ({"s.blocks": "3"}, IDS), "it is refused each time"


def test_another_incarnation_continues_from_nothing() -> None:
    storage = MemoryStorage()
    storage.put(f"{EPOCHS}000000000.json", b"{}")
    record_topics(storage, "s", "one", set(), dict).check(IDS)
    record_topics(storage, "s", "two", set(), dict).check({"s.objects": "9"})
    made = read_created_topics(storage)
    assert made is not None
    assert (made.incarnation, made.continued) == ("two", {"s.objects": "9"})

"""Topics of a running stream that are deleted, without a broker."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spatialstream.connectors import kafka_stream
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_stream import TopicWatch
from spatialstream.model.errors import StateError

ALL = {f"s.{kind}" for kind in ("objects", "queries", "results", "rejected", "areas", "blocks", "epochs")}


class Broker:
    """The topics that a broker has."""

    def __init__(self) -> None:
        self.topics = set(ALL)

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(self.topics & set(topics), 1)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(kafka_stream, "offsets", lambda connection: made)
    return made


def seen(watch: TopicWatch, broker: Broker, *absent: str) -> str:
    """What is said when these topics are absent."""
    broker.topics = ALL - {f"s.{kind}" for kind in absent}
    return watch.missing()


def test_a_topic_is_missing_when_it_is_not_found_twice(broker: Broker) -> None:
    watch = TopicWatch(Connection("h:1"), "s")
    assert seen(watch, broker) == ""
    assert seen(watch, broker, "objects") == ""
    assert seen(watch, broker) == "", "one broker did not know it yet"
    assert seen(watch, broker, "results") == ""
    assert seen(watch, broker, "results", "rejected") == "the broker has no topic s.results"
    assert seen(watch, broker, "results", "rejected") == "the broker has no topic s.rejected and no s.results"
    assert seen(watch, broker, "rejected") == "the broker has no topic s.rejected"
    assert seen(watch, broker) == ""
    assert seen(watch, broker, "rejected") == ""


@pytest.mark.parametrize("kind", ["objects", "queries", "blocks", "epochs"])
def test_a_topic_that_a_stream_continues_from_must_not_come_back(broker: Broker, kind: str) -> None:
    watch = TopicWatch(Connection("h:1"), "s")
    seen(watch, broker, kind, "results")
    assert seen(watch, broker, kind, "results").startswith("the broker has no topic s.")
    for absent in (("results",), ()):
        with pytest.raises(StateError, match=rf"s\.{kind} was deleted, and is there again"):
            seen(watch, broker, *absent)

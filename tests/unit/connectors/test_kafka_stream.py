"""Topics of a running stream that are deleted, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from spatialstream.connectors import kafka_stream
from spatialstream.connectors.kafka import CONTINUED, Connection, Topics
from spatialstream.connectors.kafka_stream import TopicWatch
from spatialstream.model.errors import StateError, Unavailable

ALL = {f"s.{kind}" for kind in ("objects", "queries", "results", "rejected", "areas", "blocks", "epochs")}


class Broker:
    """The topics that a broker has, with their ids."""

    def __init__(self) -> None:
        self.topics = set(ALL)
        self.ids = {topic: f"id of {topic}" for topic in ALL}
        self.answers = True

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(self.topics & set(topics), 1)

    def ids_of(self, topics: Topics, connection: Connection, kinds: Sequence[str], admin: object) -> dict[str, str]:
        assert (kinds, admin) == (CONTINUED, "client")
        if not self.answers:
            raise Unavailable("the broker does not answer")
        return {topic: self.ids[topic] for topic in self.topics & {topics.names[kind] for kind in kinds}}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(kafka_stream, "offsets", lambda connection: made)
    monkeypatch.setattr(Connection, "admin", lambda connection: "client")
    monkeypatch.setattr(Topics, "ids", lambda *given: made.ids_of(*given))
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


@pytest.mark.parametrize("kind", ["objects", "queries", "blocks", "epochs"])
def test_a_topic_that_is_created_again_at_once_is_noticed_by_its_id(broker: Broker, kind: str) -> None:
    watch = TopicWatch(Connection("h:1"), "s")
    assert seen(watch, broker) == ""
    broker.ids[f"s.{kind}"] = "another one"
    with pytest.raises(StateError, match=rf"s\.{kind} was deleted, and is there again"):
        seen(watch, broker)


def test_topics_that_the_broker_does_not_tell_are_looked_for_again(broker: Broker) -> None:
    watch = TopicWatch(Connection("h:1"), "s")
    assert seen(watch, broker) == ""
    broker.answers = False
    with pytest.raises(Unavailable):
        seen(watch, broker)
    broker.answers = True
    broker.ids["s.results"] = "another one"
    assert seen(watch, broker) == "", "nothing is read from it"

"""How the broker is reached: one set of properties for all clients, and no secret is shown."""

from __future__ import annotations

import pickle

import pytest

from spatialstream.model.errors import SettingError
from spatialstream.sources.kafka import Connection, Topics
from spatialstream.sources.kafka_stream import KafkaChannel, KafkaSink, KafkaSource


def test_topics_begin_with_the_streams_name() -> None:
    topics = Topics("quakes")
    wanted = topics.wanted(slots=5, objects=3, replicas=2)
    assert all(topic.topic.startswith("quakes.") for topic in wanted)
    partitions = {topic.topic: topic.num_partitions for topic in wanted}
    assert (partitions[topics.blocks], partitions[topics.objects], partitions[topics.epochs]) == (5, 3, 1)


@pytest.mark.parametrize(("copies", "insync"), [(1, None), (2, None), (3, "2"), (4, "3"), (5, "3")])
def test_a_majority_of_copies_has_to_have_a_message(copies: int, insync: str | None) -> None:
    for topic in Topics("quakes").wanted(slots=5, objects=3, replicas=copies):
        assert topic.replication_factor == copies
        assert topic.config.get("min.insync.replicas") == insync


@pytest.mark.parametrize(
    "names", [{"objects": "quakes.queries"}, {"results": "quakes.blocks"}, {"rejected": "quakes.results"}]
)
def test_no_two_kinds_share_a_topic(names: dict[str, str]) -> None:
    with pytest.raises(SettingError, match=r"is the topic of .* and of .*; name another one"):
        Connection("h:1", names=names).topics("quakes")


def test_what_goes_to_tasks_has_the_secrets_and_does_not_show_them() -> None:
    connection = Connection("h:1", {"sasl.password": "secret"})
    for each in (KafkaSource(connection, "s"), KafkaChannel(connection, "s", 2, "one"), KafkaSink(connection, "s")):
        assert pickle.loads(pickle.dumps(each)) == each
        assert "secret" not in repr(each)

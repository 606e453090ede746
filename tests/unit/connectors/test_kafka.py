"""How the broker is reached: one set of properties for all clients, and no secret is shown."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from spatialstream.connectors.kafka import Connection, Topics
from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink, KafkaSource
from spatialstream.model.errors import SettingError


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


class Settings:
    """The part of a client for administration that tells and changes the settings of topics.

    Args:
        unknown: how often it does not know the topic.
        refuses: whether it lets nobody change any.
    """

    def __init__(self, unknown: int = 0, *, refuses: bool = False) -> None:
        self.unknown, self.refuses = unknown, refuses
        made = {"cleanup.policy": "delete", "retention.ms": "86400000", "retention.bytes": "-1"}
        self.values = {topic: dict(made) for topic in ("s.epochs", "s.areas")}

    def describe_configs(self, resources: list[Any]) -> dict[Any, Future[Any]]:
        future = Future[Any]()
        if self.unknown:
            self.unknown -= 1
            future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        else:
            future.set_result(
                {name: SimpleNamespace(value=value) for name, value in self.values[resources[0].name].items()}
            )
        return {resources[0]: future}

    def incremental_alter_configs(self, resources: list[Any]) -> dict[Any, Future[Any]]:
        future = Future[Any]()
        if self.refuses:
            future.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
        else:
            self.values[resources[0].name] |= {entry.name: entry.value for entry in resources[0].incremental_configs}
            future.set_result(None)
        return {resources[0]: future}


def test_nothing_goes_by_itself_from_the_topics_of_decisions_and_of_areas_whoever_has_created_them() -> None:
    admin = Settings(unknown=2)
    Topics("s").keep(admin)  # type: ignore[arg-type]
    assert admin.unknown == 0, "of a topic that was just created, not all brokers know at once"
    assert admin.values["s.epochs"] == {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert admin.values["s.areas"]["cleanup.policy"] == "compact"
    admin.refuses = True
    Topics("s").keep(admin)  # type: ignore[arg-type]


def test_who_may_not_keep_them_is_told_what_to_set() -> None:
    with pytest.raises(SettingError, match=r"s\.epochs would lose messages .*: set its retention\.ms to -1 \("):
        Topics("s").keep(Settings(refuses=True))  # type: ignore[arg-type]
    admin = Settings()
    Topics("s").keep(admin)  # type: ignore[arg-type]
    admin.values["s.areas"]["cleanup.policy"], admin.refuses = "delete", True
    with pytest.raises(SettingError, match=r"s\.areas would lose messages .*: set its cleanup\.policy to compact \("):
        Topics("s").keep(admin)  # type: ignore[arg-type]

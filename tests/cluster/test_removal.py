"""Topics and routing state go with the stream that has made them, on real servers, and with no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from spatialstream.cli import main
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.kafka import Connection, cluster_of
from spatialstream.store.reports import UsedTopics, read_topics, save_topics
from spatialstream.store.zookeeper import ZooKeeperStore
from spatialstream.stream.bootstrap import FirstIndex, ensure_first_version
from spatialstream.stream.created_topics import record_topics
from spatialstream.stream.settings import StreamSettings
from tests.cluster.stream import PATIENCE, Servers


def begun(servers: Servers, name: str, checkpoint: Path, **named: str) -> dict[str, str]:
    """Begin a stream as its router does, but for the router; the names of its topics."""
    connection = Connection(servers.kafka.bootstrap, servers.kafka.security, named)
    settings, storage, topics = StreamSettings(name, slots=1), Folder(checkpoint), connection.topics(name)
    incarnation = settings.claim(storage)
    recorder = record_topics(storage, name, incarnation, {topics.blocks, topics.epochs}, dict)
    topics.ensure(connection, slots=1, made=recorder.add)
    with ZooKeeperStore(servers.zookeeper.hosts, name, tls=servers.zookeeper.tls) as store:
        ensure_first_version(store, storage, settings, FirstIndex(leaves=1), incarnation=incarnation)
        used = UsedTopics(cluster_of(connection), topics.names)
        save_topics(store, used)
        assert read_topics(store) == used
        assert used.cluster
    return dict(topics.names)


def removed(servers: Servers, name: str, checkpoint: Path, *more: str) -> int:
    # another spelling of the address: the Kafka is the same
    bootstrap = servers.kafka.bootstrap.replace("127.0.0.1", "localhost")
    where = ["--bootstrap", bootstrap, "--zookeeper", servers.zookeeper.hosts, "--checkpoint", str(checkpoint)]
    return main(["remove", "--stream", name, *where, "--topics", "all", "--yes", *more])


def there(servers: Servers) -> set[str]:
    return set(Connection(servers.kafka.bootstrap).admin().list_topics(timeout=PATIENCE).topics)


def test_a_stream_takes_what_it_has_made_and_nobody_else_uses(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = begun(servers, "old", tmp_path / "old")
    new = begun(servers, "new", tmp_path / "new", objects=old["objects"], queries=old["queries"])

    assert removed(servers, "old", tmp_path / "old") == 0

    assert there(servers) & {*old.values(), *new.values()} == set(new.values())
    assert "the topic old.objects is kept: the stream new uses it" in capsys.readouterr().err

    assert removed(servers, "new", tmp_path / "new") == 0
    assert there(servers) & {*old.values(), *new.values()} == {old["objects"], old["queries"]}


def test_topics_that_were_there_before_or_are_others_now_stay(servers: Servers, tmp_path: Path) -> None:
    admin = Connection(servers.kafka.bootstrap).admin()
    admin.create_topics([NewTopic("early.objects", 1)])["early.objects"].result(PATIENCE)
    topics = begun(servers, "early", tmp_path / "early")
    admin.delete_topics([topics["queries"]])[topics["queries"]].result(PATIENCE)
    admin.create_topics([NewTopic(topics["queries"], 1)])[topics["queries"]].result(PATIENCE)

    assert removed(servers, "early", tmp_path / "early") == 0

    assert there(servers) & set(topics.values()) == {topics["objects"], topics["queries"]}

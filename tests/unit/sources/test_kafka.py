"""How the broker is reached: one set of properties for all clients, and no secret is shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spatialstream.model.errors import SettingError
from spatialstream.sources.kafka import Connection, Topics, read_properties
from spatialstream.sources.kafka_stream import KafkaChannel, KafkaSink, KafkaSource


def test_properties_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("# a comment\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    assert read_properties(path) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}


@pytest.mark.parametrize("text", ["nonsense", "bootstrap.servers=x", "sasl.pasword=secret"])
def test_what_is_not_known_is_refused_without_its_value(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(text)
    with pytest.raises(SettingError, match=r"line 1 .* sasl\.password") as error:
        read_properties(path)
    assert "secret" not in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read"):
        read_properties(tmp_path / "none")


def test_files_that_are_named_are_read(tmp_path: Path) -> None:
    path, ca = tmp_path / "kafka.properties", tmp_path / "ca.pem"
    path.write_text(f"security.protocol=SSL\nssl.ca.location={ca}\n")
    with pytest.raises(SettingError, match=r"ca\.pem cannot be read"):
        read_properties(path)
    ca.write_text("CERTIFICATE\nOF MANY LINES\n")
    security = {"security.protocol": "SSL", "ssl.ca.pem": "CERTIFICATE\nOF MANY LINES\n"}
    assert read_properties(path) == security
    assert Connection("h:1", security).client().items() >= security.items()


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

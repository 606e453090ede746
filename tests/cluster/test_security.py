"""A broker that asks for a password: everything goes through, and the password is in no log and no process list.

And a ZooKeeper that asks for certificates.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.model.space import WGS84
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.tls import TlsFiles
from tests.certificates import Authority
from tests.cluster.stream import LiveStream, Servers, differences
from tests.streams import random_stream

_PASSWORD = "quite-secret-4711"


@pytest.mark.timeout(1200)
def test_password(servers: Servers, tmp_path: Path) -> None:
    drawn = random_stream(9, 400, 5, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    with KafkaServer(tmp_path / "kafka", login=("someone", _PASSWORD)) as kafka:
        properties = tmp_path / "kafka.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in kafka.security.items()))
        more = ("--kafka-security", str(properties))
        with LiveStream(Servers(servers.zookeeper, kafka), "secret", tmp_path, WGS84, 2, *more) as stream:
            commands = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
            stream.send(objects, queries, 0.0).join()
            assert differences(stream, objects, queries) == []
    assert any(b"secret" in command and b"router" in command for command in commands)
    assert not any(_PASSWORD.encode() in command for command in commands)
    for log in (tmp_path / "router" / "log", tmp_path / "worker" / "log"):
        assert log.exists()
        assert _PASSWORD not in log.read_text(errors="replace")


@pytest.mark.timeout(1200)
def test_certificates(servers: Servers, tmp_path: Path) -> None:
    drawn = random_stream(9, 400, 5, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    files = Authority().issue(tmp_path / "certificates")
    with ZooKeeperServer(tmp_path / "zookeeper", tls=TlsFiles(*files)) as zookeeper:
        named = zip(("--zookeeper-ca", "--zookeeper-certificate", "--zookeeper-key"), map(str, files), strict=True)
        more = [each for pair in named for each in pair]
        with LiveStream(Servers(zookeeper, servers.kafka), "certified", tmp_path, WGS84, 2, *more) as stream:
            stream.send(objects, queries, 0.0).join()
            assert differences(stream, objects, queries) == []
            assert stream.store.latest() is not None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""

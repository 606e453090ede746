"""A broker that asks for a password, or a token: everything goes through, and no log or process list has the secret.

And a ZooKeeper that asks for certificates.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.model.space import WGS84
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.process import await_condition
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.tls import TlsFiles
from tests.certificates import Authority
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.cluster.test_executors import failures
from tests.lengths import AT_LENGTH
from tests.streams import random_stream
from tests.tokens import Issuer, TokenEndpoint, with_endpoint

_PASSWORD = "quite-secret-4711"


@pytest.mark.gate
@pytest.mark.skipif(not AT_LENGTH, reason="at length: the stream of test_in_transit.py shows a password, by PLAIN")
@pytest.mark.timeout(1200)
def test_password(servers: Servers, tmp_path: Path) -> None:
    """By SCRAM; that by PLAIN is in test_clients.py."""
    drawn = random_stream(9, 400, 5, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    with KafkaServer(tmp_path / "kafka", login=("someone", _PASSWORD), hashed=True) as kafka:
        properties = tmp_path / "kafka.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in kafka.security.items()))
        more = ("--kafka-security", str(properties))
        with LiveStream(Servers(servers.zookeeper, kafka), "secret", tmp_path, WGS84, 2, *more) as stream:
            commands = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
            stream.send(objects, queries, 0.0).join()
            assert differences(stream, objects, queries) == []
    _is_hidden(_PASSWORD, tmp_path, commands)


@pytest.mark.timeout(1200)
def test_tokens(servers: Servers, tmp_path: Path) -> None:
    """Jobs with tokens that end while the stream runs."""
    drawn = random_stream(9, 400, 5, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    issuer, files = Issuer(), Authority().issue(tmp_path / "certificates")
    login, tokens, tls = ("broker", "own"), issuer.accepted(tmp_path / "issuer"), TlsFiles(*files)
    with (
        KafkaServer(tmp_path / "kafka", login=login, tls=tls, tokens=tokens) as kafka,
        TokenEndpoint(issuer, files, ("secretive", _PASSWORD), seconds=40.0) as endpoint,
    ):
        properties = with_endpoint(tmp_path / "kafka.properties", endpoint, files.authority, "secretive", _PASSWORD)
        more = ("--kafka-security", str(properties))
        with LiveStream(Servers(servers.zookeeper, kafka), "secret-tokens", tmp_path, WGS84, 2, *more) as stream:
            commands = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
            half = len(objects) // 2
            before = [each for each in queries if each.t <= objects[half - 1].t]
            stream.send(objects[:half], before, 0.0).join()
            issued = endpoint.issued
            assert await_condition(lambda: endpoint.issued > 2 * issued, PATIENCE), (
                "clients get new tokens by themselves"
            )
            stream.send(objects[half:], queries[len(before) :], 0.0).join()
            assert differences(stream, objects, queries) == []
            assert failures(stream.router) == failures(stream.worker) == 0
    _is_hidden(_PASSWORD, tmp_path, commands)


def _is_hidden(secret: str, folder: Path, commands: list[bytes]) -> None:
    """Neither in a command nor in a job's log."""
    assert any(b"secret" in command and b"router" in command for command in commands)
    assert not any(secret.encode() in command for command in commands)
    for log in (folder / "router" / "log", folder / "worker" / "log"):
        assert log.exists()
        assert secret not in log.read_text(errors="replace")


@pytest.mark.skipif(not AT_LENGTH, reason="at length: the stream of test_in_transit.py shows certificates too")
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

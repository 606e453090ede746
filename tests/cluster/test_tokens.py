"""A broker that takes tokens (SASL, OAUTHBEARER): those of an endpoint, and those of a file that somebody keeps new."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spatialstream.connectors import kafka, kafka_clients
from spatialstream.connectors.kafka import Connection, Topics
from spatialstream.connectors.kafka_security import read_properties
from spatialstream.connectors.kafka_stream import KafkaChannel
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.process import await_condition
from spatialstream.store.tls import TlsFiles
from tests.certificates import Authority, Files
from tests.cluster.stream import PATIENCE
from tests.cluster.test_clients import block, numbers
from tests.tokens import Issuer, TokenEndpoint, properties, with_endpoint

_SECONDS = 20.0
"""Tokens are good for. librdkafka asks for the next after four fifths of it, and a connection that is opened after that
logs in anew when what is left has ended; a broker refuses who does so twice within a second."""
_CLIENT = "quakes", "quite-secret-4712"


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Authority().issue(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(issuer: Issuer, certificates: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    folder, login = tmp_path_factory.mktemp("tokens"), ("broker", "own")
    tokens, tls = issuer.accepted(folder / "issuer"), TlsFiles(*certificates)
    with KafkaServer(folder / "kafka", login=login, tls=tls, tokens=tokens) as server:
        yield server


def goes_on(connection: Connection, stream: str, seconds: float) -> None:
    """Send and read for so many seconds, with the clients that there are in the beginning."""
    Topics(stream).ensure(connection, slots=1)
    channel, number, until = KafkaChannel(connection, stream, 1), 0, time.monotonic() + seconds
    channel.send([block(0)])
    first = {id(client): client for clients in kafka_clients._idle.values() for client in clients}
    while time.monotonic() < until:
        number += 1
        channel.send([block(number)])
        assert numbers(channel, number) == [block(number)[1]]
    now = {id(client) for clients in kafka_clients._idle.values() for client in clients}
    assert first.keys() <= now, "no client had to be made anew"


@pytest.mark.timeout(900)
def test_tokens_of_an_endpoint(broker: KafkaServer, issuer: Issuer, certificates: Files, tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    with TokenEndpoint(issuer, certificates, _CLIENT, _SECONDS) as endpoint:
        with_endpoint(path, endpoint, certificates.authority, *_CLIENT)
        goes_on(Connection(broker.bootstrap, read_properties(path)), "endpoint", 1.5 * _SECONDS)
        assert endpoint.issued >= 6, "two for each client"


@pytest.mark.timeout(900)
def test_who_gets_no_token_is_told_why(
    broker: KafkaServer, issuer: Issuer, certificates: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT", 5.0)
    path = tmp_path / "kafka.properties"
    with TokenEndpoint(issuer, certificates, _CLIENT, _SECONDS) as endpoint:
        with_endpoint(path, endpoint, certificates.authority, _CLIENT[0], "another-secret")
        with pytest.raises(Unavailable, match=r"cannot be reached: .*OAUTHBEARER token: .*invalid_client") as error:
            Topics("none").ensure(Connection(broker.bootstrap, read_properties(path)), slots=1)
        assert "secret" not in str(error.value)
        strange = Authority("another").issue(tmp_path / "another").authority
        with_endpoint(path, endpoint, strange, *_CLIENT)
        path.write_text(path.read_text().replace(f"ssl.ca.location={strange}", f"ssl.ca.location={certificates[0]}"))
        with pytest.raises(Unavailable, match="certificate"):
            Topics("none").ensure(Connection(broker.bootstrap, read_properties(path)), slots=1)


def replaced(path: Path, text: str) -> None:
    """Replace a file in one step, as the kubelet does."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@pytest.mark.timeout(900)
def test_tokens_of_a_file(broker: KafkaServer, issuer: Issuer, certificates: Files, tmp_path: Path) -> None:
    token, path = tmp_path / "token", tmp_path / "kafka.properties"
    token.write_text(issuer.token(_SECONDS))
    properties(path, certificates.authority, token_endpoint_url=token.as_uri())
    connection = Connection(broker.bootstrap, read_properties(path))
    replaced(token, issuer.token(2 * _SECONDS))
    Topics("file").ensure(connection, slots=1)
    channel = KafkaChannel(connection, "file", 1)
    channel.send([block(0)])
    replaced(token, issuer.token(60.0))
    goes_on(connection, "file-on", 1.5 * _SECONDS)
    channel.send([block(1)])
    assert numbers(channel) == [block(0)[1], block(1)[1]]


@pytest.mark.timeout(900)
def test_tokens_that_are_refused(
    broker: KafkaServer,
    issuer: Issuer,
    certificates: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "_TIMEOUT", 5.0)
    token, path = tmp_path / "token", tmp_path / "kafka.properties"
    properties(path, certificates.authority, token_endpoint_url=token.as_uri())
    with pytest.raises(SettingError, match=r"kafka\.properties: .*token cannot be read"):
        read_properties(path)
    token.write_text(issuer.token(-10.0))
    with pytest.raises(SettingError, match=r"token has expired at .* UTC; it must be renewed"):
        read_properties(path)
    for other in ({"aud": "others"}, {"iss": "https://other.test"}, None):
        wrong = Issuer().token(60.0) if other is None else issuer.token(60.0, **other)
        token.write_text(wrong)
        with pytest.raises(Unavailable, match=r"cannot be reached: .*; .*invalid_token") as error:
            Topics("none").ensure(Connection(broker.bootstrap, read_properties(path)), slots=1)
        assert wrong not in str(error.value)


@pytest.mark.timeout(900)
def test_a_token_that_is_not_renewed_in_time_is_told_and_taken_when_it_is(
    broker: KafkaServer, issuer: Issuer, certificates: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_clients, "PATIENCE", 5.0)
    token, path = tmp_path / "token", tmp_path / "kafka.properties"
    token.write_text(issuer.token(_SECONDS))
    properties(path, certificates.authority, token_endpoint_url=token.as_uri())
    connection = Connection(broker.bootstrap, read_properties(path))
    Topics("late").ensure(connection, slots=1)
    channel, told = KafkaChannel(connection, "late", 1), []

    def refused() -> bool:
        try:
            channel.send([block(0)])
        except Unavailable as error:
            told.append(str(error))
        return "the token has expired at" in "".join(told) or "invalid_token" in "".join(told)

    assert await_condition(refused, PATIENCE)
    replaced(token, issuer.token(60.0))

    def taken() -> bool:
        try:
            channel.send([block(1)])
        except Unavailable:
            return False
        return True

    assert await_condition(taken, PATIENCE)
    assert block(1)[1] in numbers(channel)

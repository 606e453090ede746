"""What clients show a broker: properties of a file that go together, or words that say what would be right."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import time
from pathlib import Path

import pytest

from spatialstream.connectors import kafka_security
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_security import client_settings, read_properties
from spatialstream.model.errors import SettingError
from tests.certificates import Authority

_OAUTH = "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
_OIDC = f"{_OAUTH}sasl.oauthbearer.method=oidc\nsasl.oauthbearer.token.endpoint.url=https://issuer/token\n"
_OF_A_FILE = f"{_OAUTH}sasl.oauthbearer.token.endpoint.url=file:///nowhere/token\n"


def test_properties_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("# a comment\n\nsecurity.protocol = SASL_SSL\nsasl.password=a=b\n")
    assert read_properties(path) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}


@pytest.mark.parametrize("text", ["nonsense", "bootstrap.servers=x", "sasl.pasword=hidden"])
def test_what_is_not_known_is_refused_without_its_value(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(text)
    with pytest.raises(SettingError, match=r"line 1 .* sasl\.password") as error:
        read_properties(path)
    assert "hidden" not in str(error.value)


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


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("security.protocol=TLS", "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.mechanism=GSSAPI", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ("sasl.mechanism=OAUTHBEARER", "needs security.protocol=SASL_SSL"),
        (f"{_OIDC}sasl.mechanism=PLAIN", "sasl.oauthbearer.method needs sasl.mechanism=OAUTHBEARER"),
        (_OAUTH, r"needs sasl.oauthbearer.method=oidc, with .*; or .*=file:///..., a file with a token"),
        (f"{_OAUTH}sasl.oauthbearer.method=oidc", r"needs sasl.oauthbearer.token.endpoint.url=https://"),
        (_OIDC, "needs sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"),
        (f"{_OIDC}sasl.oauthbearer.client.id=me", "needs sasl.oauthbearer.client.secret"),
        (_OIDC.replace("oidc", "default"), "needs sasl.oauthbearer.method=oidc"),
        (f"{_OAUTH}sasl.oauthbearer.token.endpoint.url=file://token", "not file:/// and the path"),
        (f"{_OF_A_FILE}sasl.oauthbearer.client.secret=hidden", "sasl.oauthbearer.client.secret needs .*=oidc"),
        (f"{_OF_A_FILE}sasl.oauthbearer.extensions=a", "extensions is not name=value"),
        (_OF_A_FILE, "/nowhere/token cannot be read: No such file"),
    ],
)
def test_what_does_not_go_together_is_refused_with_what_would_be_right(tmp_path: Path, text: str, right: str) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(text)
    with pytest.raises(SettingError, match=rf"kafka\.properties: .*{right}") as error:
        read_properties(path)
    assert "hidden" not in str(error.value)


def token(seconds: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + seconds}).encode()).decode().rstrip("=")
    return f"e30.{claims}.x"


def test_an_endpoint_is_librdkafkas_own(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text(f"{_OIDC}sasl.oauthbearer.client.id=me\nsasl.oauthbearer.client.secret=hidden\n")
    known = read_properties(path)
    assert client_settings(known, print) == known
    assert "hidden" not in repr(Connection("h:1", known))


def test_a_token_of_a_file_is_read_when_it_is_needed(tmp_path: Path) -> None:
    path, file, told = tmp_path / "kafka.properties", tmp_path / "to ken", list[str]()
    path.write_text(
        f"{_OAUTH}sasl.oauthbearer.token.endpoint.url={file.as_uri()}\nsasl.oauthbearer.extensions=a=b, cc=d\n"
    )
    for wrong in ("", "opaque", "a.b.c", f"e30.{base64.urlsafe_b64encode(b'{}').decode()}.x"):
        file.write_text(wrong)
        with pytest.raises(SettingError, match=r"kafka\.properties: .*to ken is not a JSON Web Token with an expiry"):
            read_properties(path)
    file.write_text(token(100.0) + "\n")
    settings = client_settings(read_properties(path), told.append)
    assert not any(name.startswith("sasl.oauthbearer.") for name in settings)
    shown, end, _, extensions = settings["oauth_cb"]("")
    assert (shown, extensions) == (token_of(file), {"a": "b", "cc": "d"})
    assert 90.0 < end - time.time() <= 100.0
    file.write_text(token(200.0))
    assert settings["oauth_cb"]("")[0] == token_of(file) != shown
    assert told == []
    file.write_text(token(-5.0))
    shown, end, *_ = settings["oauth_cb"]("")
    assert shown != token_of(file)
    assert 0.0 < end - time.time() < 10.0, "the file is read again soon"
    assert "has expired at" in told.pop()
    file.unlink()
    assert settings["oauth_cb"]("")[0] == shown
    assert "cannot be read" in told.pop()


def token_of(file: Path) -> str:
    return file.read_text().strip()


def test_a_token_that_is_in_no_file_of_this_process_is_kept() -> None:
    """As where files are those of a Secret: none of this machine is shown to a broker that somebody else names."""
    held = {"kafka.properties": _OF_A_FILE, "token": token(100.0)}
    known = read_properties(Path("kafka.properties"), lambda path: held[path.name])
    settings = client_settings(known, print)
    assert settings["oauth_cb"]("")[0] == held["token"]
    assert held["token"] not in repr(Connection("h:1", known))
    assert not any("nowhere" in str(value) for value in known.values())


def test_what_has_been_renewed_is_shown_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, files = tmp_path / "kafka.properties", Authority("first").issue(tmp_path / "certificates")
    named = {"ssl.ca": files.authority, "ssl.certificate": files.certificate, "ssl.key": files.key}
    lines = [f"{name}.location={file}\n" for name, file in named.items()]
    path.write_text("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.password=one\n" + "".join(lines))
    first = read_properties(path)
    connection = pickle.loads(pickle.dumps(Connection("h:1", first, file=path)))
    monkeypatch.setattr(kafka_security, "_LOOK", 0.0)
    shown = connection.shown
    assert (shown, connection.shown is shown) == (first, True)
    path.write_text(path.read_text().replace("=one", "=two"))
    assert connection.shown["sasl.password"] == "two"
    assert connection.client()["sasl.password"] == "two"
    before = dict(connection.shown)
    later = Authority("second").issue(tmp_path / "later")
    shutil.copy(later.key, files.key)
    assert connection.shown == before, "the key is of another certificate"
    files.authority.unlink()
    shutil.copy(later.certificate, files.certificate)
    assert connection.shown == before, "a file is missing"
    shutil.copy(later.authority, files.authority)
    assert connection.shown == read_properties(path) != before
    before = dict(connection.shown)
    path.write_text("nonsense")
    assert connection.shown == before
    path.unlink()
    assert connection.client().items() >= before.items()


def test_what_is_not_on_this_machine_stays_as_it_came(tmp_path: Path) -> None:
    connection = Connection("h:1", {"sasl.password": "one"}, file=tmp_path / "elsewhere")
    assert connection.client()["sasl.password"] == "one"
    assert connection.shown is connection.shown

"""Credentials and encryption of Kafka clients: properties in librdkafka's names, from a file.

They are read from a file, never from the command line, and are never shown: no process list or log contains secrets.

With OAUTHBEARER a client presents a token that expires. librdkafka gets it itself from its issuer (``oidc``), and the
next one in time. Or a token is a file that is renewed by others, as the kubelet does for a service account; it is
configured as for Kafka's own clients, by ``sasl.oauthbearer.token.endpoint.url=file:///...``, and read whenever one is
needed, by the process that needs it.

librdkafka reads everything else, a password or a certificate, when a client is created. So the files are checked
periodically, and owners of persistent clients create new ones when the content has changed (:func:`renewed`).
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from confluent_kafka import KafkaException, Producer

from spatialstream.model.errors import SettingError

__all__ = ["client_settings", "read_properties", "renewed"]

_FILES = {
    "https.ca.location": "https.ca.pem",
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
"""Properties that name files -> those that hold their content."""

_OAUTH = "sasl.oauthbearer."
_METHOD, _URL, _EXTENSIONS = f"{_OAUTH}method", f"{_OAUTH}token.endpoint.url", f"{_OAUTH}extensions"
_CLIENT = (f"{_OAUTH}client.id", f"{_OAUTH}client.secret")
_TOKEN = "token"  # a token that is in no file of this process; nobody can set it

_KNOWN = {
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    *(_METHOD, _URL, _EXTENSIONS, *_CLIENT, f"{_OAUTH}scope"),
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    *_FILES,
}

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EXTENSION = re.compile(r"[A-Za-z]+=[\x21-\x2b\x2d-\x7e][\x20-\x2b\x2d-\x7e]*")

_LOOK = 1.0
"""Seconds after which a file is read again."""

_AGAIN = 5.0
"""Seconds after which a token's file without a valid token is read again."""


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise _wrong(f"{path} cannot be read: {error.strerror}") from None


def _wrong(problem: str) -> SettingError:
    return SettingError("kafka-security", problem)


def read_properties(path: Path, text_of: Callable[[Path], str] | None = None) -> dict[str, str]:
    """Security properties from a file of ``name=value`` lines; ``#`` begins a comment line.

    Files that they name are read, too: processes that connect to the broker may be on other machines. A token's file is
    read by each of them.

    Args:
        path: of the file.
        text_of: reads a file, including a token's, which is then kept unchanged; raises SettingErrors. None: files are
            those of this machine.

    Raises:
        SettingError: a file cannot be read or is invalid, a line is no known property, or the properties are
            inconsistent.
    """
    properties, read = {}, text_of or _text
    for number, line in enumerate(read(path).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or name not in _KNOWN:
            known = ", ".join(sorted(_KNOWN))
            raise _wrong(f"{path} line {number} is not name=value with a name of: {known}")
        if name in _FILES:
            name, value = _FILES[name], read(Path(value))
        properties[name] = value
    try:
        _check(properties)
        if (token := _token_file(properties)) is not None:
            held = read(token).strip()
            _end_of(held, str(token))
            if text_of is not None:
                del properties[_URL]
                properties[_TOKEN] = held
    except SettingError as error:
        raise SettingError(error.setting, f"{path}: {error.problem}") from None
    return properties


def _check(properties: Mapping[str, str]) -> None:
    """Raise a SettingError if properties are inconsistent."""
    protocol, mechanism = properties.get("security.protocol", "PLAINTEXT").upper(), _mechanism(properties)
    if protocol not in _PROTOCOLS:
        raise _wrong(f"security.protocol is not one of {', '.join(_PROTOCOLS)}")
    if mechanism is not None and mechanism not in _MECHANISMS:
        raise _wrong(f"sasl.mechanism is not one of {', '.join(_MECHANISMS)}")
    oauth_names = sorted(name for name in properties if name.startswith(_OAUTH))
    if mechanism != "OAUTHBEARER":
        if oauth_names or "https.ca.pem" in properties:
            raise _wrong(f"{oauth_names[0] if oauth_names else 'https.ca.location'} needs sasl.mechanism=OAUTHBEARER")
        return
    if not protocol.startswith("SASL_"):
        raise _wrong("sasl.mechanism=OAUTHBEARER needs security.protocol=SASL_SSL (or SASL_PLAINTEXT)")
    method, scheme = properties.get(_METHOD, "default").lower(), urlsplit(properties.get(_URL, "")).scheme
    if method == "oidc":
        if scheme not in ("https", "http"):
            raise _wrong(f"{_METHOD}=oidc needs {_URL}=https://..., where tokens are issued")
        if missing := [name for name in _CLIENT if not properties.get(name)]:
            raise _wrong(f"{_METHOD}=oidc needs {' and '.join(missing)}")
    elif method != "default" or scheme != "file":
        problem = f"{_METHOD}=oidc, with {_URL} (https://...), {' and '.join(_CLIENT)}"
        raise _wrong(f"sasl.mechanism=OAUTHBEARER needs {problem}; or {_URL}=file:///..., a file with a token")
    else:
        if _token_file(properties) is None:
            raise _wrong(f"{_URL} is not file:/// and the path of a file with a token")
        if unused := [name for name in oauth_names if name not in (_METHOD, _URL, _EXTENSIONS)]:
            raise _wrong(f"{unused[0]} needs {_METHOD}=oidc; a token from a file is used unchanged")
        _extensions(properties)


def _mechanism(properties: Mapping[str, str]) -> str | None:
    return properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))


def _token_file(properties: Mapping[str, str]) -> Path | None:
    """The file with the token; None if tokens come from elsewhere."""
    parts = urlsplit(properties.get(_URL, ""))
    named = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
    return Path(unquote(parts.path)) if named else None


def _extensions(properties: Mapping[str, str]) -> dict[str, str]:
    found = [each.strip() for each in properties.get(_EXTENSIONS, "").split(",") if each.strip()]
    if any(not _EXTENSION.fullmatch(each) for each in found):
        raise _wrong(f"{_EXTENSIONS} is not name=value,..., with names of letters")
    return {name: value for name, _, value in (each.partition("=") for each in found)}


# -------------------------------------------------------------------------------------------------------------- renewal


@dataclass(frozen=True, slots=True)
class _Looked:
    """The content of a file, and when it was read, s of the monotonic clock."""

    at: float
    properties: Mapping[str, str]


_looked: dict[tuple[Path, str], _Looked] = {}


def renewed(path: Path, known: Mapping[str, str], bootstrap: str) -> Mapping[str, str]:
    """The properties in a file, at most a second old; the same object as long as they do not change.

    If the file does not exist, as on another machine, or while its content is unusable, as when half of it has been
    replaced, the properties stay unchanged.

    Args:
        path: of the file.
        known: the properties as they were read, maybe by another process.
        bootstrap: the brokers for which they are used.
    """
    key = path, bootstrap
    found = _looked.get(key)
    if found is not None and time.monotonic() < found.at + _LOOK:
        return found.properties
    properties = known if found is None else found.properties
    try:
        read = read_properties(path)
        if read != properties and read == read_properties(path):
            _try(read)
            properties = read
    except (SettingError, KafkaException, ValueError):
        pass
    _looked[key] = _Looked(time.monotonic(), properties)
    return properties


def _try(properties: Mapping[str, str]) -> None:
    """Raise a KafkaException if no client can be created with the certificates and keys of these properties."""
    encrypting = {name: value for name, value in properties.items() if name.startswith("ssl.")}
    if properties.get("security.protocol", "").upper().endswith("SSL"):
        Producer({"security.protocol": "SSL", "log_level": 0, **encrypting})


# -------------------------------------------------------------------------------------------------------------- clients


def client_settings(properties: Mapping[str, str], tell: Callable[[str], object]) -> dict[str, Any]:
    """The configuration of a client.

    Args:
        properties: as they were read.
        tell: called with the reason why a file has no valid token, each time one is needed.
    """
    path, token = _token_file(properties), properties.get(_TOKEN, "")
    if path is None and not token:
        return dict(properties)
    settings: dict[str, Any] = {
        name: each for name, each in properties.items() if name != _TOKEN and not name.startswith(_OAUTH)
    }
    read = partial(_text, path) if path is not None else lambda: token
    return settings | {"oauth_cb": partial(_shown, read, _extensions(properties), tell)}


def _shown(
    read: Callable[[], str], extensions: dict[str, str], tell: Callable[[str], object], _: str
) -> tuple[str, float, str, dict[str, str]]:
    """A token and its expiry, in the form that librdkafka expects; it asks for the next one some time before.

    Without a valid token the broker gets something that it rejects, and the file is read again in a moment: an
    exception here would stop the thread that created the client.
    """
    try:
        token = read().strip()
        return token, _end_of(token, "the token"), "", extensions
    except SettingError as error:
        tell(error.problem)
        return "none", time.time() + _AGAIN, "", extensions


def _end_of(token: str, source: str) -> float:
    """The expiry of a token, in seconds of Unix time.

    Raises:
        SettingError: it is no token, or has expired.
    """
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        end = float(json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))["exp"])
    except (ValueError, TypeError, KeyError):
        raise _wrong(f"{source} is not a JSON Web Token with an expiry (exp)") from None
    if end <= time.time() + 1.0:
        ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(end))
        raise _wrong(f"{source} has expired at {ended}; it must be renewed in time, as the kubelet does projected ones")
    return end

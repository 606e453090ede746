"""Encrypted connections to ZooKeeper (TLS), with certificates that may be renewed at any time.

Certificates are read when a connection is made: replaced files take effect with the next connection, and existing
connections stay. kazoo could read the files too, but would trust the system's authorities in addition to the given one,
and would hide why a server cannot be reached. It also polls only the socket for answers, and misses those that were
decrypted together with another one: they would wait until the next data.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from kazoo.handlers.threading import SequentialThreadingHandler

from spatialstream.model.errors import SettingError

__all__ = ["Tls", "TlsFiles", "TlsHandler", "TlsTexts"]

AUTHORITY, CERTIFICATE, KEY = "zookeeper-ca", "zookeeper-certificate", "zookeeper-key"
"""The names of the settings, on the command line too."""


class Tls(Protocol):
    """Settings of TLS."""

    def context(self) -> ssl.SSLContext:
        """The current context; trusts only the authority, and checks the names of servers.

        Raises:
            SettingError: a file cannot be read, or is invalid.
        """


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, which may be replaced at any time.

    Attributes:
        authority: certificates, one of which has to have issued the server's.
        certificate: to present to the server, with intermediates up to an authority that the server knows; None: none.
        key: the key of the certificate, without a password.
    """

    authority: Path | str
    certificate: Path | str | None = None
    key: Path | str | None = None

    def context(self) -> ssl.SSLContext:
        """See :class:`Tls`."""
        _check_pair(self.certificate, self.key)
        context = _trusting(_read(self.authority, AUTHORITY))
        if self.certificate is not None and self.key is not None:
            _check_pem(_read(self.certificate, CERTIFICATE), _read(self.key, KEY))
            _show(context, self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class TlsTexts:
    """The same as content instead of files, for example of a Secret of Kubernetes; never shown."""

    authority: bytes = field(repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def of_secret(cls, data: Mapping[str, bytes], certified: bool, where: str, name: str) -> Self:
        """From a Secret with cert-manager's names of keys: ``ca.crt``, ``tls.crt``, ``tls.key``.

        Args:
            data: of the Secret.
            certified: whether a certificate is presented to servers.
            where: the setting that names the Secret.
            name: of the Secret.

        Raises:
            SettingError: a key is missing, or its content is invalid.
        """
        names = {AUTHORITY: "ca.crt"} | ({CERTIFICATE: "tls.crt", KEY: "tls.key"} if certified else {})
        for key in names.values():
            if key not in data:
                raise SettingError(where, f"the Secret {name} has no key {key}")
        texts = cls(*(data[key] for key in names.values()))
        try:
            texts.context()
        except SettingError as error:
            raise SettingError(where, f"the key {names[error.setting]} of the Secret {name} {error.problem}") from None
        return texts

    def context(self) -> ssl.SSLContext:
        """See :class:`Tls`."""
        _check_pair(self.certificate, self.key)
        context = _trusting(self.authority)
        if self.certificate is not None and self.key is not None:
            _check_pem(self.certificate, self.key)
            with os.fdopen(
                os.memfd_create("certificate"), "wb"
            ) as file:  # ssl accepts only files; this one is on no disk
                file.write(self.certificate.rstrip() + b"\n" + self.key)
                file.flush()
                path = f"/proc/self/fd/{file.fileno()}"
                _show(context, path, path)
        return context


def _check_pair(certificate: object, key: object) -> None:
    if (certificate is None) != (key is None):
        missing, given = (KEY, CERTIFICATE) if key is None else (CERTIFICATE, KEY)
        raise SettingError(missing, f"is missing: a certificate needs its key and vice versa, and {given} is given")


def _read(path: Path | str, setting: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(setting, f"{path} cannot be read: {error.strerror}") from None


def _trusting(authority: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # requires a certificate with the server's name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        problem = "holds no certificate; give the authority's as PEM (-----BEGIN CERTIFICATE-----)"
        raise SettingError(AUTHORITY, problem) from None
    return context


def _check_pem(certificate: bytes, key: bytes) -> None:
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise SettingError(CERTIFICATE, "holds no certificate; give it as PEM (-----BEGIN CERTIFICATE-----)")
    if b"PRIVATE KEY-----" not in key:
        raise SettingError(KEY, "holds no key; give it as PEM (-----BEGIN PRIVATE KEY-----)")


def _show(context: ssl.SSLContext, certificate: Path | str, key: Path | str) -> None:
    def refuse() -> str:
        raise SettingError(KEY, "needs a password; give a key without one, in a file that others cannot read")

    try:
        context.load_cert_chain(certificate, key, refuse)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingError(KEY, "is the key of another certificate; give the two of one pair") from None
        raise SettingError(CERTIFICATE, "the certificate or its key is damaged; give both as PEM") from None
    except OSError as error:  # replaced at this moment
        raise SettingError(CERTIFICATE, f"cannot be read: {error.strerror}") from None


class _Socket(ssl.SSLSocket):
    """Reports why it ends: a server's rejection of a certificate may come only with its first answer."""

    tell: Callable[[str], object]

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """See the base class."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self.tell(_reason(error))
            raise


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo says nothing of its types
    """Creates kazoo's connections.

    Args:
        tls: settings, read for each connection.
        failed: called with the reason of a failure.
    """

    def __init__(self, tls: Tls, failed: Callable[[str], object]) -> None:
        super().__init__()
        self._tls, self._failed = tls, failed

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> ssl.SSLSocket:
        """A connection after its handshake.

        Raises:
            OSError: it failed, as kazoo expects it.
        """
        try:
            context = self._tls.context()
            context.sslsocket_class = _Socket
            plain = socket.create_connection(address, timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with plain:  # the encrypted connection takes it over
                connection = context.wrap_socket(plain, server_hostname=hostname or address[0])
        except SettingError as error:
            self._failed(str(error))
            raise OSError(str(error)) from error
        except OSError as error:
            self._failed(_reason(error))
            raise
        connection.tell = self._failed  # type: ignore[attr-defined]  # it is a _Socket
        return connection

    def select(
        self, readable: Sequence[Any], writable: Sequence[Any], failing: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As :func:`select.select`; sockets with decrypted data are readable."""
        decrypted = [each for each in readable if isinstance(each, ssl.SSLSocket) and each.pending()]
        found = super().select(readable, writable, failing, 0.0 if decrypted else timeout)
        more = [each for each in decrypted if each not in found[0]]
        return [*more, *found[0]], found[1], found[2]


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no encrypted connection: {(error.reason or str(error)).replace('_', ' ').lower()}"
    return f"no connection: {error.strerror or error}"

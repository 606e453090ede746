"""What is told of files for TLS that cannot be used; how the others do is in ``tests/cluster/test_store_tls.py``."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from spatialstream.model.errors import SettingError
from spatialstream.store.tls import TlsFiles, TlsHandler, TlsTexts
from tests.certificates import Authority, Files, write_key


def texts(files: Files) -> TlsTexts:
    return TlsTexts(files.authority.read_bytes(), files.certificate.read_bytes(), files.key.read_bytes())


def test_the_authority_alone_is_trusted_and_names_are_checked(tmp_path: Path) -> None:
    files = Authority("only").issue(tmp_path)
    for tls in (TlsFiles(*files), texts(files), TlsFiles(files.authority)):
        context = tls.context()
        (known,) = context.get_ca_certs()
        assert known["subject"] == ((("commonName", "only"),),)
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def missing(file: str) -> Callable[[Files], None]:
    return lambda files: getattr(files, file).unlink()


def other(file: str, content: bytes) -> Callable[[Files], None]:
    return lambda files: getattr(files, file).write_bytes(content) and None


def foreign_key(files: Files) -> None:
    write_key(files.key, ec.generate_private_key(ec.SECP256R1()))


def locked_key(files: Files) -> None:
    write_key(files.key, ec.generate_private_key(ec.SECP256R1()), b"password")


DAMAGED = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("change", "setting", "why"),
    [
        (missing("authority"), "zookeeper-ca", "ca.crt cannot be read: No such file"),
        (missing("certificate"), "zookeeper-certificate", "tls.crt cannot be read: No such file"),
        (missing("key"), "zookeeper-key", "tls.key cannot be read: No such file"),
        (other("authority", b""), "zookeeper-ca", "holds no certificate; give the authority's as PEM"),
        (other("authority", b"\x30\x82\xff"), "zookeeper-ca", "holds no certificate"),
        (other("authority", DAMAGED), "zookeeper-ca", "holds no certificate"),
        (other("certificate", b"\x30\x82"), "zookeeper-certificate", "holds no certificate; give it as PEM"),
        (other("certificate", DAMAGED), "zookeeper-certificate", "is damaged"),
        (other("key", b"\x30\x82"), "zookeeper-key", "holds no key; give it as PEM"),
        (foreign_key, "zookeeper-key", "is the key of another certificate"),
        (locked_key, "zookeeper-key", "needs a password; give a key without one"),
    ],
)
def test_files_that_are_not_as_they_should_be(
    tmp_path: Path, change: Callable[[Files], None], setting: str, why: str
) -> None:
    files = Authority().issue(tmp_path)
    change(files)

    with pytest.raises(SettingError, match=why) as caught:
        TlsFiles(*files).context()
    assert caught.value.setting == setting
    if all(file.exists() for file in files):
        with pytest.raises(SettingError, match=why) as caught:
            texts(files).context()
        assert caught.value.setting == setting


def test_a_certificate_and_its_key_go_together(tmp_path: Path) -> None:
    files = Authority().issue(tmp_path)
    with pytest.raises(SettingError, match="zookeeper-key: is missing"):
        TlsFiles(files.authority, files.certificate).context()
    with pytest.raises(SettingError, match="zookeeper-certificate: is missing"):
        TlsFiles(files.authority, key=files.key).context()


def test_keys_are_not_shown(tmp_path: Path) -> None:
    assert repr(texts(Authority().issue(tmp_path))) == "TlsTexts()"


def test_what_has_been_decrypted_can_be_read_at_once(tmp_path: Path) -> None:
    """Two answers may come in one piece; who waits at the socket for the second one waits in vain."""
    files, failures = Authority().issue(tmp_path), list[str]()
    answering = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    answering.load_cert_chain(files.certificate, files.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with answering.wrap_socket(listening.accept()[0], server_side=True) as peer:
                peer.sendall(b"onetwo")
                peer.recv(1)  # until the other side has gone

        server = threading.Thread(target=answer)
        server.start()
        handler = TlsHandler(TlsFiles(*files), failures.append)
        with handler.create_connection(listening.getsockname(), "127.0.0.1", 30.0) as connection:
            assert handler.select([connection], [], [], 30.0)[0] == [connection]
            assert connection.recv(3) == b"one"
            quiet = socket.socketpair()
            assert handler.select([quiet[0], connection], [], [], 30.0) == ([connection], [], [])
            assert connection.recv(3) == b"two"
            assert handler.select([connection], [], [], 0.0) == ([], [], [])
            for each in quiet:
                each.close()
        server.join()
    assert failures == []

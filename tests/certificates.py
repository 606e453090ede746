"""Certificates of authorities that the tests make for themselves, as files."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["Authority", "Files", "write_key"]

_DAY = datetime.timedelta(days=1)
_PKCS8 = serialization.PrivateFormat.PKCS8


class Files(NamedTuple):
    """Files of somebody, in the form PEM, under the names that cert-manager gives them in a Secret."""

    authority: Path
    certificate: Path
    key: Path


def write_key(path: Path, key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> None:
    """Write a private key, encrypted if there is a password."""
    how = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, _PKCS8, how))


class Authority:
    """Signs certificates of its own."""

    def __init__(self, name: str = "authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        unsigned = self._unsigned(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=0))
        self.certificate = unsigned.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, folder: Path, name: str = "somebody", address: str = "127.0.0.1", days: int = 2) -> Files:
        """Write a new certificate into a folder, with its key and the authority's; what was there is replaced.

        Args:
            folder: where to.
            name: whose it is.
            address: at which server it is valid: a name, or an IP address.
            days: until it ends; negative: it has ended.
        """
        folder.mkdir(parents=True, exist_ok=True)
        files = Files(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        unsigned = self._unsigned(subject, key.public_key(), x509.BasicConstraints(ca=False, path_length=None), days)
        unsigned = unsigned.add_extension(x509.SubjectAlternativeName([_general(address)]), critical=False)
        signed = unsigned.sign(self._key, hashes.SHA256())
        files.authority.write_bytes(self.certificate)
        files.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        write_key(files.key, key)
        return files

    def _unsigned(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, kind: x509.BasicConstraints, days: int = 2
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(kind, critical=True)
        )


def _general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)

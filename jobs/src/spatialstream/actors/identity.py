"""The certificate by which driver and actors of one job know each other, and encrypt what they say.

A job makes one when it begins, for itself alone: all of its processes show it, and trust nothing else. The key goes to
the actors with their specification, which Spark encrypts. What stays on one machine is not encrypted: loopback is read
by nobody who could not read the memory too, and the secret keeps others out.
"""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["NAME", "is_loopback", "new_identity"]

NAME = "spatialstream"
"""Whom certificates are of; addresses come and go."""

_DAYS = 3650
"""A job may run for long, and has no other certificate."""


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def new_identity() -> tuple[bytes, bytes]:
    """A certificate that is signed by itself, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)  # clocks of machines differ
        .not_valid_after(now + _DAYS * day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private

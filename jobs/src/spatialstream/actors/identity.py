"""The certificate with which driver and actors of one job authenticate each other and encrypt their traffic.

A job creates one when it starts, for itself alone: all its processes present it, and trust nothing else. Actors get the
key with their specification, which Spark encrypts. Traffic within one machine is not encrypted: anyone who can read
loopback traffic can read the memory too, and the secret keeps others out.
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
"""The subject of certificates; addresses come and go."""

_DAYS = 3650
"""Validity. A job may run for long, and never gets another certificate."""


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def new_identity() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key, as PEM."""
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

"""Certificates in the form in which servers of Java read them: stores of the type PEM."""

from __future__ import annotations

from pathlib import Path

from spatialstream.connectors.disk import private_file
from spatialstream.store.tls import TlsFiles

__all__ = ["write_stores"]


def write_stores(folder: Path, tls: TlsFiles) -> None:
    """Write ``server.pem``, the server's own key and certificate, and ``clients.pem``, the authority of its clients."""
    pair = [Path(path).read_bytes() for path in (tls.key, tls.certificate) if path is not None]
    private_file(folder / "server.pem", b"\n".join(pair))
    (folder / "clients.pem").write_bytes(Path(tls.authority).read_bytes())

"""etcd and the API server of Kubernetes, without nodes: what they accept, refuse and keep is the real thing.

There is no kubelet, no scheduler and no controller: pods stay as they were made until a test says what has become of
them, and nothing is collected as garbage.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spatialstream.servers.ports import HOST, free_port
from spatialstream.servers.process import Server
from tests.api.client import Api, RefusalError

__all__ = ["ADMIN", "ApiServer", "Etcd", "binary"]

ADMIN = "token-of-the-admin"
BINARIES = "SPATIALSTREAM_KUBE_BIN"


def binary(name: str) -> Path:
    """Where a program is: in the folder that SPATIALSTREAM_KUBE_BIN names, or else on the PATH."""
    folder = os.environ.get(BINARIES)
    found = shutil.which(name, path=folder or None)
    if found is None:
        pytest.fail(
            f"{name} is not {f'in {folder}' if folder else 'on the PATH'}. The tests of tests/api need etcd and"
            " kube-apiserver (1.31 or newer), as Kubernetes and etcd release them: put both on the PATH, or name their"
            f" folder in {BINARIES}.",
            pytrace=False,
        )
    return Path(found)


class Etcd(Server):
    """One etcd, which may forget everything in a crash."""

    name: ClassVar[str] = "etcd"

    @property
    def url(self) -> str:
        """What clients connect to."""
        return f"http://{HOST}:{self.port}"

    def _configure(self) -> None:
        if not hasattr(self, "_peers"):
            self._peers = f"http://{HOST}:{free_port()}"

    def _command(self) -> list[str]:
        return [
            str(binary("etcd")),
            f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={self._peers}",
            f"--initial-advertise-peer-urls={self._peers}",
            f"--initial-cluster=default={self._peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return Api(self.url).get("/health").get("health") == "true"
        return False


class ApiServer(Server):
    """The API server, with a certificate of its own making; tokens are how clients say who they are.

    Args:
        folder: for its files.
        etcd: where it keeps what it is told.
    """

    name: ClassVar[str] = "kube-apiserver"

    def __init__(self, folder: Path, etcd: Etcd) -> None:
        super().__init__(folder)
        self._etcd = etcd

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://{HOST}:{self.port}"

    @property
    def certificate(self) -> Path:
        """What a client trusts."""
        return self.folder / "certificates" / "apiserver.crt"

    def as_admin(self) -> Api:
        """A client that may do everything."""
        return self.with_token(ADMIN)

    def with_token(self, token: str) -> Api:
        """A client of whoever has the token."""
        return Api(self.url, token, ssl.create_default_context(cafile=str(self.certificate)))

    def kubeconfig(self, token: str) -> dict[str, Any]:
        """What makes a client of whoever has the token."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        return {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "clusters": [{"name": "it", "cluster": cluster}],
        }

    def _configure(self) -> None:
        (self.folder / "tokens.csv").write_text(f"{ADMIN},admin,admin,system:masters\n")
        key = self.folder / "accounts.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)

    def _command(self) -> list[str]:
        key = self.folder / "accounts.key"
        return [
            str(binary("kube-apiserver")),
            f"--etcd-servers={self._etcd.url}",
            f"--bind-address={HOST}",
            f"--advertise-address={HOST}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.certificate.parent}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--service-account-issuer={self.url}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=RBAC",
            f"--audit-policy-file={self._audited()}",
            f"--audit-log-path={self.audit}",
            "--audit-log-mode=blocking",
        ]

    @property
    def audit(self) -> Path:
        """The log of the requests that have changed, or were to change, something: a JSON object a line."""
        return self.folder / "audit.log"

    def _audited(self) -> Path:
        policy = self.folder / "audit.yaml"
        policy.write_text(
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
            "  - {level: None, verbs: [get, list, watch]}\n  - {level: None, users: ['system:apiserver']}\n"
            "  - {level: Metadata}\n"
        )
        return policy

    def answers(self) -> bool:
        with contextlib.suppress(OSError, RefusalError):
            self.as_admin().text("/readyz")
            self.as_admin().get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")  # made after it is ready
            return True
        return False

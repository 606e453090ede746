"""The routing stores of the streams: one ZooKeeper connection per stream, opened when it is first needed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import dataclass, field

from spatialstream.model.errors import SettingError
from spatialstream.model.secret_rule import SecretRule
from spatialstream.store.base import RoutingStore
from spatialstream.store.tls import TlsTexts
from spatialstream.store.zookeeper import ZooKeeperStore
from spatialstream_operator.cluster import ApiError, Cluster
from spatialstream_operator.spec import SecretKey, TlsSecret

__all__ = ["Stores"]


@dataclass(slots=True)
class _Open:
    key: str
    store: RoutingStore


@dataclass(slots=True)
class Stores:
    """Connections by stream.

    Attributes:
        cluster: client of the cluster, to read Secrets with credentials.
        rule: which of them streams may use.
    """

    cluster: Cluster
    rule: SecretRule = field(default_factory=SecretRule)
    _open: dict[str, _Open] = field(default_factory=dict)

    async def of(
        self, stream: str, servers: str, namespace: str, secret: SecretKey | None, tls: TlsSecret | None = None
    ) -> RoutingStore:
        """The store of a stream; reconnects if addresses or secrets have changed.

        Args:
            stream: its name in ZooKeeper.
            servers: ``host:port,...``.
            namespace: namespace of the Secrets.
            secret: key with ``user:password``; None: no credentials.
            tls: Secret with certificates; None: connections are not encrypted.

        Raises:
            SettingError: a Secret is missing, unreadable or invalid.
        """
        credentials = None if secret is None else await self._credentials(namespace, secret)
        where = "spec.zookeeper.tlsSecret"
        certificates = {} if tls is None else await self._secret(where, namespace, tls.name)
        given = servers, credentials, tls, sorted(certificates.items())
        key = hashlib.sha256(repr(given).encode()).hexdigest()
        known = self._open.get(stream)
        if known is not None and known.key == key:
            return known.store
        texts = None if tls is None else TlsTexts.of_secret(certificates, tls.certified, where, tls.name)
        await self.close(stream)
        store = ZooKeeperStore(servers, stream, credentials=credentials, tls=texts)
        self._open[stream] = _Open(key, store)
        return store

    def known(self, stream: str) -> RoutingStore | None:
        """The open store of a stream, with its last arguments; None if there is none."""
        found = self._open.get(stream)
        return None if found is None else found.store

    async def close(self, stream: str) -> None:
        """Close a stream's connection."""
        known = self._open.pop(stream, None)
        if known is not None:
            await asyncio.to_thread(known.store.close)

    async def close_all(self) -> None:
        """Close all connections."""
        await self.leave(None)

    async def leave(self, namespace: str | None) -> None:
        """Close the connections of a namespace's streams (None: of all streams)."""
        for stream in list(self._open):
            if namespace is None or stream.startswith(f"{namespace}."):  # a namespace contains no dot
                await self.close(stream)

    async def _credentials(self, namespace: str, secret: SecretKey) -> tuple[str, str]:
        where, name, key = "spec.zookeeper.credentialsSecret", secret.name, secret.key
        data = await self._secret(where, namespace, name)
        if key not in data:
            raise SettingError(where, f"the Secret {name} has no key {key}")
        user, colon, password = data[key].decode(errors="replace").strip().partition(":")
        if not (user and colon and password):
            raise SettingError(where, f"the key {key} of the Secret {name} has to hold user:password")
        return user, password

    async def _secret(self, where: str, namespace: str, name: str) -> dict[str, bytes]:
        try:
            secret = await self.cluster.get("Secret", name, namespace)
        except ApiError as error:
            if error.is_refusal:
                raise SettingError(where, f"the operator may not read the Secret {name}") from None
            raise
        if secret is None:
            raise SettingError(where, f"there is no Secret {name} in the namespace {namespace}")
        problem = self.rule.problem(name, secret["metadata"].get("labels"))
        if problem is not None:
            raise SettingError(where, problem)
        return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}

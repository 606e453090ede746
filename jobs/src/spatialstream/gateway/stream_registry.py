"""Registry of the streams of a Kubernetes cluster: new SpatialStreams are served, deleted ones no longer.

SpatialStreams are listed every few seconds and compared with the streams served. Lists come from the API server's
memory, so a watch would save little, and listing needs only one right. The secrets that a stream names are read by
name, if the gateway's account may and they are for streams; a stream whose secrets cannot be read is not served, and
does not affect others.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from spatialstream.gateway.api_server import ApiServer, Refused
from spatialstream.gateway.streams import ServedStream
from spatialstream.model.addresses import servers_from_outside
from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.model.secret_rule import SecretRule

__all__ = ["Place", "StreamRegistry"]

Serve = Callable[[ServedStream], object]
Leave = Callable[[str], object]


@dataclass(frozen=True)
class Place:
    """Addresses and secrets of a stream; a change of any of them means that the stream is opened again.

    Attributes:
        name: the stream's name in Kafka and ZooKeeper: ``NAMESPACE.NAME``.
        uid: uid of the SpatialStream, which differs if it is recreated under its name.
        bootstrap: addresses of the broker.
        topics: names of topics that are not called STREAM.KIND, by kind.
        zookeeper: addresses of ZooKeeper, ``host:port,...``.
        security: files of the broker's secret by name, and the name of the one with the properties; not shown.
        credentials: user and password of ZooKeeper; not shown.
        certificates: for TLS to ZooKeeper, the secret's files by name, the secret's name, and whether it has a client
            certificate; None: no encryption; not shown.
    """

    name: str
    uid: str
    bootstrap: str
    topics: Mapping[str, str]
    zookeeper: str
    security: tuple[Mapping[str, str], str] | None = field(default=None, repr=False)
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    certificates: tuple[Mapping[str, str], str, bool] | None = field(default=None, repr=False)

    def text_of(self, path: PurePath) -> str:
        """Return a file of the broker's secret; only the name of the path counts, wherever the stream's pods mount it.

        Raises:
            SettingError: the secret has no such key.
        """
        files = self.security[0] if self.security is not None else {}
        if path.name not in files:
            raise SettingError("kafka.securitySecret", f"the secret has no key {path.name}")
        return files[path.name]


class StreamRegistry:
    """Lists the streams of some namespaces.

    Args:
        cluster: the API server.
        opened: makes a stream from its place. May raise SettingError.
        namespaces: namespaces whose streams are served; empty: all.
        report: called with the reason why streams cannot be listed, or a stream not be served, when it arises or
            changes.
        rule: which Secrets streams may use.
        every: seconds between two lists.

    Attributes:
        ready: whether all namespaces have been listed at least once.
        unserved: reasons why streams are not served, by name.
    """

    def __init__(
        self,
        cluster: ApiServer,
        opened: Callable[[Place], ServedStream],
        namespaces: Sequence[str] = (),
        report: Callable[[str], object] = lambda text: None,
        rule: SecretRule | None = None,
        every: float = 10.0,
    ) -> None:
        self._every = every
        self._rule = SecretRule() if rule is None else rule
        self._cluster, self._opened, self._namespaces, self._report = cluster, opened, list(namespaces), report
        self._served: dict[str, Place] = {}
        self._reported: dict[str, str] = {}
        self._listed: set[str] = set()
        self.unserved: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        """See the class."""
        return self._listed >= set(self._namespaces or [""])

    async def keep(self, serve: Serve, leave: Leave) -> None:
        """Keep the streams served in step with the cluster, until cancelled.

        Args:
            serve: starts to serve a stream whose name is not served yet.
            leave: stops serving the stream of a name.
        """
        while True:
            for namespace in self._namespaces or [""]:
                await self._look(namespace, serve, leave)
            await asyncio.sleep(self._every)

    async def _look(self, namespace: str, serve: Serve, leave: Leave) -> None:
        where = namespace or "all namespaces"
        try:
            listed = await self._list(namespace)
        except Unavailable as error:  # keep the known streams, which may well be unchanged
            self._tell(where, f"streams cannot be listed: {error}")
            return
        self._tell(where, "")
        self._listed.add(namespace)
        for name in [*self._served, *self.unserved]:
            if name not in listed and (not namespace or name.startswith(f"{namespace}.")):
                self._drop(name, leave)
                self.unserved.pop(name, None)
                self._reported.pop(name, None)
        for name, body in listed.items():
            await self._follow(name, body, serve, leave)

    async def _follow(self, name: str, body: Mapping[str, Any], serve: Serve, leave: Leave) -> None:
        """Serve a stream with its current place, unless that is done already."""
        try:
            place = await self._place(name, body)
            if self._served.get(name) != place:
                self._drop(name, leave)
                serve(self._opened(place))
                self._served[name] = place
            self.unserved.pop(name, None)
            self._tell(name, "")
        except (SettingError, Unavailable) as error:
            if isinstance(error, SettingError | Refused):  # the known place is out of date
                self._drop(name, leave)
            if name not in self._served:
                self.unserved[name] = f"{name} is not served: {error}"
            self._tell(name, f"is not served: {error}")

    def _drop(self, name: str, leave: Leave) -> None:
        if self._served.pop(name, None) is not None:
            leave(name)

    def _tell(self, about: str, problem: str) -> None:
        if problem and self._reported.get(about) != problem:
            self._report(f"{about}: {problem}")
        self._reported[about] = problem

    # ------------------------------------------------------------------------------------------------------ requests

    async def _list(self, namespace: str) -> dict[str, dict[str, Any]]:
        place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        # 0: from the server's memory, in a single answer
        path = f"/apis/spatialstream.dev/v1alpha1{place}/spatialstreams?resourceVersion=0"
        items = (await self._cluster.get(path))["items"]
        return {f"{each['metadata']['namespace']}.{each['metadata']['name']}": each for each in items}

    async def _place(self, name: str, body: Mapping[str, Any]) -> Place:
        namespace, spec = body["metadata"]["namespace"], body["spec"]
        kafka, zookeeper = spec["kafka"], spec["zookeeper"]
        security, credentials = kafka.get("securitySecret"), zookeeper.get("credentialsSecret")
        files = None
        if security is not None:
            held = await self._secret("kafka.securitySecret", namespace, security["name"])
            files = held, security.get("key", "kafka.properties")
        login = None
        if credentials is not None:
            key, where = credentials.get("key", "credentials"), "zookeeper.credentialsSecret"
            kept = await self._secret(where, namespace, credentials["name"])
            user, colon, password = kept.get(key, "").strip().partition(":")
            if not (user and colon and password):
                problem = f"the key {key} of the Secret {credentials['name']} must hold user:password"
                raise SettingError(where, problem)
            login = user, password
        certificates = None
        if (tls := zookeeper.get("tlsSecret")) is not None:
            held = await self._secret("zookeeper.tlsSecret", namespace, tls["name"])
            certificates = held, tls["name"], tls.get("clientCertificate", True)
        return Place(
            name,
            body["metadata"]["uid"],
            servers_from_outside(kafka["bootstrapServers"], namespace),
            kafka.get("topics") or {},
            servers_from_outside(zookeeper["servers"], namespace),
            files,
            login,
            certificates,
        )

    async def _secret(self, where: str, namespace: str, name: str) -> dict[str, str]:
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets/{quote(name, safe='')}"
        try:
            secret = await self._cluster.get(path)
        except Refused as error:
            raise Refused(f"its Secret {name} cannot be read: {error}", error.code) from None
        # the creator of a SpatialStream names the broker, which sees the content of the Secret
        problem = self._rule.problem(name, (secret.get("metadata") or {}).get("labels"))
        if problem is not None:
            raise SettingError(where, problem)
        data = secret.get("data") or {}
        return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}

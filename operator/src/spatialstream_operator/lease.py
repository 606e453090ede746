"""The lease that lets one operator of an installation act at a time.

Whoever holds the Lease renews it every few seconds. Another operator waits until it is released, or has not been
renewed for its duration. The holder that could not renew for that long ends at once: it can not know that it is still
alone. Nothing is lost if two should ever overlap, for every change that the operator makes is checked where it is made:
pods have fixed names, routing versions are published by compare-and-set. The lease saves them from working against each
other.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime

from spatialstream_operator.cluster import Cluster, ClusterError, Object

__all__ = ["Lease", "account_of"]

_log = logging.getLogger(__name__)


def account_of(token: str) -> Object | None:
    """A reference to the service account that a token is of, as it says itself; None if it is of none.

    The account is installed and removed with the operator, and lasts for as long as it is installed. So it is what a
    Lease should go with: its pods come and go, and one that is lost may be at work when it is off the list.
    """
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        account = claims["kubernetes.io"]["serviceaccount"]
        return {"apiVersion": "v1", "kind": "ServiceAccount", "name": str(account["name"]), "uid": str(account["uid"])}
    except (IndexError, KeyError, TypeError, ValueError):
        return None


class Lease:
    """A claim on the right to act.

    Args:
        cluster: the cluster.
        name: of the Lease object.
        namespace: of the Lease object.
        holder: who claims it: the pod's name.
        duration: seconds after which a lease that is not renewed is free.
        owner: reference to what the Lease object goes with; None: it stays.
        clock: seconds of this machine's clock that never goes back.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        namespace: str,
        holder: str,
        duration: float = 30.0,
        owner: Object | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._name, self._namespace, self._holder = cluster, name, namespace, holder
        self._duration, self._owner, self._clock = duration, owner, clock
        self._seen: tuple[str, float] | None = None
        self._renewed = 0.0

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        said = ""
        while True:
            holder = await self._attempt()
            if holder == self._holder:
                _log.info("holding the lease %s/%s", self._namespace, self._name)
                return
            if holder != said:
                said = holder
                _log.info(
                    "waiting for the lease %s/%s, which %s holds", self._namespace, self._name, holder or "nobody"
                )
            await asyncio.sleep(self._duration / 10)

    async def keep(self) -> None:
        """Renew the lease for as long as that succeeds; returns when it is lost, before another one can have it."""
        while (left := self._renewed + self._duration * 2 / 3 - self._clock()) > 0.0:
            await asyncio.sleep(min(self._duration / 6, left))
            try:
                async with asyncio.timeout(self._duration / 6):  # an answer that does not come is none
                    holder = await self._attempt()
            except TimeoutError:
                continue
            if holder not in (self._holder, ""):
                _log.error("the lease has been taken by %s", holder)
                return
        _log.error("the lease could not be renewed for %.0f s", self._clock() - self._renewed)

    async def release(self) -> None:
        """Let another one have it at once."""
        try:
            while (lease := await self._read()) is not None and lease["spec"].get("holderIdentity") == self._holder:
                lease["spec"]["holderIdentity"] = ""
                if await self._cluster.replace(lease):  # else a renewal that was given up has taken effect meanwhile
                    return
        except ClusterError as error:
            _log.warning("the lease could not be released: %s", error)

    async def _read(self) -> Object | None:
        return await self._cluster.get("Lease", self._name, self._namespace)

    async def _attempt(self) -> str:
        """Take or renew the lease if it may be; who holds it then, "" if that is unknown."""
        began = self._clock()
        try:
            lease = await self._read()
            if lease is None:
                taken = await self._cluster.create(self._record(None))
            elif not self._is_free(lease):
                return str(lease["spec"]["holderIdentity"])
            else:
                taken = await self._cluster.replace(self._record(lease))
        except Exception as error:  # noqa: BLE001 (an API that fails in any way is one more attempt that failed)
            _log.warning("the lease cannot be looked at: %s", error)
            return ""
        if not taken:
            return ""
        self._renewed = began
        return self._holder

    def _is_free(self, lease: Object) -> bool:
        """Whether it is ours, nobody's, or has not been renewed for its duration as seen by our own clock."""
        spec = lease["spec"]
        if spec.get("holderIdentity") in (self._holder, "", None):
            return True
        version = lease["metadata"]["resourceVersion"]
        if self._seen is None or self._seen[0] != version:
            self._seen = version, self._clock()
        return self._clock() - self._seen[1] > self._duration

    def _record(self, lease: Object | None) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = {} if lease is None else lease["spec"]
        ours = before.get("holderIdentity") == self._holder
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": math.ceil(self._duration),
            "renewTime": now,
            "acquireTime": before["acquireTime"] if ours else now,
            "leaseTransitions": before.get("leaseTransitions", 0) + (0 if ours else 1),
        }
        metadata = {"name": self._name, "namespace": self._namespace} if lease is None else lease["metadata"]
        if lease is None and self._owner is not None:  # some clusters let only those change it later who may delete it
            metadata["ownerReferences"] = [self._owner]
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

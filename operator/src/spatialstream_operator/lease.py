"""Leader election: the lease that lets only one operator of an installation act at a time.

The holder renews the Lease every few seconds. Another operator waits until it is released, or has not been renewed for
its duration. A holder that cannot renew it exits before that, because it could no longer know that it is the only one.
Even if two operators should overlap, nothing is lost, because every change is guarded: pods have fixed names, routing
versions are published by compare-and-set. The lease keeps them from working against each other.
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
    """An owner reference to the service account in a token's claims; None if there is none.

    The account is installed and removed with the operator, so it is the right owner of the Lease. Pods are not: they
    are replaced, and a pod on a lost node may still be running after it was force-deleted.
    """
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        account = claims["kubernetes.io"]["serviceaccount"]
        return {"apiVersion": "v1", "kind": "ServiceAccount", "name": str(account["name"]), "uid": str(account["uid"])}
    except (IndexError, KeyError, TypeError, ValueError):
        return None


class Lease:
    """A leader election lease.

    Args:
        cluster: client of the cluster.
        name: name of the Lease object.
        namespace: namespace of the Lease object.
        holder: identity of this candidate: the pod's name.
        duration: seconds after which a lease that is not renewed is free.
        owner: owner reference for the Lease object; None: none.
        clock: a monotonic clock, in seconds.
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
        """Wait until this process holds the lease."""
        reported = ""
        while True:
            holder = await self._attempt()
            if holder == self._holder:
                _log.info("holding the lease %s/%s", self._namespace, self._name)
                return
            if holder != reported:
                reported = holder
                _log.info(
                    "waiting for the lease %s/%s, which %s holds", self._namespace, self._name, holder or "nobody"
                )
            await asyncio.sleep(self._duration / 10)

    async def keep(self) -> None:
        """Renew the lease while that succeeds; returns when it is lost, before another candidate can acquire it."""
        while (left := self._renewed + self._duration * 2 / 3 - self._clock()) > 0.0:
            await asyncio.sleep(min(self._duration / 6, left))
            try:
                async with asyncio.timeout(self._duration / 6):  # a late response counts as a failed attempt
                    holder = await self._attempt()
            except TimeoutError:
                continue
            if holder not in (self._holder, ""):
                _log.error("%s has taken the lease", holder)
                return
        _log.error("the lease could not be renewed for %.0f s", self._clock() - self._renewed)

    async def release(self) -> None:
        """Release the lease, so that another candidate can acquire it at once."""
        try:
            while (lease := await self._read()) is not None and lease["spec"].get("holderIdentity") == self._holder:
                lease["spec"]["holderIdentity"] = ""
                if await self._cluster.replace(lease):  # otherwise a timed-out renewal took effect in between
                    return
        except ClusterError as error:
            _log.warning("the lease could not be released: %s", error)

    async def _read(self) -> Object | None:
        return await self._cluster.get("Lease", self._name, self._namespace)

    async def _attempt(self) -> str:
        """Acquire or renew the lease if possible; return its holder, "" if unknown."""
        began = self._clock()
        try:
            lease = await self._read()
            if lease is None:
                acquired = await self._cluster.create(self._record(None))
            elif not self._is_free(lease):
                return str(lease["spec"]["holderIdentity"])
            else:
                acquired = await self._cluster.replace(self._record(lease))
        except Exception as error:  # noqa: BLE001 (any failure of the API is a failed attempt)
            _log.warning("cannot read or renew the lease: %s", error)
            return ""
        if not acquired:
            return ""
        self._renewed = began
        return self._holder

    def _is_free(self, lease: Object) -> bool:
        """Whether the lease is ours, has no holder, or was not renewed for its duration by our own clock."""
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
        if (
            lease is None and self._owner is not None
        ):  # only at creation: some clusters require the permission to delete the owner for later changes
            metadata["ownerReferences"] = [self._owner]
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

"""A resource that belongs to a stream, during one reconciliation: what SpatialQuery and SpatialArea have in common.

The gateway of the stream is sent what the resource specifies, and it is withdrawn when the resource is deleted. What is
sent is written to the status before. A stream that does not exist, is suspended or cannot be reached, and a request
that the gateway refuses, become the condition of the resource, under the same reasons for each kind.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream_operator.cluster import Object
from spatialstream_operator.context import changes, emit
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import condition
from spatialstream_operator.decisions.known_fields import check_fields
from spatialstream_operator.decisions.registration import NO_GATEWAY, NO_STREAM, hindrance, news
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway, Refusal
from spatialstream_operator.loop import Loop
from spatialstream_operator.names import KIND, StreamNames
from spatialstream_operator.steps.removing import SKIP_ANNOTATION

__all__ = ["ResourceController", "StreamResource"]


@dataclass(slots=True)
class StreamResource(ABC):
    """A resource of one kind, and its status.

    Attributes:
        environment: shared clients and settings.
        body: the resource.
        status: its status, including what has been written in this reconciliation.
    """

    kind: ClassVar[str]
    condition_type: ClassVar[str]
    """Type of the condition that says whether the stream has what the resource specifies."""
    refusals: ClassVar[Mapping[int, str]]
    """Reason of the condition by the HTTP status of a refusal; of any other status it is Refused."""
    withdrawing: ClassVar[str]
    """Reason of the condition while the resource is being deleted."""

    environment: Environment
    body: Object
    status: Object

    @classmethod
    def open(cls, environment: Environment, body: Object) -> Self:
        """The resource as it is when a reconciliation begins."""
        return cls(environment, body, copy.deepcopy(body.get("status") or {}))

    @property
    def stream(self) -> str:
        """Name of the SpatialStream."""
        return records.text(self.body["spec"], "stream")

    @property
    def served(self) -> str:
        """Name of the stream in ZooKeeper and Kafka, under which the gateway serves it."""
        return StreamNames(self.body["metadata"]["namespace"], self.stream).stream

    @property
    @abstractmethod
    def confirmed(self) -> bool:
        """Whether the stream has confirmed what the resource specifies, as far as is known."""

    @property
    @abstractmethod
    def sent(self) -> bool:
        """Whether the stream may have anything of this resource."""

    @abstractmethod
    async def apply(self, gateway: Gateway, uid: str) -> Verdict:
        """Send what the resource specifies; return the condition.

        Args:
            gateway: of the stream.
            uid: of the SpatialStream.

        Raises:
            Unavailable: the stream cannot be reached for now.
            Refusal: the gateway refuses it.
        """

    @abstractmethod
    async def withdraw(self, gateway: Gateway) -> str:
        """Withdraw all of it; return what is still to be waited for, "" if nothing is. Raises as :meth:`apply`."""

    @abstractmethod
    async def keep_refused(self, reason: str) -> str:
        """Update the status after a refusal; return what the stream still has, as an addition to the message."""

    @abstractmethod
    def is_uncertain(self, reason: str) -> bool:
        """Whether after a refusal the stream may still have what the resource specifies."""

    @abstractmethod
    def pause(self, verdict: Verdict) -> float:
        """Reconciliation intervals until the next reconciliation."""

    @abstractmethod
    async def lose_stream(self) -> None:
        """Update the status: the stream is gone, and with it all that it had of this resource."""

    async def reconcile(self) -> Verdict:
        """Make the stream have what the resource specifies, if that is possible; return the condition."""
        gateway, stream = self.environment.gateway, await self._found_stream()
        hindered = hindrance(self.stream, stream, gateway is not None, self.confirmed)
        if hindered is not None and hindered.reason in NO_STREAM:
            await self.lose_stream()
            if self.sent:  # the status says that it is gone with the stream, and not that it is still registered
                return hindered
        try:
            check_fields(self.kind, self.body)
        except SettingError as error:
            return await self._refused("Refused", str(error))
        if hindered is not None:
            return hindered
        assert stream is not None  # hindrance() returns a verdict without a stream or a gateway
        assert gateway is not None
        try:
            return await self.apply(gateway, stream["metadata"]["uid"])
        except Unavailable as error:
            return Verdict("Unknown" if self.confirmed else "False", "Unavailable", f"{str(error).rstrip('.')}.")
        except Refusal as refusal:
            return await self._refused(self.refusals.get(refusal.status, "Refused"), refusal.detail)

    async def _refused(self, reason: str, detail: str) -> Verdict:
        """The condition after a refusal."""
        text = f"{detail.rstrip('.')}{await self.keep_refused(reason)}"
        ended = text if text.endswith("?") else f"{text}."
        return Verdict("Unknown" if self.is_uncertain(reason) else "False", reason, ended)

    async def remove(self) -> bool:
        """Continue the removal of the resource, which is being deleted; True when the stream has nothing of it.

        What a stream has ends with the stream.

        Raises:
            ClusterError: the API server does not respond.
        """
        if (self.body["metadata"].get("annotations") or {}).get(SKIP_ANNOTATION) == "true":
            return True
        stream = await self._found_stream()
        if stream is None or stream["metadata"].get("deletionTimestamp") or not self.sent:
            return True
        if not (problem := await self._withdrawn()):
            return True
        await self.say(Verdict("Unknown", self.withdrawing, f"{problem.rstrip('.')}."))
        return False

    async def _withdrawn(self) -> str:
        """Withdraw it; return why that is not done yet, "" if it is."""
        if self.environment.gateway is None:
            return NO_GATEWAY
        try:
            return await self.withdraw(self.environment.gateway)
        except Unavailable as error:
            return str(error)
        except Refusal as refusal:
            return refusal.detail

    async def _found_stream(self) -> Object | None:
        return await self.environment.cluster.get(KIND, self.stream, self.body["metadata"]["namespace"])

    async def say(self, verdict: Verdict, **parts: Any) -> None:
        """Write the condition, with other parts of the status, and create an event if it has changed."""
        generation, before = int(self.body["metadata"].get("generation", 0)), list(self.status.get("conditions") or [])
        known: Object = next((each for each in before if each.get("type") == self.condition_type), {})
        after = condition(self.condition_type, verdict, self.environment.now(), generation, known)
        await self.remember(observedGeneration=after["observedGeneration"], conditions=[after], **parts)
        if (note := news(before, after)) is not None:
            await emit(self.environment, self.body, note)

    async def remember(self, **parts: Any) -> None:
        """Write parts of the status if they differ from what it holds."""
        metadata = self.body["metadata"]
        change, after = changes(self.status, parts)
        if change:
            await self.environment.cluster.patch_status(self.kind, metadata["name"], metadata["namespace"], change)
            self.status = after


class ResourceController(Loop):
    """Reconciles one resource of a stream until it is stopped, or the resource is gone."""

    resource: ClassVar[type[StreamResource]]

    async def reconcile(self) -> float | None:
        """Reconcile the resource once; see :class:`~spatialstream_operator.loop.Loop`."""
        body = await self._environment.cluster.get(self.resource.kind, self._name, self._namespace)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        resource = self.resource.open(self._environment, body)
        verdict = await resource.reconcile()
        await resource.say(verdict)
        self._measure(verdict.status == "True")
        return self._environment.config.interval * resource.pause(verdict)

    @abstractmethod
    def _measure(self, served: bool) -> None:
        """Set the metric that says whether the stream has what the resource specifies."""

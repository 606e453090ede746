"""The reconciliation of one SpatialArea: its stream knows the area for as long as the resource exists.

The stream has the resource as the owner of the area (``sa/NAMESPACE/NAME``), so that it takes over nothing that
somebody else has loaded, and leaves nothing behind. The area's name is written to the status before the area is sent.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from spatialstream.model.areas import RESOURCE
from spatialstream.model.errors import Unavailable
from spatialstream_operator.cluster import Object
from spatialstream_operator.context import changes, emit
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import condition
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.decisions.registration import NO_GATEWAY, hindrance, news
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway, Refusal
from spatialstream_operator.loop import Loop
from spatialstream_operator.names import AREA_KIND, KIND, StreamNames
from spatialstream_operator.steps.removing import SKIP_ANNOTATION

__all__ = ["CONDITION", "AreaController", "remove_area"]

CONDITION = "Loaded"

_STEADY, _REFUSED = 24, 6
"""Reconciliation intervals between two reconciliations of an area that is loaded, and of one that is refused: each
sends the geometry, which the gateway compares with what the stream has."""
_REFUSALS = {401: "NotAllowed", 403: "NotAllowed", 409: "NameInUse"}
_PAUSES = {"Loaded": _STEADY, "Refused": _REFUSED, "NameInUse": _REFUSED}
_NOTHING: dict[str, Any] = {"area": None, "revision": None, "vertices": None, "digest": None}
"""The status of an area that the stream does not have of this resource."""


class AreaController(Loop):
    """Reconciles one SpatialArea until it is stopped, or the resource is gone."""

    def begun(self) -> None:
        """Begin the metric of the area."""
        self._environment.metrics.area_loaded.labels(self._namespace, self._name)

    def _count(self, outcome: str, seconds: float) -> None:
        """Nothing is counted: whether the area is loaded is a metric."""

    async def look(self) -> float | None:
        """Reconcile the area once; see :class:`~spatialstream_operator.loop.Loop`."""
        environment = self._environment
        body = await environment.cluster.get(AREA_KIND, self._name, self._namespace)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        book = _Book.open(environment, body)
        verdict = await _stand(book)
        await book.say(verdict)
        environment.metrics.area_loaded.labels(self._namespace, self._name).set(verdict.status == "True")
        return environment.config.interval * _PAUSES.get(verdict.reason, 1)


async def remove_area(environment: Environment, body: Object) -> bool:
    """Continue the removal of a SpatialArea; True when its stream does not have the area of it any more.

    Args:
        environment: shared clients and settings.
        body: the resource, which is being deleted.

    Raises:
        ClusterError: the API server does not respond.
    """
    book, metadata = _Book.open(environment, body), body["metadata"]
    if (metadata.get("annotations") or {}).get(SKIP_ANNOTATION) != "true":
        stream = await environment.cluster.get(KIND, book.stream, metadata["namespace"])
        there = stream is not None and not stream["metadata"].get("deletionTimestamp")
        if there and records.text(book.status, "area") and (problem := await _deleted(book)):
            await book.say(Verdict("Unknown", "Deleting", f"{problem.rstrip('.')}."))
            return False
    environment.metrics.end_area(metadata["namespace"], metadata["name"])
    return True


async def _deleted(book: _Book) -> str:
    """Have the stream forget the area; return why that is not possible for now, "" if it is done."""
    if book.environment.gateway is None:
        return NO_GATEWAY
    try:
        await book.environment.gateway.delete_area(book.served, book.name, book.owner)
    except Unavailable as error:
        return str(error)
    except Refusal as refusal:
        return refusal.detail
    return ""


@dataclass(slots=True)
class _Book:
    """The state of one reconciliation of a SpatialArea.

    Attributes:
        environment: shared clients and settings.
        body: the resource.
        status: its status, including what has been written in this reconciliation.
    """

    environment: Environment
    body: Object
    status: Object

    @classmethod
    def open(cls, environment: Environment, body: Object) -> _Book:
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
    def name(self) -> str:
        """Name of the area."""
        return records.text(self.body["spec"], "name") or str(self.body["metadata"]["name"])

    @property
    def owner(self) -> str:
        """The owner of the area, as the stream has it."""
        metadata = self.body["metadata"]
        return f"{RESOURCE}{metadata['namespace']}/{metadata['name']}"

    @property
    def loaded(self) -> bool:
        """Whether the stream has had an area of this resource, of whatever geometry, as far as is known."""
        return records.whole(self.status, "revision") is not None

    async def say(self, verdict: Verdict) -> None:
        """Write the condition, and create an event if it has changed."""
        metadata, before = self.body["metadata"], list(self.status.get("conditions") or [])
        known: Object = next((each for each in before if each.get("type") == CONDITION), {})
        after = condition(CONDITION, verdict, self.environment.now(), int(metadata.get("generation", 0)), known)
        await self.remember(observedGeneration=after["observedGeneration"], conditions=[after])
        if (note := news(before, after)) is not None:
            await emit(self.environment, self.body, note)

    async def remember(self, **parts: Any) -> None:
        """Write parts of the status if they differ from what it holds."""
        metadata = self.body["metadata"]
        change, after = changes(self.status, parts)
        if change:
            await self.environment.cluster.patch_status(AREA_KIND, metadata["name"], metadata["namespace"], change)
            self.status = after


async def _stand(book: _Book) -> Verdict:
    """Have the stream know the area; return the condition."""
    gateway = book.environment.gateway
    stream = await book.environment.cluster.get(KIND, book.stream, book.body["metadata"]["namespace"])
    hindered = hindrance(book.stream, stream, gateway is not None, book.loaded)
    if hindered is not None:
        if hindered.reason in ("NoStream", "StreamDeleted"):
            await book.remember(stream=None, **_NOTHING)
        return hindered
    assert gateway is not None  # hindrance() returns a verdict without one
    try:
        return await _loaded(book, gateway)
    except Unavailable as error:
        return Verdict("Unknown" if book.loaded else "False", "Unavailable", f"{str(error).rstrip('.')}.")
    except Refusal as refusal:
        return await _refused(book, refusal)


async def _loaded(book: _Book, gateway: Gateway) -> Verdict:
    """Send the area; return the condition."""
    await book.remember(area=book.name, stream=book.served)  # stored before it is sent
    kept = await gateway.keep_area(book.served, book.name, book.owner, dict(book.body["spec"]["geometry"]))
    area = kept["area"]
    await book.remember(**{name: area[name] for name in ("revision", "vertices", "digest")})
    if kept["changed"]:
        told = f"Registered queries keep the geometry that {book.name!r} had; `queries refresh` registers them anew."
        await emit(book.environment, book.body, Note("GeometryChanged", told, warning=False))
    return Verdict("True", "Loaded", f"The stream knows the area {book.name!r}, with {area['vertices']} vertices.")


async def _refused(book: _Book, refusal: Refusal) -> Verdict:
    """The condition of an area that the gateway does not take; what it has had before stays."""
    reason = _REFUSALS.get(refusal.status, "Refused")
    if reason == "NameInUse" or not book.loaded:
        await book.remember(**_NOTHING)
    stays = reason == "Refused" and book.loaded
    rest = f"; revision {book.status['revision']} is still loaded" if stays else ""
    unknown = reason == "NotAllowed" and book.loaded
    return Verdict("Unknown" if unknown else "False", reason, f"{refusal.detail.rstrip('.')}{rest}.")

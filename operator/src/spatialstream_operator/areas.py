"""The reconciliation of one SpatialArea: its stream knows the area for as long as the resource exists.

The stream has the resource as the owner of the area (``sa/NAMESPACE/NAME``), so that it takes over nothing that
somebody else has loaded, and leaves nothing behind. The area's name is written to the status before the area is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from spatialstream.model.areas import RESOURCE
from spatialstream_operator.cluster import Object
from spatialstream_operator.context import emit
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.rebalancing_inputs import Note
from spatialstream_operator.environment import Environment
from spatialstream_operator.gateway import Gateway
from spatialstream_operator.names import AREA_KIND
from spatialstream_operator.stream_resource import ResourceController, StreamResource

__all__ = ["CONDITION", "AreaController", "remove_area"]

CONDITION = "Loaded"

_STEADY, _REFUSED = 24, 6
"""Reconciliation intervals between two reconciliations of an area that is loaded, and of one that is refused: each
sends the geometry, which the gateway compares with what the stream has."""
_PAUSES = {"Loaded": _STEADY, "Refused": _REFUSED, "NameInUse": _REFUSED}
_NOTHING: dict[str, Any] = {"area": None, "revision": None, "vertices": None, "digest": None}
"""The status of an area that the stream does not have of this resource."""


class _Area(StreamResource):
    """A SpatialArea."""

    kind = AREA_KIND
    condition_type = CONDITION
    refusals: ClassVar[Mapping[int, str]] = {401: "NotAllowed", 403: "NotAllowed", 409: "NameInUse"}
    withdrawing = "Deleting"

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
    def confirmed(self) -> bool:
        """Whether the stream has had an area of this resource, of whatever geometry, as far as is known."""
        return records.whole(self.status, "revision") is not None

    @property
    def sent(self) -> bool:
        """Whether an area was sent, and not refused."""
        return bool(records.text(self.status, "area"))

    async def apply(self, gateway: Gateway, uid: str) -> Verdict:
        """Send the area; return the condition."""
        await self.remember(area=self.name, stream=self.served)  # stored before it is sent
        kept = await gateway.keep_area(self.served, self.name, self.owner, dict(self.body["spec"]["geometry"]))
        area = kept["area"]
        await self.remember(**{name: area[name] for name in ("revision", "vertices", "digest")})
        if kept["changed"]:
            rest = "`queries refresh` registers them anew."
            text = f"Registered queries keep the geometry that {self.name!r} had; {rest}"
            await emit(self.environment, self.body, Note("GeometryChanged", text, warning=False))
        return Verdict("True", "Loaded", f"The stream knows the area {self.name!r}, with {area['vertices']} vertices.")

    async def withdraw(self, gateway: Gateway) -> str:
        """Delete the area."""
        await gateway.delete_area(self.served, self.name, self.owner)
        return ""

    async def keep_refused(self, reason: str) -> str:
        """Forget an area that somebody else has; what was loaded before is still loaded after other refusals."""
        if reason == "NameInUse" or not self.confirmed:
            await self.remember(**_NOTHING)
        stays = reason == "Refused" and self.confirmed
        return f"; revision {self.status['revision']} is still loaded" if stays else ""

    def is_uncertain(self, reason: str) -> bool:
        """Whether the area may be loaded all the same: the operator was not allowed to send it again."""
        return reason == "NotAllowed" and self.confirmed

    def pause(self, verdict: Verdict) -> float:
        """Longer if nothing is expected to change by itself."""
        return _PAUSES.get(verdict.reason, 1)

    async def lose_stream(self) -> None:
        """Forget the area, which has ended with its stream."""
        await self.remember(stream=None, **_NOTHING)


class AreaController(ResourceController):
    """Reconciles one SpatialArea until it is stopped, or the resource is gone."""

    resource = _Area

    def begun(self) -> None:
        """Begin the metric of the area."""
        self._environment.metrics.area_loaded.labels(self._namespace, self._name)

    def _measure(self, served: bool) -> None:
        self._environment.metrics.area_loaded.labels(self._namespace, self._name).set(served)

    def _count(self, outcome: str, seconds: float) -> None:
        """Nothing is counted: whether the area is loaded is a metric."""


async def remove_area(environment: Environment, body: Object) -> bool:
    """Continue the removal of a SpatialArea; True when its stream does not have the area of it any more.

    See :meth:`~spatialstream_operator.stream_resource.StreamResource.remove`.
    """
    removed = await _Area.open(environment, body).remove()
    if removed:
        environment.metrics.end_area(body["metadata"]["namespace"], body["metadata"]["name"])
    return removed

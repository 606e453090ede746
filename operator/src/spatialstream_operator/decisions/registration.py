"""Whether the continuous query of a SpatialQuery is registered, and which registration to send.

The id of a query is derived from the namespace and name of the resource and from its content: a changed spec is a new
query, and registering the same spec is idempotent. A registration is stored with its time before it is sent. Until its
acceptance is confirmed, it is sent again unchanged; the stream ignores it if it already has it. Only after that may it
get another time: otherwise a query that was cancelled in between would come back with its old time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.lifetimes import endless
from spatialstream.model.times import parse_duration
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.rebalancing_inputs import Note

__all__ = ["NO_GATEWAY", "NO_STREAM", "Registration", "Wish", "hindrance", "news", "next_registration", "registrations"]

NO_GATEWAY = (
    "The operator has no gateway to reach the stream; install the chart with gateway.enabled and "
    "gateway.access.tokenReview."
)

NO_STREAM = frozenset({"NoStream", "StreamDeleted"})
"""Reasons of a condition with which nothing of a resource is left, because its stream does not exist."""

_STREAM = "stream"
_DIGEST = 12
_WARNINGS = frozenset({"Refused", "NotAllowed", "NoGateway", "NameInUse"})
"""Reasons that do not resolve themselves."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The query that a SpatialQuery specifies.

    Attributes:
        stream: name of the SpatialStream.
        id: id of the query.
        record: the query as JSON, without a time.
        by: owner of the registration: the resource, not the operator.
    """

    stream: str
    id: str
    record: Mapping[str, Any]
    by: str

    @classmethod
    def of(cls, namespace: str, name: str, spec: Mapping[str, Any]) -> Wish:
        """Build from a spec.

        >>> Wish.of("geo", "floods", {"stream": "quakes", "type": "CRQ"}).id
        'geo.floods.bcc2f7185d8e'
        >>> Wish.of("geo", "floods", {"stream": "quakes", "type": "CRQ"}).by
        'sq/geo/floods'
        """
        asked = {field: value for field, value in spec.items() if field != _STREAM and value is not None}
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:_DIGEST]
        query = f"{namespace}.{name}.{digest}"  # no namespace has a dot
        return cls(records.text(spec, _STREAM), query, {"id": query, **asked}, f"sq/{namespace}/{name}")

    def end(self, t: int) -> int | None:
        """When it expires if it is registered from time t, in ms; None if a duration of it is invalid."""
        try:
            duration, *others = (
                parse_duration(self.record[field], field) if field in self.record else None
                for field in ("duration", "step", "halfLife")
            )
            return t + (endless(*others) if duration is None else duration)
        except RecordError:
            return None


@dataclass(frozen=True, slots=True)
class Registration:
    """A query that may be registered on behalf of a resource.

    Attributes:
        query: its id.
        t: the time of its registration, in ms of the stream's clock.
        confirmed: whether the stream has confirmed the registration.
    """

    query: str
    t: int
    confirmed: bool = False

    def to_status(self) -> dict[str, Any]:
        """Convert to the form of ``status.registrations``."""
        return {"query": self.query, "t": self.t, "confirmed": self.confirmed}


def registrations(status: Mapping[str, Any]) -> list[Registration]:
    """The registrations in a status."""
    given = status.get("registrations")
    return [
        Registration(name, t, records.flag(each, "confirmed") is True)
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, Mapping)
        and (name := records.text(each, "query"))
        and isinstance(t := each.get("t"), int)  # before 1970 it is negative
    ]


def next_registration(wish: Wish, known: Registration | None, clock: int, same_stream: bool) -> Registration | None:
    """The registration to send for a query that is not registered; None if the query has expired.

    Args:
        wish: the query of the resource.
        known: its stored registration, if any.
        clock: the stream's clock, in ms.
        same_stream: whether that registration was with this stream, not an earlier one of the same name.
    """
    if known is not None and not known.confirmed:
        return known
    if known is not None and same_stream and (end := wish.end(known.t)) is not None and end <= clock:
        return None
    return Registration(wish.id, clock)


def hindrance(name: str, stream: Mapping[str, Any] | None, gateway: bool, registered: bool) -> Verdict | None:
    """The condition of a query whose stream cannot be reached for now; None if it can.

    Args:
        name: name of the SpatialStream.
        stream: the SpatialStream; None if there is none.
        gateway: whether a gateway is configured.
        registered: whether the query was registered according to the last response.
    """
    if stream is None:
        return Verdict("False", "NoStream", f"There is no SpatialStream {name} in this namespace yet.")
    if stream["metadata"].get("deletionTimestamp"):
        return Verdict("False", "StreamDeleted", f"The SpatialStream {name} is being deleted.")
    if records.flag(records.part(stream, "spec"), "suspend"):
        text = f"The SpatialStream {name} is suspended."
        return Verdict("Unknown" if registered else "False", "StreamSuspended", text)
    return None if gateway else Verdict("Unknown" if registered else "False", "NoGateway", NO_GATEWAY)


def news(before: Sequence[Mapping[str, Any]], after: Mapping[str, Any]) -> Note | None:
    """The event for a change of the condition; None if it has not changed, or is or was only temporarily Unknown."""
    last = next((each for each in before if each.get("type") == after["type"]), {})
    if after["status"] == "Unknown" or (last.get("status"), last.get("reason")) == (after["status"], after["reason"]):
        return None
    if after["status"] == "True" and last.get("status") == "Unknown":
        return None
    return Note(after["reason"], after["message"], after["reason"] in _WARNINGS)

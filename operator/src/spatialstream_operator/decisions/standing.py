"""Whether a continuous query stands as its resource says, and what is to be registered that it does.

The id of a query is made of the resource's namespace and name and of what it asks: so another spec is another query,
and whoever registers it, however often, registers the same one. A registration is written down with its time before it
is sent. Until it is known to have been taken in it is sent again as it was, which a stream passes over if it has it
already. Only then may it have another time: a query that has been cancelled since is not there anew with its old one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spatialstream.model.errors import RecordError
from spatialstream.model.queries import endless
from spatialstream.model.times import parse_duration
from spatialstream_operator.decisions import records
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.rebalancing_inputs import Note

__all__ = ["NO_GATEWAY", "Registration", "Wish", "hindrance", "news", "next_registration", "registrations"]

NO_GATEWAY = (
    "The operator has no gateway to register it by; install the chart with gateway.enabled and "
    "gateway.access.tokenReview."
)

_STREAM = "stream"
_DIGEST = 12
_WARNINGS = frozenset({"Refused", "NotAllowed", "NoGateway"})
"""What does not come right by waiting."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a SpatialQuery asks for.

    Attributes:
        stream: name of the SpatialStream.
        id: of the query.
        record: the query as JSON, without a time.
        by: by whom it is registered: the resource, not the operator.
    """

    stream: str
    id: str
    record: Mapping[str, Any]
    by: str

    @classmethod
    def of(cls, namespace: str, name: str, spec: Mapping[str, Any]) -> Wish:
        """What a spec asks for.

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
        """When it ends by itself if it stands from t on, in ms; None if what it asks cannot be read."""
        try:
            step = parse_duration(self.record["step"], "step") if "step" in self.record else None
            return t + (parse_duration(self.record["duration"]) if "duration" in self.record else endless(step))
        except RecordError:
            return None


@dataclass(frozen=True, slots=True)
class Registration:
    """A query that may stand because it was registered for a resource.

    Attributes:
        query: its id.
        t: the time from which it stands, in ms of the stream's clock.
        taken: whether the stream is known to have taken it in.
    """

    query: str
    t: int
    taken: bool = False

    def to_status(self) -> dict[str, Any]:
        """As it stands in ``status.registrations``."""
        return {"query": self.query, "t": self.t, "taken": self.taken}


def registrations(status: Mapping[str, Any]) -> list[Registration]:
    """The registrations in a status."""
    given = status.get("registrations")
    return [
        Registration(name, t, records.flag(each, "taken") is True)
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, Mapping)
        and (name := records.text(each, "query"))
        and isinstance(t := each.get("t"), int)  # before 1970 it is negative
    ]


def next_registration(wish: Wish, known: Registration | None, clock: int, same_stream: bool) -> Registration | None:
    """What is to be sent, now that the query does not stand; None: nothing, its time is over.

    Args:
        wish: what should stand.
        known: its registration so far.
        clock: that of the stream, in ms.
        same_stream: whether the registration was one of this stream, not of one that had its name before.
    """
    if known is not None and not known.taken:
        return known
    if known is not None and same_stream and (end := wish.end(known.t)) is not None and end <= clock:
        return None
    return Registration(wish.id, clock)


def hindrance(name: str, stream: Mapping[str, Any] | None, gateway: bool, stood: bool) -> Verdict | None:
    """What is said of a query whose stream cannot be asked for now; None if it can.

    Args:
        name: of the SpatialStream.
        stream: the SpatialStream; None if there is none.
        gateway: whether there is a gateway to ask it by.
        stood: whether the query stood when it was last asked about.
    """
    if stream is None:
        return Verdict("False", "NoStream", f"There is no SpatialStream {name} in this namespace yet.")
    if stream["metadata"].get("deletionTimestamp"):
        return Verdict("False", "StreamDeleted", f"The SpatialStream {name} is being deleted.")
    if records.flag(records.part(stream, "spec"), "suspend"):
        text = f"The SpatialStream {name} is suspended."
        return Verdict("Unknown" if stood else "False", "StreamSuspended", text)
    return None if gateway else Verdict("Unknown" if stood else "False", "NoGateway", NO_GATEWAY)


def news(before: Sequence[Mapping[str, Any]], after: Mapping[str, Any]) -> Note | None:
    """The event that a change of the condition is worth; what cannot be known for a while is worth none."""
    last = next((each for each in before if each.get("type") == after["type"]), {})
    if after["status"] == "Unknown" or (last.get("status"), last.get("reason")) == (after["status"], after["reason"]):
        return None
    if after["status"] == "True" and last.get("status") == "Unknown":
        return None
    return Note(after["reason"], after["message"], after["reason"] in _WARNINGS)

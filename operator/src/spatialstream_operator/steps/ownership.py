"""Whether an object that has the name of one of the stream's is the stream's: what is somebody else's is left alone."""

from __future__ import annotations

from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions.restarts import Failure
from spatialstream_operator.names import KIND

__all__ = ["hindrance"]


def hindrance(body: Object, found: Object | None, kind: str, name: str) -> Failure | None:
    """Why an object cannot be made or changed for a stream; None if it can.

    Args:
        body: the SpatialStream.
        found: the object that has the name; None if there is none.
        kind: of the object.
        name: of the object.
    """
    if found is None:
        return None
    owners = found["metadata"].get("ownerReferences") or []
    if any(each["uid"] == body["metadata"]["uid"] for each in owners):
        return None
    if any((each["kind"], each["name"]) == (KIND, body["metadata"]["name"]) for each in owners):
        text = f"The {kind} {name} of the SpatialStream that had this name before is still there."
        return Failure("LeftoverFound", text)
    text = f"The {kind} {name} does not belong to this stream. Remove it, or give the stream another name."
    return Failure("NameTaken", text, "slow")

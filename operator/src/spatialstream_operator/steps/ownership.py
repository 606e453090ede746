"""Checks that an existing object belongs to the stream; objects of others are left alone."""

from __future__ import annotations

from spatialstream_operator.cluster import Object
from spatialstream_operator.decisions.restarts import Failure
from spatialstream_operator.names import KIND

__all__ = ["hindrance"]


def hindrance(body: Object, resource: Object | None, kind: str, name: str) -> Failure | None:
    """Why an object cannot be created or changed for a stream; None if it can.

    Args:
        body: the SpatialStream.
        resource: the existing object with the name; None if there is none.
        kind: kind of the object.
        name: name of the object.
    """
    if resource is None:
        return None
    owners = resource["metadata"].get("ownerReferences") or []
    if any(each["uid"] == body["metadata"]["uid"] for each in owners):
        return None
    if any((each["kind"], each["name"]) == (KIND, body["metadata"]["name"]) for each in owners):
        text = f"The {kind} {name} of an earlier SpatialStream of this name still exists."
        return Failure("LeftoverFound", text)
    text = f"The {kind} {name} does not belong to this stream. Delete it, or give the stream another name."
    return Failure("NameTaken", text, "slow")

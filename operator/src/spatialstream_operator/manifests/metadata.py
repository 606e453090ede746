"""Names, labels and owner of what the operator makes."""

from __future__ import annotations

from typing import Any

from spatialstream_operator.names import GROUP, KIND, VERSION, StreamNames

__all__ = ["Manifest", "metadata", "owner_reference"]

Manifest = dict[str, Any]
"""An object of Kubernetes as JSON has it."""


def owner_reference(names: StreamNames, uid: str) -> Manifest:
    """The SpatialStream as the controller of what belongs to it: what it owns is deleted with it.

    Args:
        names: of the stream.
        uid: ``metadata.uid`` of the SpatialStream.
    """
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "name": names.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(names: StreamNames, name: str, uid: str, component: str | None = None) -> Manifest:
    """``metadata`` of an object that the stream owns."""
    return {
        "name": name,
        "namespace": names.namespace,
        "labels": names.labels(component),
        "ownerReferences": [owner_reference(names, uid)],
    }

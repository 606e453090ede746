"""Names, labels and owner references of the operator's objects."""

from __future__ import annotations

from typing import Any

from spatialstream_operator.names import GROUP, KIND, VERSION, StreamNames

__all__ = ["Manifest", "metadata", "owner_reference"]

Manifest = dict[str, Any]
"""A Kubernetes object as decoded JSON."""


def owner_reference(names: StreamNames, uid: str) -> Manifest:
    """An owner reference to the SpatialStream as controller, so that its objects are deleted with it.

    Args:
        names: names of the stream.
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

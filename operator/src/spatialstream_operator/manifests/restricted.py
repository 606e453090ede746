"""The restricted profile of Kubernetes' pod security standards, made to hold for a pod whatever a template has added.

The custom resource's schema refuses most of what the profile forbids, with a sentence. This is the second line: a
sidecar that says nothing of its rights gets none, and what the profile knows no harmless form of is left out.

Source: kubernetes.io, "Pod Security Standards", profile "Restricted".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.manifests.metadata import Manifest

__all__ = ["USER", "VOLUME_KINDS", "allowed_volume", "restrict"]

USER = 10001
"""User and group of all processes."""

VOLUME_KINDS = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
"""Kinds of volume that the profile allows."""

_CONTAINERS = ("containers", "initContainers")
_HANDLERS = ("startupProbe", "readinessProbe", "livenessProbe")
_GROUPS = ("fsGroup", "fsGroupChangePolicy", "supplementalGroups")
_PROFILES = ("container.apparmor.security.beta.kubernetes.io", "seccomp.security.alpha.kubernetes.io")


def restrict(pod: Manifest) -> Manifest:
    """The pod within the profile. Its first container is the operator's; the others may come from a template."""
    spec = {name: value for name, value in pod["spec"].items() if name != "ephemeralContainers"}
    volumes = [each for each in _mappings(spec.get("volumes")) if allowed_volume(each)]
    known = {each["name"] for each in volumes}
    for field in _CONTAINERS:
        spec[field] = [_container(each, known, number) for number, each in enumerate(_mappings(spec.get(field)))]
    spec["containers"][0]["securityContext"] = {**_restricted(), "readOnlyRootFilesystem": True}
    spec |= {"volumes": volumes, "securityContext": _pod_rights(spec.get("securityContext"))}
    if not spec["initContainers"]:
        del spec["initContainers"]
    return {**pod, "metadata": _metadata(pod["metadata"]), "spec": spec}


def allowed_volume(volume: Mapping[str, Any]) -> bool:
    """Whether a volume is of exactly one kind, and the profile allows it."""
    kinds = set(volume) - {"name"}
    return "name" in volume and len(kinds) == 1 and kinds <= VOLUME_KINDS


def _metadata(metadata: Manifest) -> Manifest:
    annotations = {
        name: value for name, value in metadata.get("annotations", {}).items() if not name.startswith(_PROFILES)
    }
    return {**metadata, "annotations": annotations}


def _pod_rights(given: object) -> Manifest:
    groups = {name: value for name, value in given.items() if name in _GROUPS} if isinstance(given, Mapping) else {}
    user = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER}
    return {**user, "seccompProfile": {"type": "RuntimeDefault"}, **groups}


def _container(container: Mapping[str, Any], volumes: set[Any], number: int) -> Manifest:
    result: Manifest = dict(container)
    for name in _HANDLERS:
        if isinstance(result.get(name), Mapping):
            result[name] = _handler(result[name])
    if isinstance(result.get("lifecycle"), Mapping):
        result["lifecycle"] = {
            moment: _handler(each) for moment, each in result["lifecycle"].items() if isinstance(each, Mapping)
        }
    if "ports" in result:
        result["ports"] = [
            {name: value for name, value in port.items() if name not in ("hostPort", "hostIP")}
            for port in _mappings(result["ports"])
        ]
    if "volumeMounts" in result:
        result["volumeMounts"] = [each for each in _mappings(result["volumeMounts"]) if each.get("name") in volumes]
    return {**result, "securityContext": _rights(container.get("securityContext"))}


def _rights(given: object) -> Manifest:
    """Rights of a container: the profile's; of what was asked for only who it runs as, and a read-only file system."""
    asked = given if isinstance(given, Mapping) else {}
    kept = {name: asked[name] for name in ("runAsUser", "runAsGroup", "readOnlyRootFilesystem") if name in asked}
    if kept.get("runAsUser") == 0:
        del kept["runAsUser"]
    return {**kept, **_restricted()}


def _restricted() -> Manifest:
    """What the profile asks of every container; made anew each time, so that no two share a part."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _handler(handler: Mapping[str, Any]) -> Manifest:
    """A probe or a hook that asks the pod itself, and no other host."""
    return {
        name: {key: each for key, each in value.items() if key != "host"} if isinstance(value, Mapping) else value
        for name, value in handler.items()
    }


def _mappings(items: object) -> list[Mapping[str, Any]]:
    return [each for each in items if isinstance(each, Mapping)] if isinstance(items, list) else []

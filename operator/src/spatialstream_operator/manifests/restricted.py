"""Enforces the restricted profile of Kubernetes' pod security standards on a pod, whatever a template has added.

The custom resource's schema rejects most violations of the profile, with a message. This is the second line of defence:
a sidecar without a security context gets the restricted one, and fields without a permitted value are removed.

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
    """The pod, restricted to the profile. Its first container is the operator's; others may come from a template."""
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


def _rights(context: object) -> Manifest:
    """Security context of a container: the profile's; only user, group and a read-only file system can be set."""
    asked = context if isinstance(context, Mapping) else {}
    kept = {name: asked[name] for name in ("runAsUser", "runAsGroup", "readOnlyRootFilesystem") if name in asked}
    if kept.get("runAsUser") == 0:
        del kept["runAsUser"]
    return {**kept, **_restricted()}


def _restricted() -> Manifest:
    """What the profile requires of every container; a new object each time, so that no two share parts."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _handler(handler: Mapping[str, Any]) -> Manifest:
    """A probe or a hook without a host, so that it addresses only the pod itself."""
    return {
        name: {key: each for key, each in value.items() if key != "host"} if isinstance(value, Mapping) else value
        for name, value in handler.items()
    }


def _mappings(items: object) -> list[Mapping[str, Any]]:
    return [each for each in items if isinstance(each, Mapping)] if isinstance(items, list) else []

"""Merges the pod template of the spec into a pod of the operator.

Maps are merged, lists of named items are merged by name, and in a conflict the operator's value takes precedence. Only
a few fields are mere defaults, and volumes for local files may be replaced by others of the same name, because an
emptyDir may be too small, or on a slow disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spatialstream_operator.manifests.metadata import Manifest
from spatialstream_operator.manifests.restricted import allowed_volume

__all__ = ["OWNED_BY_OPERATOR", "OWNED_IN_CONTAINER", "add_template"]

OWNED_BY_OPERATOR = frozenset(
    {
        "restartPolicy",
        "serviceAccountName",
        "serviceAccount",
        "automountServiceAccountToken",
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "hostname",
        "subdomain",
    }
)
"""Fields of a pod that a template cannot change."""

OWNED_IN_CONTAINER = frozenset(
    {
        "image",
        "imagePullPolicy",
        "command",
        "args",
        "workingDir",
        "ports",
        "resources",
        "securityContext",
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
    }
)
"""Fields of the operator's container that a template cannot change."""

_KEYS = {"volumeMounts": "mountPath", "hostAliases": "ip"}
_DEFAULTS = ("terminationGracePeriodSeconds", "enableServiceLinks")
_DEEP = ("containers", "initContainers")


def add_template(pod: Manifest, template: Mapping[str, Any], replaceable: frozenset[str]) -> Manifest:
    """The pod with the additions of a template.

    Args:
        pod: the operator's pod; its first container is the operator's too.
        template: the additions, in the form of a PodTemplateSpec.
        replaceable: names of volumes that the template may replace.
    """
    own = pod["spec"]["containers"][0]["name"]
    given = _mapping(template, "spec")
    spec = {name: value for name, value in given.items() if name not in OWNED_BY_OPERATOR}
    spec["volumes"] = [each for each in _mappings(given, "volumes") if allowed_volume(each)]
    spec["containers"] = [_extra(each, own) for each in _mappings(given, "containers")]
    merged: Manifest = _merge(
        {**pod, "spec": _base(pod["spec"], spec, replaceable)},
        {"metadata": _texts(_mapping(template, "metadata")), "spec": spec},
    )
    return merged


def _base(own: Manifest, spec: Mapping[str, Any], replaceable: frozenset[str]) -> Manifest:
    """The operator's part, without the defaults and volumes that the template replaces."""
    replaced = replaceable & {each["name"] for each in spec["volumes"]}
    base = {name: value for name, value in own.items() if name not in _DEFAULTS or name not in spec}
    return {**base, "volumes": [each for each in own["volumes"] if each["name"] not in replaced]}


def _extra(container: Mapping[str, Any], own: str) -> dict[str, Any]:
    if container.get("name") != own:
        return dict(container)
    return {name: value for name, value in container.items() if name not in OWNED_IN_CONTAINER}


def _texts(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: dict(_mapping(metadata, name)) for name in ("labels", "annotations")}


def _merge(base: Any, extra: Any, field: str = "") -> Any:
    """Merge both; in a conflict ``base`` takes precedence."""
    if isinstance(base, Mapping) and isinstance(extra, Mapping):
        both = {name: _merge(value, extra[name], name) if name in extra else value for name, value in base.items()}
        return {**both, **{name: value for name, value in extra.items() if name not in base}}
    if isinstance(base, list) and isinstance(extra, list):
        return _merge_lists(base, extra, field)
    return base


def _merge_lists(base: list[Any], extra: list[Any], field: str) -> list[Any]:
    key = _KEYS.get(field, "name")
    if not all(isinstance(each, Mapping) and key in each for each in [*base, *extra]):
        return base
    known = {each[key]: each for each in base}
    added = {each[key]: each for each in extra}
    if field in _DEEP:
        known = {name: _merge(each, added.get(name, {})) for name, each in known.items()}
    return [*known.values(), *(each for name, each in added.items() if name not in known)]


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    return value if isinstance(value, Mapping) else {}


def _mappings(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    items = content.get(name)
    return [each for each in items if isinstance(each, Mapping)] if isinstance(items, list) else []

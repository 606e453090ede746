"""The custom resource as the tests see it: its schema, defaulted specs, and what is drawn for properties."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from spatialstream_operator.names import StreamNames
from spatialstream_operator.spec import OperatorDefaults, StreamSpec

ROOT = Path(__file__).parents[3]
CRD = yaml.safe_load((ROOT / "charts/spatialstream/files/crd.yaml").read_text())
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC_SCHEMA = SCHEMA["properties"]["spec"]

NAMES = StreamNames("geo", "quakes")
UID = "6f3a0c1e-0000-4000-8000-000000000001"
DEFAULTS = OperatorDefaults("spark:1", "IfNotPresent", "http://prometheus:9090")
MINIMAL = {
    "kafka": {"bootstrapServers": "kafka:9092"},
    "zookeeper": {"servers": "zookeeper:2181"},
    "checkpoint": {"claimName": "checkpoints"},
}


def merge(base: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(base) if isinstance(base, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def defaulted(spec: Mapping[str, Any], schema: Mapping[str, Any] = SPEC_SCHEMA) -> dict[str, Any]:
    """What the API server makes of a spec: absent fields get the schema's defaults, those within them too."""
    result = dict(spec)
    for name, field in schema.get("properties", {}).items():
        if name not in result and "default" in field:
            result[name] = copy.deepcopy(field["default"])
        if isinstance(result.get(name), Mapping):
            result[name] = defaulted(result[name], field)
    return result


def parse(patch: Mapping[str, Any] | None = None) -> StreamSpec:
    """The minimal spec with a merge patch, defaulted and parsed."""
    return StreamSpec.parse(defaulted(merge(MINIMAL, patch or {})), DEFAULTS)


def patch_at(path: str, value: Any) -> dict[str, Any]:
    """The merge patch that sets one field."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def leaves(schema: Mapping[str, Any] = SPEC_SCHEMA, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Path and schema of each field that has no fields of its own; a pod template counts as one field."""
    for name, field in schema["properties"].items():
        here = f"{path}.{name}".lstrip(".")
        if "properties" in field and name != "podTemplate":
            yield from leaves(field, here)
        else:
            yield here, field


def nodes(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Path and schema of everything in a schema, itself included."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from nodes(field, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield from nodes(schema[name], f"{path}[]")

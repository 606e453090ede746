"""Ways to write a SpatialStream down."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.api.client import GROUP

__all__ = ["UPDATES", "WRONG", "merged", "stream", "streams"]

_HERE = Path(__file__).parent
WRONG = yaml.safe_load((_HERE / "wrong_specs.yaml").read_text())
UPDATES = yaml.safe_load((_HERE / "update_refusals.yaml").read_text())


def merged(base: Any, change: Any) -> Any:
    """A JSON merge patch applied (RFC 7386)."""
    if not isinstance(change, Mapping):
        return copy.deepcopy(change)
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def stream(namespace: str, name: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The valid SpatialStream of `wrong_specs.yaml`, with a change of its spec."""
    return merged(
        WRONG["valid"], {"metadata": {"namespace": namespace, "name": name}, "spec": {} if spec is None else spec}
    )


def streams(namespace: str, name: str = "") -> str:
    """The path of the streams of a namespace, or of one of them."""
    return f"{GROUP}/namespaces/{namespace}/spatialstreams" + (f"/{name}" if name else "")

"""Fields that nobody knows: the schemas keep all of them, and the operator refuses them with what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from spatialstream.model.errors import SettingError
from spatialstream_operator.decisions.known_fields import KNOWN, OPEN, check_fields
from tests.unit.operator.resource import ROOT

FILES = {"SpatialStream": "crd.yaml", "SpatialQuery": "query-crd.yaml", "SpatialArea": "area-crd.yaml"}
FREE = {"podTemplate.spec": ("securityContext",), "polygon": ()}
"""Ends of the paths of objects whose fields are checked as those of a pod and as GeoJSON, all but these."""


def schema(kind: str) -> dict[str, Any]:
    definition = yaml.safe_load((ROOT / "charts/spatialstream/files" / FILES[kind]).read_text())
    (version,) = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def fields(schema: Mapping[str, Any], path: str = "") -> dict[str, Any] | None:
    """The known fields of a schema, by name; None: it has none. Those of the status are the operator's own."""
    parts = schema.get("items", schema).get("properties")
    if parts is None or path == ".status":
        return None
    for end, checked in FREE.items():
        if path.endswith(end):
            return {OPEN: None, **{name: fields(parts[name], f"{path}.{name}") for name in checked}}
    return {name: fields(field, f"{path}.{name}") for name, field in parts.items()}


def pruned(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of objects whose unknown fields are removed by the API server."""
    inner = schema.get("items", schema)
    if "properties" in inner and not inner.get("x-kubernetes-preserve-unknown-fields"):
        yield path
    for name, field in inner.get("properties", {}).items():
        yield from pruned(field, f"{path}.{name}")


@pytest.mark.parametrize("kind", FILES)
def test_the_known_fields_are_those_of_the_schema(kind: str) -> None:
    assert fields(schema(kind)) == KNOWN[kind]


@pytest.mark.parametrize("kind", FILES)
def test_the_api_server_keeps_every_field_for_the_operator_to_see(kind: str) -> None:
    assert [path for path in pruned(schema(kind)) if not path.startswith(".status")] == []


QUERY = {"stream": "quakes", "type": "CRQ", "region": {"box": [0, 0, 1, 1]}}


@pytest.mark.parametrize(
    ("kind", "spec", "told"),
    [
        (
            "SpatialQuery",
            {"keyword": ["fire"]},
            "spec.keyword: is not a field of a SpatialQuery; did you mean spec.keywords?",
        ),
        ("SpatialQuery", {"Where": None}, "spec.Where: is not a field of a SpatialQuery; did you mean spec.where?"),
        ("SpatialQuery", {"t": 5}, "spec.t: is not a field of a SpatialQuery; the operator sets it"),
        ("SpatialQuery", {"id": "a"}, "spec.id: is not a field of a SpatialQuery; the operator sets it"),
        ("SpatialQuery", {"by": "a"}, "spec.by: is not a field of a SpatialQuery; the operator sets it"),
        (
            "SpatialQuery",
            {"region": {"box": [0, 0, 1, 1], "circel": [0, 0, 1]}},
            "spec.region.circel: is not a field of a SpatialQuery; did you mean spec.region.circle?",
        ),
        (
            "SpatialQuery",
            {"region": {"box": [0, 0, 1, 1], "where": "a = 1"}},
            "spec.region.where: is not a field of a SpatialQuery; did you mean spec.where?",
        ),
        (
            "SpatialQuery",
            {"weights": {"space": 0.5, "zzz": 1}},
            "spec.weights.zzz: is not a field of a SpatialQuery; the fields of spec.weights are space",
        ),
        (
            "SpatialQuery",
            {"keyword": [], "windw": 5},
            "spec.keyword: is not a field of a SpatialQuery; did you mean spec.keywords?; "
            "spec.windw: is not a field of a SpatialQuery; did you mean spec.window?",
        ),
        (
            "SpatialQuery",
            {"x" * 50: 1},
            f"spec.{'x' * 40}…: is not a field of a SpatialQuery; the fields of spec are "
            + ", ".join(KNOWN["SpatialQuery"]["spec"]),
        ),
        (
            "SpatialArea",
            {"geometry": {"crs": "EPSG:25833"}},
            "spec.geometry.crs: is not a field of a SpatialArea; the fields of spec.geometry are type, coordinates",
        ),
        (
            "SpatialStream",
            {"retension": "1d"},
            "spec.retension: is not a field of a SpatialStream; did you mean spec.retention?",
        ),
        (
            "SpatialStream",
            {"rebalance": {"retention": "1d"}},
            "spec.rebalance.retention: is not a field of a SpatialStream; did you mean spec.retention?",
        ),
        (
            "SpatialStream",
            {"imagePullSecrets": [{"name": "a"}, {"name": "b", "nam": "c"}]},
            "spec.imagePullSecrets.nam: is not a field of a SpatialStream; did you mean spec.imagePullSecrets.name?",
        ),
        (
            "SpatialStream",
            {"router": {"podTemplate": {"spec": {"securityContext": {"fsGrup": 1}}}}},
            "spec.router.podTemplate.spec.securityContext.fsGrup: is not a field of a SpatialStream; "
            "did you mean spec.router.podTemplate.spec.securityContext.fsGroup?",
        ),
    ],
)
def test_an_unknown_field_is_named_with_what_was_meant(kind: str, spec: Mapping[str, Any], told: str) -> None:
    with pytest.raises(SettingError) as refused:
        check_fields(kind, {"spec": {**(QUERY if kind == "SpatialQuery" else {}), **spec}})
    assert str(refused.value) == told


def test_a_field_beside_the_spec_is_told_where_it_belongs() -> None:
    with pytest.raises(SettingError, match=r"^where: is not a field of a SpatialQuery; did you mean spec\.where\?$"):
        check_fields("SpatialQuery", {"spec": QUERY, "where": "a = 1"})


def test_of_many_unknown_fields_eight_are_told() -> None:
    with pytest.raises(SettingError) as refused:
        check_fields("SpatialQuery", {"spec": {**QUERY, **dict.fromkeys(map(str, range(100)))}})
    assert str(refused.value).count("is not a field") == 8


def test_what_others_check_passes() -> None:
    check_fields("SpatialQuery", {"kind": "SpatialQuery", "metadata": {"x": 1}, "status": {"x": 1}, "spec": QUERY})
    polygon = {"type": "Polygon", "coordinates": [], "bbox": [0, 0, 1, 1]}
    check_fields("SpatialQuery", {"spec": {**QUERY, "region": {"polygon": polygon}}})
    pod = {"nodeSelector": {"a": "b"}, "containers": [{"name": "log", "image": "a"}]}
    router = {"options": {"spark.a": "b"}, "podTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
    check_fields("SpatialStream", {"spec": {"router": router, "properties": {"country": "keyword"}}})
    check_fields("SpatialStream", {"spec": {"router": None, "workers": 5, "imagePullSecrets": ["a"]}})

"""The policies of the chart: a field that nobody knows is refused when a resource is applied, whatever the client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.api.client import Api, RefusalError, eventually, path_of
from tests.api.servers import ApiServer
from tests.charts.render import of_kind, render

SPACE = "strict"
STREAM = {
    "kafka": {"bootstrapServers": "kafka:9092"},
    "zookeeper": {"servers": "zookeeper:2181"},
    "checkpoint": {"claimName": "state"},
}
QUERY = {"stream": "quakes", "type": "CRQ", "region": {"box": [0, 0, 1, 1]}}
RING = [[0, 0], [1, 0], [1, 1], [0, 0]]
AREA = {"stream": "quakes", "geometry": {"type": "Polygon", "coordinates": [RING]}}
KINDS = {"SpatialStream": STREAM, "SpatialQuery": QUERY, "SpatialArea": AREA}


def resource(kind: str, spec: Mapping[str, Any] | None = None, name: str = "wish", **beside: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SPACE}
    about = {"apiVersion": "spatialstream.dev/v1alpha1", "kind": kind, "metadata": metadata}
    return {**about, "spec": {**KINDS[kind], **(spec or {})}, **beside}


def collection(kind: str, options: str = "") -> str:
    return path_of(resource(kind)).rpartition("/")[0] + "?fieldValidation=Ignore" + options


@pytest.fixture(scope="module")
def policies() -> list[dict[str, Any]]:
    versions = "--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
    objects = render("spatialstream", {}, "spatialstream", "spatialstream-system", *versions)
    return of_kind(objects, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def stored(api: Api, namespace: Any) -> str:
    """The path of a query with an unknown field that was stored before there was a policy."""
    namespace(SPACE)
    made = resource("SpatialQuery", {"keyword": ["fire"]}, "early")
    made["metadata"]["finalizers"] = ["spatialstream.dev/tests"]
    api.post(collection("SpatialQuery"), made)
    return path_of(made)


@pytest.fixture(scope="module")
def strict(api: Api, server: ApiServer, policies: list[dict[str, Any]], stored: str) -> Iterator[Api]:
    """A client of a server with the policies, as soon as they are in force."""

    def refused(kind: str) -> bool:
        try:
            api.post(collection(kind, "&dryRun=All"), resource(kind, {"zzz": 1}))
        except RefusalError as refusal:
            if "denied request" not in refusal.message:
                raise
            return True
        return False

    client = server.as_admin()
    for each in policies:
        client.apply(each)
    assert client.warnings == []
    for kind in KINDS:
        eventually(lambda kind=kind: refused(kind), f"the policy of {kind} is in force")
    yield api
    for each in reversed(policies):
        api.delete(path_of(each))
    for kind in KINDS:  # other tests have resources that the operator refuses
        eventually(lambda kind=kind: not refused(kind), f"the policy of {kind} is gone")


@pytest.mark.parametrize(
    ("kind", "spec", "path", "known"),
    [
        ("SpatialQuery", {"keyword": ["fire"]}, "spec.keyword", "any, at, "),
        ("SpatialQuery", {"region": {"box": [0, 0, 1, 1], "wehre": 1}}, "spec.region.wehre", "area, box, "),
        ("SpatialArea", {"geometry": {**AREA["geometry"], "crs": "x"}}, "spec.geometry.crs", "coordinates, type"),
        ("SpatialStream", {"retension": "1d"}, "spec.retension", "archive, "),
        ("SpatialStream", {"workers": {"driver": {"cpu": 1}}}, "spec.workers.driver.cpu", "jvmHeap, podTemplate, "),
        (
            "SpatialStream",
            {"router": {"podTemplate": {"spec": {"securityContext": {"fsGrup": 1}}}}},
            "spec.router.podTemplate.spec.securityContext.fsGrup",
            "fsGroup, fsGroupChangePolicy, supplementalGroups",
        ),
    ],
)
def test_an_unknown_field_is_refused_with_those_that_are_known(
    strict: Api, kind: str, spec: Mapping[str, Any], path: str, known: str
) -> None:
    with pytest.raises(RefusalError) as refused:
        strict.post(collection(kind), resource(kind, spec))
    told = f"{path}: is not a field of a {kind}; the fields of {path.rpartition('.')[0]} are {known}"
    assert told in refused.value.message


@pytest.mark.gate
def test_one_beside_the_spec_is_refused_too(strict: Api) -> None:
    with pytest.raises(RefusalError) as refused:
        strict.post(collection("SpatialQuery"), resource("SpatialQuery", where="a = 1"))
    assert "where: is not a field of a SpatialQuery; the fields there are apiVersion, kind, " in refused.value.message


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_is_accepted(strict: Api, kind: str) -> None:
    strict.post(collection(kind, "&dryRun=All"), resource(kind))


def test_what_others_check_passes(strict: Api) -> None:
    polygon = {**AREA["geometry"], "bbox": [0, 0, 1, 1]}
    strict.post(collection("SpatialQuery", "&dryRun=All"), resource("SpatialQuery", {"region": {"polygon": polygon}}))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"a": "b"}}}
    parts = {"router": {"options": {"spark.a": "b"}, "podTemplate": template}, "properties": {"country": "keyword"}}
    strict.post(collection("SpatialStream", "&dryRun=All"), resource("SpatialStream", parts))


@pytest.mark.parametrize("spec", [{"region": "here"}, {"region": None}, {"weights": [1]}])
def test_a_wrong_type_is_what_the_schema_says(strict: Api, spec: Mapping[str, Any]) -> None:
    with pytest.raises(RefusalError) as refused:
        strict.post(collection("SpatialQuery"), resource("SpatialQuery", spec))
    assert refused.value.code == 422
    assert "ValidatingAdmissionPolicy" not in refused.value.message


def test_what_was_stored_before_is_corrected_or_deleted(strict: Api, stored: str) -> None:
    with pytest.raises(RefusalError, match="keyword: is not a field"):
        strict.patch(stored, {"spec": {"duration": "1h"}})
    strict.patch(stored, {"metadata": {"labels": {"a": "b"}}})
    strict.patch(f"{stored}/status", {"status": {"conditions": []}})
    strict.delete(stored)
    strict.patch(stored, {"metadata": {"finalizers": None}})
    assert strict.find(stored) is None

"""The policies that refuse unknown fields when a resource is applied; ``tests/api`` has them in force."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from spatialstream_operator.decisions.known_fields import KNOWN, OPEN
from tests.charts.render import of_kind, render

VERSIONS = ("--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


def policies(values: Mapping[str, Any], *versions: str) -> list[dict[str, Any]]:
    objects = render("spatialstream", values, "spatialstream", "spatialstream-system", *versions)
    return of_kind(objects, *KINDS)


def checked(policy: Mapping[str, Any]) -> dict[str, list[str]]:
    """The fields that each object may have, by the name of its variable."""
    found = {}
    for each in policy["spec"]["validations"]:
        name, known = re.fullmatch(
            r"variables\.(\w+)\.filter\(name, !\(name in (.*)\)\) == \[\]", each["expression"]
        ).groups()
        found[name] = re.findall(r"'([^']+)'", known)
    return found


def known(fields: Mapping[str, Any], path: str = "resource") -> Iterator[tuple[str, list[str]]]:
    if OPEN not in fields:
        yield path, sorted(fields)
    for name, parts in fields.items():
        if parts and name != "imagePullSecrets":  # a list, whose items the operator alone checks
            yield from known(parts, f"{path}_{name}")


@pytest.mark.parametrize("kind", KNOWN)
def test_the_fields_are_those_that_the_operator_knows(kind: str) -> None:
    plural = {"SpatialStream": "spatialstreams", "SpatialQuery": "spatialqueries", "SpatialArea": "spatialareas"}[kind]
    name = f"fields.{plural}.spatialstream.dev"
    policy, binding = (each for each in policies({}, *VERSIONS) if each["metadata"]["name"] == name)
    assert checked(policy) == dict(known(KNOWN[kind]))
    assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}


@pytest.mark.parametrize(
    ("values", "versions"),
    [
        ({}, ()),
        ({"crds": {"install": False}}, VERSIONS),
        ({"crds": {"refuseUnknownFields": False}}, VERSIONS),
    ],
    ids=["Kubernetes 1.29", "no definitions", "not wanted"],
)
def test_there_are_none(values: Mapping[str, Any], versions: tuple[str, ...]) -> None:
    assert policies(values, *versions) == []

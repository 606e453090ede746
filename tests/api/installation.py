"""The operator's chart installed for real, but for the workload that nobody here would run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.api.client import Api
from tests.charts.render import render

__all__ = ["Installation", "install"]

_LEFT_OUT = {"CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "PrometheusRule", "Deployment", "Pod"}


@dataclass(frozen=True)
class Installation:
    """What an installation has made.

    Attributes:
        namespace: the operator's.
        account: name of its service account.
        values: those of the chart.
    """

    namespace: str
    account: str
    values: Mapping[str, Any]

    @property
    def user(self) -> str:
        """Who the operator is to the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    def token(self, api: Api) -> str:
        """A token of the operator, valid for an hour."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"
        made: str = api.post(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        return made


def install(
    api: Api, make_namespace: Callable[[str], str], release: str, namespace: str, values: Mapping[str, Any]
) -> Installation:
    """Install the chart."""
    make_namespace(namespace)
    objects = render("spatialstream", values, release, namespace)
    for each in objects:
        make_namespace(each["metadata"].get("namespace", namespace))
        if each["kind"] not in _LEFT_OUT:
            api.apply(each)
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    return Installation(namespace, deployment["spec"]["template"]["spec"]["serviceAccountName"], values)

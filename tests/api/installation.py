"""The operator's chart installed for real, but for the workload that nobody here would run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.api.client import Api
from tests.charts.render import render

__all__ = ["Installation", "install", "token_of"]

_LEFT_OUT = {"CustomResourceDefinition", "ServiceMonitor", "PodMonitor", "PrometheusRule", "Deployment", "Pod"}


@dataclass(frozen=True)
class Installation:
    """What an installation has made.

    Attributes:
        namespace: the operator's.
        account: name of its service account.
        gateway: name of the gateway's.
        values: those of the chart.
    """

    namespace: str
    account: str
    gateway: str
    values: Mapping[str, Any]

    @property
    def user(self) -> str:
        """Who the operator is to the API server."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    def token(self, api: Api) -> str:
        """A token of the operator."""
        return token_of(api, self.namespace, self.account)


def token_of(api: Api, namespace: str, account: str, *audiences: str) -> str:
    """A token of a service account, valid for an hour; without audiences it is for the API server."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    spec = {"expirationSeconds": 3600} | ({"audiences": list(audiences)} if audiences else {})
    made: str = api.post(path, {"spec": spec})["status"]["token"]
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
    pods = {
        each["metadata"]["labels"]["app.kubernetes.io/name"]: each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] == "Deployment"
    }
    accounts = {name: pod["serviceAccountName"] for name, pod in pods.items()}
    return Installation(namespace, accounts["spatialstream-operator"], accounts["spatialstream-gateway"], values)

"""One API server for all tests, with the custom resource; each test has a namespace or a stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.api.client import Api, ApiRefusal, eventually
from tests.api.servers import ApiServer, Etcd

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API server."""
    folder = tmp_path_factory.mktemp("kubernetes")
    with Etcd(folder / "etcd") as etcd, ApiServer(folder / "apiserver", etcd) as started:
        yield started


@pytest.fixture(scope="session")
def definition() -> dict:
    """The definition of the custom resource."""
    return yaml.safe_load((ROOT / "charts/spatialstream/files/crd.yaml").read_text())


@pytest.fixture(scope="session")
def api(server: ApiServer, definition: dict) -> Api:
    """A client that may do everything, of a server that knows SpatialStreams."""
    api = server.as_admin()
    api.apply(definition)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/spatialstreams.spatialstream.dev"

    def established() -> bool:
        conditions = api.get(path).get("status", {}).get("conditions", [])
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    eventually(established, "the definition is established")
    eventually(lambda: api.find("/apis/spatialstream.dev/v1alpha1"), "the API has the group")
    return api


@pytest.fixture(scope="session")
def namespace(api: Api):
    """Makes a namespace if it is not there, and returns its name."""

    def make(name: str) -> str:
        try:
            api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        except ApiRefusal as refusal:
            if refusal.code != 409:
                raise
        return name

    return make

"""One API server for all tests, with the custom resource; each test has a namespace or a stream of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
import yaml

from spatialstream.servers.zookeeper import ZooKeeperServer
from tests.api.client import Api, RefusalError, eventually
from tests.api.installation import Installation, install
from tests.api.operators import OperatorProcess
from tests.api.play import Played
from tests.api.prometheus import FakePrometheus
from tests.api.servers import ApiServer, Etcd

ROOT = Path(__file__).parents[2]
LINES = 60


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Nothing here needs the compiled kernels that the tests of the library wait for."""


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
    """A client that may do everything, of a server that knows SpatialStreams, SpatialQueries and SpatialAreas."""
    api = server.as_admin()
    files = ROOT / "charts/spatialstream/files"
    others = [yaml.safe_load((files / f"{name}-crd.yaml").read_text()) for name in ("query", "area")]
    for each in (definition, *others):
        api.apply(each)
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{each['metadata']['name']}"

        def established(path: str = path) -> bool:
            conditions = api.get(path).get("status", {}).get("conditions") or []
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        eventually(established, "the definition is established")
    eventually(lambda: api.find("/apis/spatialstream.dev/v1alpha1"), "the API has the group")
    return api


@pytest.fixture(scope="session")
def namespace(api: Api):
    """Makes a namespace if it is not there, and returns its name. Its pods have to be restricted ones."""

    def make(name: str) -> str:
        labels = {f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn")}
        try:
            api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        except RefusalError as refusal:
            if refusal.code != 409:
                raise
        return name

    return make


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for the routing states of all streams."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper") / "data") as started:
        yield started


@pytest.fixture(scope="session")
def prometheus() -> Iterator[FakePrometheus]:
    """What plays Prometheus."""
    with FakePrometheus() as started:
        yield started


@pytest.fixture(scope="session")
def installation(api: Api, namespace) -> Installation:
    """The operator's chart, installed for the whole cluster."""
    return install(api, namespace, "spatialstream", "spatialstream-system", {"watch": {"all": True}})


@pytest.fixture(scope="session")
def process(
    tmp_path_factory: pytest.TempPathFactory,
    server: ApiServer,
    api: Api,
    installation: Installation,
    prometheus: FakePrometheus,
) -> Iterator[OperatorProcess]:
    """The operator, under its own account."""
    folder = tmp_path_factory.mktemp("operator")
    token = installation.token(api)
    settings = {"PROMETHEUS_URL": prometheus.url, "EXECUTOR_GRACE": "8", "NETWORK_POLICIES": "true"}
    settings |= {"GATEWAY_URL": "https://streams.example.org", "CLIENTS_FROM": '[{"podSelector": {}}]'}
    with OperatorProcess(folder, server, token, installation.namespace, **settings) as started:
        eventually(lambda: started.ready, "the operator is at work")
        yield started


@pytest.fixture
def operator(process: OperatorProcess) -> OperatorProcess:
    """The operator, which runs; it is started again if a test before has ended it."""
    if not process.running:
        process.start()
    eventually(lambda: process.ready, "the operator is at work")
    return process


@pytest.fixture
def played(request, api: Api, namespace, zookeeper: ZooKeeperServer) -> Iterator[Callable[..., Played]]:
    """Makes a stream in a namespace of the test's own, with the pods of which the test does as it likes."""
    name = "t" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    streams = []

    def make(stream: str = "quakes", within: str = name, **spec) -> Played:
        streams.append(Played(api, namespace(within), stream, zookeeper.hosts).create(**spec))
        return streams[-1]

    yield make
    for each in streams:
        each.vanish()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its operators have said last."""
    report = yield
    if report.failed:
        for name, each in getattr(item, "funcargs", {}).items():
            if isinstance(each, OperatorProcess) and each.log.exists():
                said = each.log.read_text(errors="replace").splitlines()
                report.sections.append((f"log of {name}", "\n".join(said[-LINES:])))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The operator is started after the tests that want no operator to see what they do."""
    items.sort(key=lambda item: "process" in getattr(item, "fixturenames", ()))

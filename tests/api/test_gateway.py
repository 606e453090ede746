"""The gateway with a real API server: whose tokens it takes, what they allow, and which streams it serves."""

import contextlib
import json
import sys

import pytest
from kubernetes.client import Configuration

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.cluster import Cluster
from spatialstream.gateway.reviews import ReviewLimits, Reviews
from spatialstream.gateway.stream_registry import StreamRegistry
from spatialstream.servers.process import Server, await_condition
from tests.api.client import RefusalError, eventually
from tests.api.installation import install, token_of
from tests.api.resources import stream, streams
from tests.unit.gateway.http import Client, served, serving

AUDIENCE = "https://streams.example.org"
RBAC = "rbac.authorization.k8s.io/v1"


QUICK = ReviewLimits(keep=0.1, keep_refusal=0.1)
"""What the cluster has said counts for a moment."""


@pytest.fixture(scope="module")
def installed(api, namespace):
    """The chart for one namespace."""
    namespace("gw-geo")
    watch = {"watch": {"namespaces": ["gw-geo"]}, "crds": {"install": False}, "gateway": {"secrets": ["zk"]}}
    return install(api, namespace, "gw", "gw-system", watch)


@pytest.fixture
def cluster(server, api, installed):
    """The API server, as the gateway's account asks it."""
    made = cluster_of(server, token_of(api, installed.namespace, installed.gateway))
    yield made
    made.close()


def cluster_of(server, token):
    """The API server, as whoever has the token asks it."""
    configuration = Configuration(host=server.url, api_key={"authorization": f"Bearer {token}"})
    configuration.ssl_ca_cert = str(server.certificate)
    return Cluster(configuration)


def account(api, namespace, name, verbs, resource_names=()):
    """A service account that may do something with streams."""
    about = {"namespace": namespace, "name": name}
    rule = {"apiGroups": ["spatialstream.dev"], "resources": ["spatialstreams"], "verbs": verbs}
    if resource_names:
        rule["resourceNames"] = list(resource_names)
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
    api.apply({"apiVersion": RBAC, "kind": "Role", "metadata": about, "rules": [rule]})
    api.apply(
        {
            "apiVersion": RBAC,
            "kind": "RoleBinding",
            "metadata": about,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
    )
    return about


def statuses(port, token, stream):
    """What becomes of a request that needs each right; 400 says that it was let in."""
    client = Client(port, token)
    return {
        "ask": client("POST", f"/streams/{stream}/ask?no=1", {}).status,
        "watch": client("GET", f"/streams/{stream}/results?no=1").status,
        "write": client("POST", f"/streams/{stream}/queries?no=1", {}).status,
    }


@pytest.mark.gate
def test_rights_are_those_of_roles(api, cluster):
    account(api, "gw-geo", "session", ["ask", "watch"], ["quakes"])
    account(api, "gw-geo", "writer", ["write"])
    account(api, "gw-geo", "reader", ["get", "list"])
    gateway = Gateway([served("gw-geo.quakes"), served("gw-geo.ships")], Access(reviews=Reviews(cluster, limits=QUICK)))
    with serving(gateway) as nobody:

        def of(name, stream="gw-geo.quakes"):
            return statuses(nobody.port, token_of(api, "gw-geo", name), stream)

        assert of("session") == {"ask": 400, "watch": 400, "write": 403}
        assert of("session", "gw-geo.ships") == dict.fromkeys(("ask", "watch", "write"), 403)
        assert of("session", "gw-system.quakes") == dict.fromkeys(("ask", "watch", "write"), 403)
        assert of("writer", "gw-geo.ships") == {"ask": 403, "watch": 403, "write": 400}
        assert of("writer", "gw-geo.unknown") == {"ask": 403, "watch": 403, "write": 404}
        assert of("reader") == dict.fromkeys(("ask", "watch", "write"), 403)
        assert statuses(nobody.port, "not.a.token", "gw-geo.quakes") == dict.fromkeys(("ask", "watch", "write"), 401)


def test_a_right_that_is_taken_away_and_an_account_that_is_deleted_end(api, cluster):
    account(api, "gw-geo", "passing", ["ask"])
    token = token_of(api, "gw-geo", "passing")
    with serving(Gateway([served("gw-geo.quakes")], Access(reviews=Reviews(cluster, limits=QUICK)))) as nobody:

        def status():
            return Client(nobody.port, token)("POST", "/streams/gw-geo.quakes/ask?no=1", {}).status

        assert status() == 400
        api.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/gw-geo/rolebindings/passing")
        eventually(lambda: status() == 403, "the right is gone")
        api.delete("/api/v1/namespaces/gw-geo/serviceaccounts/passing")
        # the API server itself keeps for ten seconds that a token is good
        eventually(lambda: status() == 401, "the account is gone", 60)


@pytest.mark.parametrize(
    ("audiences", "api_server", "known"),
    [((), False, [()]), ((AUDIENCE,), False, [(AUDIENCE,)]), ((AUDIENCE,), True, [(), (AUDIENCE,)])],
)
def test_a_token_for_others_is_not_taken(api, cluster, audiences, api_server, known):
    account(api, "gw-geo", "session", ["ask", "watch"], ["quakes"])
    reviewed = Access(reviews=Reviews(cluster, audiences, api_server=api_server, limits=QUICK))
    with serving(Gateway([served("gw-geo.quakes")], reviewed)) as nobody:
        for meant in ((), (AUDIENCE,), ("https://else",)):
            token = token_of(api, "gw-geo", "session", *meant)
            answer = Client(nobody.port, token)("POST", "/streams/gw-geo.quakes/ask?no=1", {})
            assert answer.status == (400 if meant in known else 401), meant


def test_a_token_for_the_gateway_is_of_no_use_at_the_api_server(server, api, installed):
    """The operator sends it by plain HTTP, unless the gateway has TLS."""
    sent = server.with_token(token_of(api, installed.namespace, installed.account, "spatialstream-gateway"))
    with pytest.raises(RefusalError) as refusal:
        sent.get("/api")
    assert refusal.value.code == 401
    server.with_token(installed.token(api)).get("/api")


def test_who_may_not_ask_the_cluster_lets_nobody_in(server, api, namespace):
    namespace("gw-geo")
    account(api, "gw-geo", "writer", ["write"])
    token = token_of(api, "gw-geo", "writer")
    cluster = cluster_of(server, token)
    with serving(Gateway([served("gw-geo.quakes")], Access(reviews=Reviews(cluster, limits=QUICK)))) as nobody:
        answer = Client(nobody.port, token)("POST", "/streams/gw-geo.quakes/ask", {})
    cluster.close()
    assert answer.status == 503
    assert "tokenreviews" in answer.json["detail"]


def test_streams_are_served_while_they_exist(api, cluster):
    secured = {"zookeeper": {"servers": "zk:2181", "credentialsSecret": {"name": "zk"}}}
    told = []
    registry = StreamRegistry(cluster, lambda place: served(place.name), ["gw-geo"], told.append, every=0.1)
    with serving(Gateway([], registry=registry)) as client:

        def status(name):
            return client("POST", f"/streams/gw-geo.{name}/ask?no=1", {}).status

        assert await_condition(lambda: client("GET", "/ready").status == 200, 60)
        api.apply(stream("gw-geo", "quakes"))
        api.apply(stream("gw-geo", "ships", secured))
        api.apply(stream("gw-geo", "hidden", {"zookeeper": {"credentialsSecret": {"name": "other"}}}))
        try:
            eventually(lambda: status("quakes") == 400, "a new stream is served")
            eventually(lambda: status("ships") == 503, "its secret is missing")
            metadata = {"namespace": "gw-geo", "name": "zk"}
            secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"credentials": "me:word"}}
            api.apply({**secret, "metadata": metadata})
            eventually(
                lambda: (
                    "streams may not use the Secret"
                    in client("POST", "/streams/gw-geo.ships/ask?no=1", {}).json["detail"]
                ),
                "it has no label",
            )
            api.apply({**secret, "metadata": {**metadata, "labels": {"spatialstream.dev/allowed": "true"}}})
            eventually(lambda: status("ships") == 400, "it can be reached now")
            detail = client("POST", "/streams/gw-geo.hidden/ask?no=1", {}).json["detail"]
            assert 'secrets "other" is forbidden' in detail
        finally:
            for name in ("quakes", "ships", "hidden"):
                api.vanish(streams("gw-geo", name))
        eventually(lambda: status("quakes") == 404, "a stream that is gone is not served")
        eventually(lambda: not registry.unserved, "and nothing is said of those that could not be")
        assert "me:word" not in str(told)


class GatewayProcess(Server):
    """``spatialstream gateway`` as a pod of the chart runs it, but for where the API server is."""

    name = "gateway"

    def __init__(self, folder, server, token):
        super().__init__(folder)
        self._kubeconfig = server.kubeconfig(token)

    def _configure(self):
        (self.folder / "kubeconfig").write_text(json.dumps(self._kubeconfig))

    def _command(self):
        settings = [f"KUBECONFIG={self.folder / 'kubeconfig'}", "NO_PROXY=127.0.0.1"]
        given = ["--namespaces=gw-geo", "--token-review", f"--port={self.port}"]
        return ["env", *settings, sys.executable, "-m", "spatialstream", "gateway", *given]

    def answers(self):
        with contextlib.suppress(OSError):
            return Client(self.port)("GET", "/ready").status == 200
        return False


@pytest.mark.gate
def test_the_command_serves_a_cluster(server, api, installed, tmp_path):
    account(api, "gw-geo", "session", ["ask", "watch"], ["quakes"])
    token = token_of(api, "gw-geo", "session")
    api.apply(stream("gw-geo", "quakes", {"zookeeper": {"servers": "127.0.0.1:1"}}))
    try:
        with GatewayProcess(tmp_path, server, token_of(api, installed.namespace, installed.gateway)) as gateway:
            assert Client(gateway.port)("POST", "/streams/gw-geo.quakes/ask", {}).status == 401
            someone = Client(gateway.port, token)
            assert someone("POST", "/streams/gw-geo.quakes/queries", {}).status == 403

            def away():
                answer = someone("POST", "/streams/gw-geo.quakes/ask?timeout=1s", {"type": "SRQ"})
                assert answer.status == 503
                assert "has not been reached yet" in answer.json["detail"] or "127.0.0.1:1" in answer.json["detail"]
                return "127.0.0.1:1" in answer.json["detail"]

            eventually(away, "who asks is told which server is away")  # the first attempt takes its time
    finally:
        api.vanish(streams("gw-geo", "quakes"))


def test_a_namespace_that_is_not_the_gateways(cluster):
    told = []
    registry = StreamRegistry(cluster, lambda place: served(place.name), ["default"], told.append, every=0.1)
    with serving(Gateway([], registry=registry)) as client:
        assert await_condition(lambda: told, 60)
        assert client("GET", "/ready").status == 503
        assert client("GET", "/live").status == 200
    assert "default: streams cannot be listed: spatialstreams.spatialstream.dev is forbidden" in told[0]

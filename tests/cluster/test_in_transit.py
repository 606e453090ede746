"""What a stream lets others read and ask: all that passes is captured, and all that listens is tried out.

One stream has everything that can be given to it: TLS and a password for Kafka, certificates for ZooKeeper, TLS and
tokens for the gateway, and executors at an address of this machine that is not loopback, as pods have. Another one has
nothing, and shows that the capture would see what it looks for.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import string
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.model.queries import Query
from spatialstream.model.space import WGS84
from spatialstream.servers import job
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.process import await_condition
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.tls import TlsFiles
from tests import strangers
from tests.capture import Capture, End, Flow
from tests.certificates import Authority
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.executors import master, spark_home
from tests.known_listeners import TABLE, Documented, named
from tests.lengths import AT_LENGTH
from tests.listening import Listener, listeners, role
from tests.streams import random_stream
from tests.unit.gateway.http import Client

EVERYWHERE = {"box": [-180, -90, 180, 90]}
_MOST_LOST = 0.01

_WEB_PAGE = "web page of Spark's cluster"
# Spark's own cluster on this machine, which stands for Kubernetes here: a master and two workers within the driver's
# JVM. No stream that is used has one.
_SPARKS_OWN = [
    Documented("driver's JVM", what, "pod", (), "") for what in ("Spark's RPC", _WEB_PAGE) for _ in ("master", 1, 2)
]


def attempt(host: str, port: int, what: str) -> str | None:
    """What is wrong with what listens there, to a stranger."""
    if what != _WEB_PAGE:
        return strangers.TRIED[what](host, port)
    status, text = strangers.get(host, port, "/")
    known = status == 200 and ("Spark Master at" in text or "Spark Worker at" in text)
    return None if known else f"it is no page of Spark's cluster: {status}"


def word(length: int = 24) -> str:
    """A word that nobody else says."""
    return "".join(random.SystemRandom().choices(string.ascii_lowercase, k=length))


def own_address() -> str:
    """An address of this machine at which others would reach it."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        address = str(probe.getsockname()[0])
        if not address.startswith("127."):
            return address
    pytest.skip("this machine has no address but loopback")


@dataclass
class Gate(Client):
    """A client of a gateway, which may speak TLS."""

    tls: bool = False

    def connection(self, timeout: float = 120.0) -> http.client.HTTPConnection:
        if not self.tls:
            return super().connection(timeout)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=strangers.unverified())


class GatewayServer(job.GatewayServer):
    """A gateway with a token that may everything."""

    def __init__(self, folder: Path, where: list[str], token: str, files: TlsFiles | None) -> None:
        tls = [] if files is None else ["--certificate", str(files.certificate), "--key", str(files.key)]
        super().__init__(folder, [*where, *tls, "--tokens", str(folder / "tokens")])
        self._token, self._tls = token, files is not None

    def _configure(self) -> None:
        token = {"name": "test", "token": self._token, "rights": ["ask", "watch", "write"], "streams": ["*"]}
        (self.folder / "tokens").write_text(json.dumps(token))

    def answers(self) -> bool:
        return strangers.get("127.0.0.1", self.port, "/ready", tls=self._tls)[0] == 200


@dataclass
class Passing:
    """A stream through which records with a word of their own have gone, in all the ways that there are.

    Attributes:
        servers: what it runs on.
        stream: itself.
        gateway: of it.
        capture: of all that has passed; None: this process may not capture.
        listening: what listens, of all its processes.
    """

    servers: Servers
    stream: LiveStream
    gateway: GatewayServer
    capture: Capture | None
    listening: list[Listener]

    def captured(self) -> Capture:
        """The capture, if it is worth something."""
        if self.capture is None:
            pytest.skip("this process may not capture (CAP_NET_RAW)")
        loss = self.capture.loss()
        assert loss.lost <= _MOST_LOST * loss.packets, f"{loss}: too much was lost to say anything"
        return self.capture

    def ends(self, *roles: str) -> set[End]:
        """Addresses and ports of what processes of some kinds listen on."""
        return {End(each.host, each.port) for each in self.listening if role(each.command) in roles}

    def named(self, flow: Flow) -> str:
        """A flow, with what processes listen at its ends."""
        roles = {End(each.host, each.port): role(each.command) for each in self.listening}
        return " to ".join(f"{end.address}:{end.port} ({roles.get(end, 'no listener')})" for end in flow)


def has_passed(
    stack: ExitStack,
    servers: Servers,
    name: str,
    folder: Path,
    *more: str,
    files: TlsFiles | None = None,
    environment: dict[str, str] | None = None,
) -> Passing:
    """Have a stream, send objects and queries with one word, ask what can be asked, and see that answers are right."""
    own, token = word(), word()
    drawn = random_stream(9, 300, 4, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    objects = [replace(each, id=f"{own}-{each.id}", terms=(*each.terms, own)) for each in objects]
    queries = [
        replace(each, id=f"{own}-{each.id}", **({"predicate": _asking(each, own)} if isinstance(each, Query) else {}))
        for each in sorted(drawn.queries, key=lambda each: each.t)
    ]
    words = {"record": own, "token": token, "password": servers.kafka.security.get("sasl.password", word())}
    capture = None
    with suppress(PermissionError):
        capture = stack.enter_context(Capture(words | {"key": "-----BEGIN PRIVATE KEY-----"}))
    stream = LiveStream(servers, name, folder, WGS84, 2, *more, environment=environment)
    stack.enter_context(stream)
    where = ["--stream", name, "--bootstrap", servers.kafka.bootstrap, "--zookeeper", servers.zookeeper.hosts]
    known = [each for each in more if each.startswith(("--kafka-security", "--zookeeper-"))]
    given = [part for each in known for part in (each, more[more.index(each) + 1])]
    gateway = stack.enter_context(GatewayServer(folder / "gateway", [*where, *given], token, files))
    if capture is not None:
        assert await_condition(lambda: stream.store.load_statistics("query-endpoint") is not None, PATIENCE)
        capture.look_for("secret", QueryEndpoint.read(stream.store).secret[:24])
    stream.send(objects, queries, 0.0).join()
    assert differences(stream, objects, queries) == []
    _use(Gate(gateway.port, token, files is not None), name, own, objects[-1].t)
    started = servers.kafka, servers.zookeeper, stream.router, stream.worker, gateway
    listening = listeners([each.pid for each in started if each.pid is not None])
    return Passing(servers, stream, gateway, capture, listening)


def _asking(query: Query, own: str) -> Any:
    """The predicate, with the word among what is asked for."""
    predicate = query.predicate
    return replace(predicate, keywords=(*predicate.keywords, own)) if predicate.keywords else predicate


def _use(client: Gate, name: str, own: str, end: int) -> None:
    """Ask at once, list, look back, and send, over the gateway."""
    asked = {"type": "SRQ", "region": EVERYWHERE, "keywords": [own], "duration": "520w"}
    answer = client("POST", f"/streams/{name}/ask?timeout=60s", asked)
    assert answer.status == 200, answer
    assert own in answer.body.decode()
    assert client("GET", f"/streams/{name}/queries?limit=100").status == 200
    assert client("GET", f"/streams/{name}/results/past?query={own}-crq0&since=0").status == 200
    sent = {"id": f"{own}-sent", "t": end + 1, "lon": 0.0, "lat": 0.0, "text": own}
    assert client("POST", f"/streams/{name}/objects", json.dumps(sent).encode()).status == 200


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Passing]:
    """A stream with all that it can be given."""
    folder, address, authority = tmp_path_factory.mktemp("guarded"), own_address(), Authority()
    kafka_tls, zookeeper_tls, client, gateway = (
        TlsFiles(*authority.issue(folder / name, name)) for name in ("kafka", "zookeeper", "client", "gateway")
    )
    environment = spark_home(folder) | {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}
    with (
        ExitStack() as stack,
        ZooKeeperServer(folder / "servers" / "zookeeper", tls=zookeeper_tls) as zookeeper,
        KafkaServer(folder / "servers" / "kafka", login=("someone", word()), tls=kafka_tls) as kafka,
    ):
        zookeeper.tls = client
        properties = folder / "kafka.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in kafka.security.items()))
        known = {"ca": client.authority, "certificate": client.certificate, "key": client.key}
        more = [part for name, path in known.items() for part in (f"--zookeeper-{name}", str(path))]
        more += ["--kafka-security", str(properties), "--master", master(1), "--conf", "spark.executor.memory=512m"]
        # as in pods: Spark's cluster on this machine would otherwise have loopback, where nothing is encrypted
        more += [part for name in ("host", "bindAddress") for part in ("--conf", f"spark.driver.{name}={address}")]
        servers = Servers(zookeeper, kafka)
        yield has_passed(stack, servers, "guarded", folder, *more, files=gateway, environment=environment)


# ------------------------------------------------------------------------------------------------------------ listening


@pytest.mark.timeout(1800)
def test_nothing_listens_that_is_not_in_the_table_and_refuses_strangers(guarded: Passing) -> None:
    ours = [each for each in guarded.listening if role(each.command) not in ("broker", "ZooKeeper")]
    known = named(ours, attempt, [*TABLE, *_SPARKS_OWN], ports=False, at_once=16)
    found = Counter((row.process, row.what) for _, row in known)
    executors = found["executor's JVM", "Spark's blocks"]
    assert executors >= 2
    assert found["actors", "actor"] >= 2
    told = {(each.process, each.what) for each in TABLE if each.process != "operator"}
    assert told - found.keys() == {("gateway", "metrics")}, "no --metrics-port was given"
    for what in ("metrics", "actor registry", "Spark's accumulators"):
        assert found["driver", what] == 2


def test_servers_refuse_strangers(guarded: Passing) -> None:
    kafka, zookeeper = guarded.servers.kafka, guarded.servers.zookeeper
    brokers = {each.port for each in guarded.listening if role(each.command) == "broker"}
    assert len(brokers) == 2, "one for clients, and the controller's"
    assert {each.port for each in guarded.listening if role(each.command) == "ZooKeeper"} == {zookeeper.port}
    versions = b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff"  # what clients begin with
    for port in brokers:
        assert strangers.said("127.0.0.1", port, versions)[:1] in (b"", b"\x15"), "an alert of TLS at most"
    (controller,) = brokers - {kafka.port}
    assert strangers.said("127.0.0.1", controller, versions, tls=True) == b"", "without a certificate"
    for tls in (False, True):
        assert strangers.said("127.0.0.1", zookeeper.port, b"srvr", tls=tls)[:1] in (b"", b"\x15")
    guesses: list[Mapping[str, str]] = [
        {},
        {"security.protocol": "SSL"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "someone", "sasl.password": "?"},
    ]
    for guess in guesses:
        nobody = {"bootstrap.servers": kafka.bootstrap, "log_level": 0, "error_cb": lambda error: None}
        client = AdminClient({**nobody, "enable.ssl.certificate.verification": False, **guess})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=3.0)


# -------------------------------------------------------------------------------------------------------------- passing


def test_no_record_and_no_secret_passes_in_clear(guarded: Passing, capsys: pytest.CaptureFixture[str]) -> None:
    capture = guarded.captured()
    everyone = {"broker", "ZooKeeper", "driver", "driver's JVM", "executor's JVM", "actors", "gateway"}
    for each in everyone:
        assert any(capture.passed(end) for end in guarded.ends(each)), f"nothing of {each} was captured"
    actors = {end for end in guarded.ends("actors") if not end.address.startswith("127.")}
    assert len(actors) >= 2
    assert [end for end in actors if not capture.passed(end)] == [], "all were spoken to, at the machine's address"
    # metrics name the ids of the CRQs with most candidates, and are not encrypted, as docs/production.md says
    metrics = {End("127.0.0.1", job.port) for job in (guarded.stream.router, guarded.stream.worker)}
    assert [guarded.named(flow) for flow in capture.found["record"] if not metrics & set(flow)] == []
    for name in ("token", "secret"):
        assert [guarded.named(flow) for flow in capture.found[name]] == [], name
    # what a job is told goes from a JVM to its Python, within what is a pod
    inside = {
        End(each.host, each.port)
        for each in guarded.listening
        if each.is_loopback and role(each.command) in ("actors", "driver's JVM")
    }
    for name in ("password", "key"):
        flows = capture.found[name]
        assert flows, f"the {name} does pass, so it would be seen elsewhere too"
        assert [flow for flow in flows if not inside & set(flow)] == []
    with capsys.disabled():
        print(f"\n{capture.loss()}, {sum(capture.sent.values()) / 1e6:.1f} MB in {len(capture.sent)} directions")


@pytest.mark.skipif(not AT_LENGTH, reason="at length: it is a test of how the tests capture")
@pytest.mark.timeout(1200)
def test_a_capture_of_a_stream_without_tls_has_its_words(servers: Servers, tmp_path: Path) -> None:
    with ExitStack() as stack:
        passing = has_passed(stack, servers, "in-clear", tmp_path)
        ours = [each for each in passing.listening if role(each.command) not in ("broker", "ZooKeeper")]
        assert {each.address for each in ours} == {"127.0.0.1"}
        found = named(ours, attempt, ports=False, at_once=16)
        capture = passing.captured()
        actors = {End(each.host, each.port) for each, row in found if row.what == "actor"}
        shown = {end for flow in capture.found["record"] for end in flow}
        assert End("127.0.0.1", servers.kafka.port) in shown
        assert End("127.0.0.1", passing.gateway.port) in shown
        assert actors & shown
        assert {end for flow in capture.found["token"] for end in flow} >= {End("127.0.0.1", passing.gateway.port)}
        assert {end for flow in capture.found["secret"] for end in flow} & actors

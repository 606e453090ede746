"""What listens is found, and who answers strangers is found out: the means of the tests of what is in transit."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, Counter
from pyarrow import flight

from spatialstream.actors.identity import new_identity
from spatialstream.actors.registry import ActorRegistry
from spatialstream.cli import metrics
from spatialstream.gateway.app import Gateway
from tests import listening, strangers
from tests.capture import Capture, End
from tests.known_listeners import TABLE, Documented, named, named_where
from tests.listening import Listener, listeners, role, sockets
from tests.strangers import TRIED

# --------------------------------------------------------------------------------------------------------- what listens


def test_the_table_of_the_system_is_read() -> None:
    four = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0000000000000000 100 0
   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 42 1 0000000000000000 20 4
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 43 1 0000000000000000 100 0
"""
    six = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
   0: 0000000000000000FFFF00000100000A:1BA6 0:0 0A 0:0 0:0 0 0 0 51 1
   1: 00000000000000000000000001000000:2328 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 52 1
   2: 00000000000000000000000000000000:2329 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 53 1
"""
    assert list(sockets(four)) == [("41", "127.0.0.1", 8080), ("43", "0.0.0.0", 80)]
    assert list(sockets(six)) == [("51", "10.0.0.1", 7078), ("52", "::1", 9000), ("53", "::", 9001)]


def test_what_listens_here_is_found_with_its_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("", 0)) as open_to_all:
        found = {each.port: each for each in listeners([os.getsid(0)])}
        mine, other = found[server.getsockname()[1]], found[open_to_all.getsockname()[1]]
        assert os.getpid() in mine.processes
        assert (mine.address, mine.is_loopback, mine.host) == ("127.0.0.1", True, "127.0.0.1")
        assert (other.address, other.is_loopback, other.host) == ("0.0.0.0", False, "127.0.0.1")
        assert mine.port not in {each.port for each in listeners([1 << 30])}


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("python -m spatialstream router --stream gateway", "driver"),
        ("/opt/spatialstream/bin/python /opt/spatialstream/bin/spatialstream worker --slots 4", "driver"),
        ("/usr/bin/python -m spatialstream gateway --stream worker", "gateway"),
        ("java -cp x org.apache.spark.deploy.SparkSubmit --conf a=b pyspark-shell", "driver's JVM"),
        ("java org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend --cores 1", "executor's JVM"),
        ("python -m spatialstream.spark.daemon pyspark.worker", "actors"),
        ("python -m spatialstream_operator", "operator"),
        ("python -m http.server", ""),
        ("", ""),
    ],
)
def test_processes_are_known_by_their_commands(command: str, known: str) -> None:
    assert role(command.split()) == known


def test_the_table_of_the_guide_is_read_and_each_row_can_be_tried() -> None:
    assert Documented("driver", "metrics", "pod", (9090,), "all of it, and whether the job runs") in TABLE
    assert {each.what for each in TABLE} == TRIED.keys()
    assert {each.reached for each in TABLE} == {"pod", "loopback"}
    assert {each.process for each in TABLE} == {*listening.COMMANDS.values(), *listening.MAINS.values()} - {
        "broker",
        "ZooKeeper",
    }


def test_a_row_fits_what_is_where_it_says() -> None:
    command = ("python", "-m", "spatialstream", "gateway")
    inside, outside = Documented("gateway", "a", "loopback", (), ""), Documented("gateway", "a", "pod", (9090,), "")
    for address, port, fits in (
        ("127.0.0.1", 1, (True, True)),
        ("0.0.0.0", 9090, (False, True)),
        ("0.0.0.0", 1, (False, False)),
    ):
        listener = Listener(address, port, (1,), command)
        assert (inside.fits(listener, ports=True), outside.fits(listener, ports=True)) == fits
        assert outside.fits(listener, ports=False)
        assert not outside.fits(Listener(address, port, (1,), ("java",)), ports=False)


def test_what_is_not_in_the_table_is_named() -> None:
    rows = [Documented("driver", "a", "pod", (), ""), Documented("driver", "b", "pod", (), "")]
    ours = [Listener("10.0.0.1", port, (7,), ("spatialstream", "worker")) for port in (1, 2, 3)]
    other = Listener("0.0.0.0", 8000, (8,), ("python", "-m", "http.server"))

    def attempt(host: str, port: int, what: str) -> str | None:
        return None if what == "a" or port == 2 else "it answers"

    assert [row.what for _, row in named(ours[:2], attempt, rows, ports=False)] == ["a", "b"]
    with pytest.raises(AssertionError) as raised:
        named([*ours, other], attempt, rows, ports=False)
    told = str(raised.value).splitlines()
    assert told[0].startswith("10.0.0.1:3 of driver is not what docs/production.md says: it has no row")
    assert told[1].startswith("0.0.0.0:8000 of python -m http.server is not what")
    with pytest.raises(AssertionError, match=r"10\.0\.0\.1:3 of driver .*b\? it answers"):
        named([ours[0], ours[2]], attempt, rows, ports=False)


def test_a_port_by_both_versions_of_ip_is_one_row() -> None:
    row, command = Documented("driver", "a", "pod", (), ""), ("spatialstream", "worker")
    both = [Listener(address, 9, (7,), command) for address in ("0.0.0.0", "::")]
    assert [found for _, found in named(both, lambda *place: None, [row], ports=False)] == [row]
    with pytest.raises(AssertionError, match=":::9 of driver"):
        named([both[0], Listener("::", 9, (8, 7), command)], lambda *place: "it answers", [row], ports=False)


def test_a_pod_is_looked_at_from_within() -> None:
    """As by kubectl: a script and its input are all that gets there."""
    asked, registry = list[Any](), CollectorRegistry()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    metrics.serve(registry, "127.0.0.1", port)
    Counter("seen", "what was seen", registry=registry)

    def run(script: str, given: object) -> Any:
        asked.append(given)
        command = [sys.executable, "-I", "-c", script]
        done = subprocess.run(command, input=json.dumps(given).encode(), capture_output=True, check=True)
        found = json.loads(done.stdout)
        if given is not None:
            return found
        mine = [each for each in found if each["port"] == port]  # this machine is no pod
        assert [os.getpid() in each["processes"] for each in mine] == [True]
        return [{**each, "command": ["spatialstream", "worker"]} for each in mine]

    ((listener, row),) = named_where(run)
    assert (listener.address, listener.port, row.what) == ("127.0.0.1", port, "metrics")
    assert asked == [None, [("127.0.0.1", port, "metrics")]]


# ------------------------------------------------------------------------------------------------ who answers strangers


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


class _Yes(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.recv(65536)
        self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"whatever is asked for " * 20)


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])  # type: ignore[index]
    finally:
        server.shutdown()
        server.server_close()


class _Threads(socketserver.ThreadingTCPServer):
    daemon_threads = True


@pytest.mark.parametrize("what", TRIED)
def test_who_answers_whatever_is_said_is_found_out(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "PATIENCE", 2.0)
    monkeypatch.setattr(strangers, "SILENT", 0.2)
    with serving(_Threads(("127.0.0.1", 0), _Echo)) as port:
        assert TRIED[what]("127.0.0.1", port) is not None
    with serving(_Threads(("127.0.0.1", 0), _Yes)) as port:
        assert TRIED[what]("127.0.0.1", port) is not None


class _Open(flight.FlightServerBase):  # type: ignore[misc]
    def do_action(self, context: Any, action: flight.Action) -> list[bytes]:
        return [b"a secret"]

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.RecordBatchStream:
        return flight.RecordBatchStream(pa.table({"a": [1]}))


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_actor_registry_refuses_and_a_server_without_a_guard_is_found_out(encrypted: bool) -> None:
    identity = new_identity() if encrypted else None
    registry = ActorRegistry("127.0.0.1", "own", 10.0, identity, "asking")
    scheme = "tls" if encrypted else "tcp"
    bare = _Open(f"grpc+{scheme}://127.0.0.1:0", tls_certificates=[] if identity is None else [identity])
    try:
        assert strangers.flight("127.0.0.1", registry.port) is None
        told = strangers.flight("127.0.0.1", bare.port) or ""
        assert "the action read_point with [] is answered" in told
        assert "rows with [] is answered" in told
        assert "a schema with [] is not refused: ArrowNotImplementedError" in told
    finally:
        registry.shutdown()
        bare.shutdown()


def test_all_that_a_gateway_serves_is_tried() -> None:
    gateway = Gateway([])
    served = {f"{each.method} {each.path}" for each in gateway.endpoints}
    served |= {f"{method} {path}" for method, path, *_ in gateway.console.endpoints}
    asked = {each.partition("?")[0] for each in (*strangers.OPEN, *strangers.CLOSED)}
    for name in ("stream", "item:path", "query:path", "area:path"):
        served = {each.replace(f"{{{name}}}", "any") for each in served}
    assert {each.replace("{path:path}", "") for each in served} == asked


# ------------------------------------------------------------------------------------------------------------- captures


def test_a_word_is_captured_wherever_packets_begin_and_end() -> None:
    try:
        capture = Capture({"whole": "aquiteunlikelyword", "cut": "anotherunlikelyword", "none": "neversaid"})
    except PermissionError:
        pytest.skip("this process may not capture (CAP_NET_RAW)")
    with capture, socket.create_server(("127.0.0.1", 0)) as server:
        end = End("127.0.0.1", server.getsockname()[1])
        with socket.create_connection(end) as client, server.accept()[0] as accepted:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for part in (b"- anotherun", b"likelyword -", "aquiteunlikelyword".encode("utf-16-le")):
                client.sendall(part)
                got = b""
                while len(got) < len(part):
                    got += accepted.recv(100)
            accepted.sendall(b"neversa")
            assert client.recv(100) == b"neversa"
    assert {name: {flow.target for flow in flows} for name, flows in capture.found.items()} == {
        "whole": {end},
        "cut": {end},
        "none": set(),
    }
    assert capture.passed(end) == 23 + 36 + 7
    loss = capture.loss()
    assert loss.packets > 0
    assert loss.lost == 0

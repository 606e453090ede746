"""Clients of the broker that stay connected: over its restarts, in forks, and where nobody answers."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pyarrow as pa
import pytest

from spatialstream.client import RecordWriter, Results
from spatialstream.connectors import kafka_clients
from spatialstream.connectors.kafka import Connection, Topics
from spatialstream.connectors.kafka_security import read_properties
from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink
from spatialstream.connectors.keys import block_key
from spatialstream.model.errors import Unavailable
from spatialstream.servers.kafka import KafkaServer
from spatialstream.store.tls import TlsFiles
from tests.certificates import Authority
from tests.cluster.stream import PATIENCE, Servers


def block(number: int, size: int = 1000) -> tuple[int, bytes, pa.Buffer]:
    return 0, block_key(0, 0, number, "objects"), pa.py_buffer(b"%d" % number * size)


def numbers(channel: KafkaChannel, start: int = 0) -> list[bytes]:
    return [key for key, _ in channel.blocks(0, start, channel.ends()[0])]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path / "kafka", login=("someone", "quite secret")) as server:
        yield server


@pytest.mark.timeout(600)
def test_a_broker_that_dies_and_comes_back(kafka: KafkaServer) -> None:
    connection = Connection(kafka.bootstrap, kafka.security)
    Topics("s").ensure(connection, slots=1)
    channel, sent = KafkaChannel(connection, "s", 1), 0
    channel.send([block(-1)])
    restart = threading.Thread(target=lambda: (time.sleep(0.3), kafka.kill(), kafka.start(PATIENCE)))
    restart.start()
    while restart.is_alive():  # each is made while the broker is there, is dying, is away, or is coming back
        channel.send(block(number) for number in range(sent, sent + 3))
        sent += 3
        assert list(dict.fromkeys(numbers(channel)))[1:] == [block(number)[1] for number in range(sent)]
    restart.join()
    channel.send([block(sent)])
    assert numbers(channel)[-1] == block(sent)[1]


@pytest.mark.timeout(600)
def test_a_process_that_is_forked_makes_its_own_clients(servers: Servers) -> None:
    connection = Connection(servers.kafka.bootstrap)
    Topics("forks").ensure(connection, slots=1)
    channel = KafkaChannel(connection, "forks", 1)
    channel.send([block(0)])
    assert len(numbers(channel)) == 1

    def again() -> None:
        copy = pickle.loads(pickle.dumps(channel))
        copy.send([block(1)])
        assert len(numbers(copy)) == 2

    fork = multiprocessing.get_context("fork").Process(target=again)
    fork.start()
    fork.join(PATIENCE)
    assert fork.exitcode == 0
    assert numbers(channel) == [block(0)[1], block(1)[1]]


@pytest.mark.timeout(600)
def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "PATIENCE", 2.0)
    monkeypatch.setattr(kafka_clients, "_END_PATIENCE", 0.1)
    channel = KafkaChannel(Connection("127.0.0.1:1"), "s", 1)
    with pytest.raises(Unavailable):
        channel.send([block(0)])
    with pytest.raises(Unavailable):
        list(channel.blocks(0, 0, 1))


@pytest.mark.timeout(600)
def test_more_than_the_queue_holds(servers: Servers) -> None:
    connection = Connection(servers.kafka.bootstrap)
    Topics("queued").ensure(connection, slots=1)
    channel = KafkaChannel(connection, "queued", 1)
    channel.send(block(number, 1) for number in range(120_000))  # librdkafka queues 100,000 messages
    assert len(numbers(channel)) == 120_000
    channel.send(block(number, 8_000_000) for number in range(1, 30))  # and here 128 MB
    assert numbers(channel, 120_000) == [block(number)[1] for number in range(1, 30)]


class _Certified(KafkaServer):
    """A broker that shows a certificate, and wants one."""

    def _configure(self) -> None:
        super()._configure()
        for name in ("ca", "inter", "server", "client"):
            _certify(self.folder, name)
        path = self.folder / "server.properties"
        keys = "".join((self.folder / name).read_text() for name in ("server.key", "server.pem", "inter.pem"))
        (self.folder / "keys.pem").write_text(keys)
        (self.folder / "chain.pem").write_text(
            "".join((self.folder / f"{n}.pem").read_text() for n in ("client", "inter"))
        )
        text = path.read_text().replace("PLAINTEXT://127", "SSL://127")
        text = text.replace("listener.name=PLAINTEXT", "listener.name=SSL").replace("PLAINTEXT:PLAINTEXT", "SSL:SSL")
        text += "ssl.keystore.type=PEM\nssl.keystore.location=keys.pem\nssl.client.auth=required\n"
        path.write_text(text + "ssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n")
        files = {"ssl.ca": "ca.pem", "ssl.certificate": "chain.pem", "ssl.key": "client.key"}
        lines = [f"{name}.location={self.folder / file}\n" for name, file in files.items()]
        (self.folder / "client.properties").write_text("security.protocol=SSL\n" + "".join(lines))

    @property
    def security(self) -> dict[str, str]:
        return read_properties(self.folder / "client.properties")


def _certify(folder: Path, name: str) -> None:
    """A key and a certificate: of an authority, of one below it, or of somebody whom the latter vouches for."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-subj", f"/CN={name}")
    if name == "ca":
        openssl(*new, "-x509", "-out", "ca.pem", "-days", "2")
        return
    openssl(*new, "-out", f"{name}.csr")
    extension = "basicConstraints=CA:TRUE" if name == "inter" else "subjectAltName=IP:127.0.0.1"
    (folder / f"{name}.ext").write_text(extension)
    by = "ca" if name == "inter" else "inter"
    signed = ("x509", "-req", "-in", f"{name}.csr", "-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial")
    openssl(*signed, "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext")


@pytest.mark.timeout(600)
def test_certificates_go_with_the_clients(tmp_path: Path) -> None:
    with _Certified(tmp_path / "kafka") as kafka:
        connection = Connection(kafka.bootstrap, kafka.security)
        Topics("s").ensure(connection, slots=1)
        (tmp_path / "kafka" / "client.key").unlink()  # on another machine there are no such files
        channel = pickle.loads(pickle.dumps(KafkaChannel(connection, "s", 1)))
        channel.send([block(0)])
        assert numbers(channel) == [block(0)[1]]


@pytest.mark.timeout(900)
def test_certificates_are_renewed_under_open_clients(tmp_path: Path) -> None:
    """The broker comes back with those of another authority, after the clients have theirs, and before."""
    folder, stream = tmp_path / "certificates", "renewed"
    properties, files = tmp_path / "kafka.properties", Authority("first").issue(folder)
    with KafkaServer(tmp_path / "kafka", tls=TlsFiles(*files)) as kafka:
        properties.write_text("".join(f"{name}={value}\n" for name, value in kafka.security.items()))
        connection = Connection(kafka.bootstrap, read_properties(properties), file=properties)
        Topics(stream).ensure(connection, slots=1)
        channel, record_writer, sink = (
            KafkaChannel(connection, stream, 1),
            RecordWriter(connection, stream),
            KafkaSink(connection, stream),
        )
        results = Results(connection, stream)

        def goes_on(number: int) -> None:
            channel.send([block(number)])
            assert numbers(channel) == [block(each)[1] for each in range(number + 1)]
            assert record_writer.queries({"id": f"{number}"}).offset == number
            row = json.dumps({"query": f"{number}"})
            assert sink.rows(number, 0, [pa.array([row], pa.large_string())]) == 1
            assert next(results.messages(lambda: False)) == row.encode()

        goes_on(0)
        kafka.stop()
        Authority("second").issue(folder)
        kafka.start(PATIENCE)
        goes_on(1)
        kafka.stop()
        later = Authority("third").issue(tmp_path / "later")
        kafka.tls = TlsFiles(*later)
        kafka.start(PATIENCE)
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(_send_at_last, channel, block(2))
            for path in (
                later.key,
                later.certificate,
                later.authority,
            ):  # not all at once, and the broker is there before
                assert wait([sending], 2.0).not_done
                shutil.copy(path, folder)
            refusals = sending.result(PATIENCE)
        assert "the credentials for the broker have been renewed" in refusals[0]
        assert "certificate" in refusals[0], "it is said why nobody is let in"
        record_writer.queries({"id": "2"})
        assert numbers(channel)[-1] == block(2)[1]
        results.close()


def _send_at_last(channel: KafkaChannel, what: tuple[int, bytes, pa.Buffer]) -> list[str]:
    """Send it, as often as needed; why it failed before."""
    failed = list[str]()
    while True:
        try:
            channel.send([what])
        except Unavailable as error:
            failed.append(str(error))
        else:
            return failed

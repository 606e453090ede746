"""Servers on this machine: started, stopped, killed and started again, with their data."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from spatialstream.model.errors import ServerError, SettingError
from spatialstream.servers import jars
from spatialstream.servers.kafka import MESSAGE_BYTES, KafkaServer
from spatialstream.servers.ports import HOST, free_port
from spatialstream.servers.process import Server, stop_recorded
from spatialstream.servers.zookeeper import ZooKeeperServer


def listens(port):
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def exists(pid):
    """Whether a process runs; one that has ended and that nobody has asked about does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


# ------------------------------------------------------------------------------------------------------ any server


class Dummy(Server):
    """A server in a line of Python, that answers once the file ``ready`` is there."""

    name = "Dummy"

    def __init__(self, folder, code):
        super().__init__(folder)
        self.code = code

    def _configure(self):
        (self.folder / "ready").unlink(missing_ok=True)

    def _command(self):
        return [sys.executable, "-c", self.code]

    def answers(self):
        return (self.folder / "ready").exists()


READY = "import pathlib, signal, subprocess, sys, time; pathlib.Path('ready').touch(); "


def test_a_server_that_ends_at_once(tmp_path):
    server = Dummy(tmp_path, "print('no disk'); print('is left'); raise SystemExit(3)")

    with pytest.raises(ServerError, match=r"Dummy ended\n(?s:.*)no disk\nis left") as caught:
        server.start()

    assert not server.running
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.output) == (str(caught.value), caught.value.output)


def test_a_server_that_does_not_answer(tmp_path):
    server = Dummy(
        tmp_path, "import os, pathlib, time; pathlib.Path('me').write_text(str(os.getpid())); time.sleep(600)"
    )

    with pytest.raises(ServerError, match=r"did not answer within 5 s"):
        server.start(timeout=5.0)

    assert not server.running
    assert not exists(int((tmp_path / "me").read_text()))


def test_a_server_that_does_not_want_to_stop(tmp_path):
    server = Dummy(
        tmp_path, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "time.sleep(600)"
    )
    pid = server.start().pid
    began = time.monotonic()

    server.stop(timeout=0.3)

    assert time.monotonic() - began >= 0.3
    assert not exists(pid)


def test_children_of_the_server_end_with_it(tmp_path):
    child = "c = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print(c.pid, flush=True); "
    server = Dummy(tmp_path, "import subprocess, sys; " + child + READY + "time.sleep(600)")
    server.start()
    pid = int(server.log.read_text())
    assert exists(pid)

    server.kill()

    deadline = time.monotonic() + 60.0
    while exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not exists(pid)


def test_to_start_or_stop_twice_does_nothing(tmp_path):
    server = Dummy(tmp_path, READY + "time.sleep(600)")
    server.stop()
    pid = server.start().pid

    assert server.start().pid == pid
    server.stop()
    server.stop()
    server.kill()

    assert server.pid is None
    assert not exists(pid)


FORGETFUL = """
import sys
from pathlib import Path
from tests.cluster.test_servers import READY, Dummy
server = Dummy(Path(sys.argv[1]), READY + "time.sleep(600)").start()
if sys.argv[2] == "detach":
    server.detach()
print(server.pid)
"""


def run_forgetful(folder, how):
    done = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(folder), how],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    return int(done.stdout)


def test_a_server_ends_with_the_process_that_started_it(tmp_path):
    assert not exists(run_forgetful(tmp_path, "keep"))
    assert not stop_recorded(tmp_path)


def test_a_detached_server_is_stopped_by_its_folder(tmp_path):
    pid = run_forgetful(tmp_path, "detach")
    assert exists(pid)

    assert stop_recorded(tmp_path)

    assert not exists(pid)
    assert not stop_recorded(tmp_path)


def test_another_process_of_the_same_number_is_left_alone(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as stranger:
        (tmp_path / "pid").write_text(f"{stranger.pid} 1\n")

        assert not stop_recorded(tmp_path)

        assert stranger.poll() is None
        os.kill(stranger.pid, signal.SIGKILL)


def test_ports_are_free_and_given_once():
    ports = [free_port() for _ in range(50)]

    assert len(set(ports)) == 50
    assert not any(listens(port) for port in ports)
    lowest, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(ports) < int(lowest)


# -------------------------------------------------------------------------------------------------------- ZooKeeper


def test_zookeeper_keeps_its_data_over_a_crash(tmp_path):
    server = ZooKeeperServer(tmp_path / "zookeeper")
    assert not listens(server.port)
    with server:
        pid = server.pid
        client = KazooClient(server.hosts)
        client.start()
        client.create("/kept", b"yes")
        client.stop()
        client.close()

        server.kill()
        assert not exists(pid)
        assert not listens(server.port)
        server.start()

        client = KazooClient(server.hosts)
        client.start()
        assert client.get("/kept")[0] == b"yes"
        client.stop()
        client.close()
        assert server.restart().running
    assert not listens(server.port)


# ------------------------------------------------------------------------------------------------------------ Kafka


def produce(server, values):
    failures = []
    producer = Producer({"bootstrap.servers": server.bootstrap, "message.max.bytes": MESSAGE_BYTES, "acks": "all"})
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(240.0) == 0
    assert failures == []


def consume(server, count, first=0):
    consumer = Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "fetch.message.max.bytes": MESSAGE_BYTES}
    )
    consumer.assign([TopicPartition("t", 0, first)])
    found = []
    deadline = time.monotonic() + 240.0
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            found.append(message.value())
    consumer.close()
    return found


def test_kafka_keeps_its_data_over_a_crash(tmp_path):
    server = KafkaServer(tmp_path / "kafka")
    values = [b"%d" % i for i in range(1000)] + [os.urandom(10_000_000)]
    with server:
        pid = server.pid
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        wanted = NewTopic("t", num_partitions=1, replication_factor=1, config={"max.message.bytes": str(MESSAGE_BYTES)})
        admin.create_topics([wanted])["t"].result(240.0)
        produce(server, values)

        server.kill()
        assert not exists(pid)
        server.start()

        assert consume(server, len(values)) == values
        produce(server, [b"after"])
        with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
            Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"}).get_watermark_offsets(
                TopicPartition("unheard-of", 0), timeout=60.0
            )
        assert "unheard-of" not in admin.list_topics(timeout=60.0).topics
    assert not listens(server.port)
    with KafkaServer(tmp_path / "kafka", server.port) as again:
        assert consume(again, 1, len(values)) == [b"after"]


# ------------------------------------------------------------------------------------------------------------- jars


def test_the_jars_are_those_of_the_environment():
    assert "/kafka_2.13-" in jars.kafka_class_path()
    assert Path(jars.java()).is_file()


def test_a_variable_goes_before_the_environment(tmp_path, monkeypatch):
    (tmp_path / "kafka").mkdir()
    monkeypatch.setenv(jars.VARIABLE, str(tmp_path))

    with pytest.raises(SettingError, match="holds no jars"):
        jars.kafka_class_path()
    (tmp_path / "kafka" / "one.jar").touch()
    assert jars.kafka_class_path() == str(tmp_path / "kafka" / "one.jar")


def test_missing_jars_and_java_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv(jars.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(SettingError, match=r"nowhere is not a folder"):
        jars.kafka_class_path()
    monkeypatch.delenv(jars.VARIABLE)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    with pytest.raises(SettingError, match=r"make \.venv/\.jars"):
        jars.kafka_class_path()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SettingError, match="install a JDK"):
        jars.java()

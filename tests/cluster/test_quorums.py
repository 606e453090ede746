"""A live stream over three ZooKeeper servers and three brokers of which one, or two, go away: the oracle's results."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from kazoo.client import KazooClient

from spatialstream.client import Connection, Results, connect
from spatialstream.connectors.kafka import Topics
from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Query
from spatialstream.model.space import WGS84
from spatialstream.servers.job import JobServer
from spatialstream.servers.kafka import metadata_of
from spatialstream.servers.process import Server, await_condition
from tests.cluster.quorum import KafkaQuorum, ZooKeeperQuorum
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.cluster.test_asked import SNAPSHOTS, Asking
from tests.cluster.test_faults import publish_moved
from tests.lengths import AT_LENGTH, examples
from tests.streams import random_stream

_SESSION = 10.0  # seconds, the store's
_MINUTE = 60.0
_JOBS = ("router", "worker")
_MORE = int(os.environ.get("SPATIALSTREAM_QUORUM_FAULTS", examples(0, 30)))
"""Faults that are drawn at random, after those that always are. With 93 the test had not ended after 40 minutes beside
other work, and a part of the complete run may take 30."""


@dataclass
class Quorums:
    """What a stream runs on, and what it lost of that.

    Attributes:
        stream: the stream, which objects are sent to.
        objects: these, in the order of time.
        zookeeper, kafka: its servers.
        tell: is told how long it took to get over each fault.
    """

    stream: LiveStream
    objects: Sequence[SpatialObject]
    zookeeper: ZooKeeperQuorum
    kafka: KafkaQuorum
    tell: Callable[[str], object]

    def lose(
        self,
        name: str,
        victims: Sequence[Server],
        *,
        hung: bool = False,
        seconds: float | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Some servers are killed, or hang; until the stream has got over it, or for some time. Then all are back.

        Args:
            name: of the fault.
            victims: the servers.
            hung: they do not end: they stand still.
            seconds: how long they are away; None: until results have come without them, and a version was adopted.
            meanwhile: is done while they are away.
        """
        began = time.monotonic()

        def act(number: int, otherwise: Callable[[Server], object]) -> None:
            for each in victims:
                if hung:
                    _signal(each, number)
                else:
                    otherwise(each)

        act(signal.SIGSTOP, lambda server: server.kill())
        if seconds is None:
            self._measure(name, began)
        meanwhile()
        time.sleep(max(0.0, began + (seconds or 0.0) - time.monotonic()))  # it is the time itself that sessions end by
        began = time.monotonic()
        act(signal.SIGCONT, lambda server: server.launch())
        if seconds is not None:
            assert await_condition(self._revived, PATIENCE)
            self._measure(f"{name}, from when they are there again", began)
        assert await_condition(lambda: self.zookeeper.is_whole() and self.kafka.is_whole(), PATIENCE)

    def _measure(self, name: str, began: float) -> None:
        """Note when there are results of what was sent from now on, and when a version of the routing was adopted."""
        self.await_results()
        rows = time.monotonic() - began
        self._adopt()
        adopted = time.monotonic() - began
        self.tell(f"{name:<66} {rows:5.1f} s until results came, {adopted:5.1f} s until a version was adopted")

    def await_results(self) -> None:
        """Wait for a row about an object that has not been sent yet."""
        after, seen = self.objects[self.stream.sending.sent].t, len(self.stream.lines)

        def came() -> bool:
            nonlocal seen
            lines = self.stream.lines[seen:]
            seen += len(lines)
            return any(json.loads(line)["t"] >= after for line in lines)

        assert await_condition(came, PATIENCE)

    def _adopt(self) -> None:
        """Have every leaf moved."""
        store, before = self.stream.store, list[int]()

        def adopted() -> bool:
            with suppress(Unavailable, StateError):  # it may have been published all the same
                state = store.state()
                before.append(state.active.number)
                if before[-1] > before[0]:
                    return True
                if state.pending is None:
                    publish_moved(self.stream)
            return False

        assert await_condition(adopted, PATIENCE)

    def _revived(self) -> bool:
        """Whether both jobs run; one that has ended is begun again, as the operator would."""
        for name in _JOBS:
            job: JobServer = getattr(self.stream, name)
            if not job.running:
                job.kill()  # what is left of its group
                job.launch()
        return all(getattr(self.stream, name).answers() for name in _JOBS)

    def lose_each(self) -> None:
        """Leaders, minorities and majorities, of ZooKeeper and of the brokers."""
        self.lose("ZooKeeper's leader killed", [self._leader()])
        if AT_LENGTH:
            self.lose("ZooKeeper's leader hangs", [self._leader()], hung=True)
        long = {"seconds": 1.5 * _SESSION, "meanwhile": self.await_results}
        self.lose("two ZooKeeper servers killed", [self._leader(), self._follower()], **long)  # type: ignore[arg-type]
        self.lose("the broker that leads the results killed", [self._broker("results")])
        if AT_LENGTH:  # with every change test_a_broker_that_hangs_is_left_for_another
            self.lose("the broker that leads blocks hangs", [self._broker("blocks")], hung=True)
        leader = self._broker("epochs")
        other = next(each for each in self.kafka.servers if each is not leader)
        self.lose("two brokers killed", [leader, other], seconds=1.5 * _SESSION)
        if AT_LENGTH:
            self.lose("the active controller killed", [_found(lambda: self.kafka.controller)])
            self.lose("all brokers killed", self.kafka.servers, seconds=_MINUTE)
            self.lose("all ZooKeeper servers hang", self.zookeeper.servers, hung=True, seconds=_MINUTE)

    def lose_at_random(self, count: int, chance: random.Random) -> None:
        """Some of ZooKeeper's servers, or of the brokers, or of both, for some time; now and then a job besides."""
        for number in range(count):
            victims = [
                each
                for quorum in chance.choice([[self.zookeeper], [self.kafka], [self.zookeeper, self.kafka]])
                for each in chance.sample(quorum.servers, chance.choice([1, 1, 2, 3]))
            ]
            hung, seconds = chance.random() < 0.3, chance.choice([0.0, 2.0, 5.0, 15.0])
            job: JobServer | None = chance.choice([None, None, None, self.stream.router, self.stream.worker])
            names = ", ".join(f"{each.name} {each.folder.name}" for each in victims)
            name = f"{number}: {names} {'hung' if hung else 'killed'} for {seconds:g} s"
            name += "" if job is None else f", and the {job.name} killed"
            self.lose(name, victims, hung=hung, seconds=seconds, meanwhile=(lambda: None) if job is None else job.kill)

    def _leader(self) -> Server:
        return _found(lambda: self.zookeeper.leader)

    def _follower(self) -> Server:
        leader = self._leader()
        return next(each for each in self.zookeeper.servers if each is not leader)

    def _broker(self, topic: str) -> Server:
        """The one that leads a topic's first partition."""
        return _found(lambda: self.kafka.leader(f"{self.stream.name}.{topic}"))


def _signal(server: Server, number: int) -> None:
    assert server.pid is not None
    os.kill(server.pid, number)


def _found(look: Callable[[], Server | None]) -> Server:
    """Who is elected, once somebody is."""
    found: list[Server] = []

    def there() -> bool:
        each = look()
        if each is not None:
            found.append(each)
        return each is not None

    assert await_condition(there, PATIENCE)
    return found[0]


def _leases(stream: LiveStream) -> dict[str, tuple[int, bool]]:
    """Of each job the number of its lease, and whether somebody has it."""
    client = KazooClient(stream.servers.zookeeper.hosts)
    client.start(PATIENCE)
    try:
        paths = {job: f"/spatialstream/{stream.name}/leases/{job}" for job in _JOBS}
        return {
            job: (client.exists(path).version, client.exists(f"{path}/holder") is not None)
            for job, path in paths.items()
        }
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder: Path = tmp_path_factory.mktemp("quorums")
    zookeeper, kafka = ZooKeeperQuorum(folder / "zookeeper"), KafkaQuorum(folder / "kafka")
    try:
        zookeeper.launch()
        kafka.start(PATIENCE)
        yield Servers(zookeeper.start(PATIENCE), kafka)
    finally:
        kafka.kill()  # brokers in order wait for each other, and nobody reads their data again
        zookeeper.kill()


def test_topics_have_three_copies_of_which_two_have_to_have_a_message(servers: Servers) -> None:
    connection, topics = Connection(servers.kafka.bootstrap), Topics("copies")
    topics.ensure(connection, slots=2, objects=3)
    admin, found = connection.admin(), metadata_of(servers.kafka.bootstrap, {}, PATIENCE)
    assert found is not None
    for topic in (topics.objects, topics.queries, topics.results, topics.rejected, topics.blocks, topics.epochs):
        assert all(len(each.replicas) == 3 for each in found.topics[topic].partitions.values())
        resource = ConfigResource(ResourceType.TOPIC, topic)
        settings = admin.describe_configs([resource])[resource].result(PATIENCE)
        assert settings["min.insync.replicas"].value == "2"


def test_a_broker_that_hangs_is_left_for_another(servers: Servers) -> None:
    """So is one whose node has lost its power: nobody tells its clients that their connections are no more."""
    kafka = servers.kafka
    assert isinstance(kafka, KafkaQuorum)
    connection = Connection(kafka.bootstrap)
    for stream in (f"hung-{number}" for number in count()):
        Topics(stream).ensure(connection, slots=1)
        broker = _found(lambda topic=f"{stream}.blocks": kafka.leader(topic))
        if kafka.leader(f"{stream}.results") is broker:
            break
    channel, sink = KafkaChannel(connection, stream, 1, "one"), KafkaSink(connection, stream, incarnation="one")
    with closing(Results(connection, stream)) as results:

        def pass_through(number: int) -> None:
            (start,) = channel.ends()
            channel.send([(0, b"%d" % number, pa.py_buffer(b"x"))])
            assert [key for key, _ in channel.blocks(0, start, channel.ends()[0])] == [b"%d" % number]
            row = f'{{"query": "q", "number": {number}}}'
            sink.rows(number, 0, [pa.array([row], pa.large_string())])
            assert next(results.messages(lambda: False)) == row.encode()

        pass_through(0)
        _signal(broker, signal.SIGSTOP)
        try:
            began = time.monotonic()
            pass_through(1)
            took = time.monotonic() - began
        finally:
            _signal(broker, signal.SIGCONT)
        pass_through(2)
    assert took < 60.0, "librdkafka would wait a minute, and more where several requests come one after the other"
    assert await_condition(kafka.is_whole, PATIENCE)


@pytest.mark.timeout(900 + 60 * _MORE)
def test_leaders_minorities_and_majorities_go_and_come_back(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(servers.zookeeper, ZooKeeperQuorum)
    assert isinstance(servers.kafka, KafkaQuorum)
    drawn = random_stream(16, 12_000 + 900 * _MORE, 20, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    snapshots = [each for each in queries if isinstance(each, Query) and each.type in SNAPSHOTS]
    with (
        LiveStream(servers, "quorums", tmp_path, WGS84) as stream,
        connect("quorums", servers.zookeeper.hosts) as opened,
    ):

        def tell(text: str) -> None:
            with capsys.disabled():
                print(f"\n{text}", end="", flush=True)

        quorums = Quorums(stream, objects, servers.zookeeper, servers.kafka, tell)
        leases, pids = _leases(stream), (stream.router.pid, stream.worker.pid)
        sending = stream.send(objects, queries, rate=60.0, lasting=True)
        stream.await_rows(100)
        with Asking(opened, snapshots) as asking:
            assert asking.answered_again()
            quorums.lose_each()
            assert (stream.router.pid, stream.worker.pid) == pids, "a job has ended, and need not have"
            assert await_condition(lambda: _leases(stream) == leases, PATIENCE)
            quorums.lose_at_random(_MORE, random.Random(16))
            assert sending.is_alive(), "there was not enough of the stream"
            assert asking.answered_again(), asking.refused[-1:]
            stream.sending.rate = 0.0  # the rest as fast as can be
            sending.join()
            assert differences(stream, objects, queries) == []
        assert not asking.failed
        assert asking.differences(objects) == []
        tell(
            f"{stream.results.repeated} repeated rows of results were dropped; {asking.given} answers to "
            f"queries between the rounds, {len(asking.refused)} calls without one: {asking.refused[-1:]}\n"
        )

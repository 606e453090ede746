"""Topics that are deleted while a stream runs: who looks after it is told which, and nothing is lost silently."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from spatialstream.client import CLOCK, Connection, watermark
from spatialstream.connectors.kafka import LARGEST_MESSAGE, Topics
from spatialstream.model.errors import ServerError
from spatialstream.model.space import Space
from spatialstream.servers.process import await_condition
from spatialstream.store.reports import read_trouble
from spatialstream_operator.decisions.balance import Verdict
from spatialstream_operator.decisions.conditions import Job, Summary, conditions
from spatialstream_operator.decisions.rebalancing_state import Phase
from tests.cluster.stream import PARTITIONS, PATIENCE, LiveStream, Servers

PLANE = Space.planar(0.0, 0.0, 1.0, 1.0)
JOBS = ("router", "worker")
BALANCED = Verdict("True", "Balanced", "Load is in balance.")
EACH = {"id": "each", "type": "CRQ", "t": 1, "keywords": ["all"], "region": {"box": [0, 0, 1, 1]}}


class Feed:
    """Sends objects, one of which is a bad record, and says which rows they give."""

    def __init__(self, stream: LiveStream) -> None:
        self.topics, self.t = Topics(stream.name), 1_000
        self._producer = stream.connection.producer()
        self._producer.produce(self.topics.queries, json.dumps(EACH).encode())

    def objects(self, count: int = 20) -> set[str]:
        self.t += 1_000
        ids = [f"o{self.t + i}" for i in range(count)]
        for number, name in enumerate(ids):
            record = {"id": name, "t": self.t, "x": 0.5, "y": 0.5, "text": "all"}
            self._producer.produce(self.topics.objects, json.dumps(record).encode(), partition=number % PARTITIONS)
        self._producer.produce(self.topics.objects, f'{{"id": "bad{self.t}"'.encode(), partition=0)
        for partition in range(PARTITIONS):
            self._producer.produce(self.topics.objects, watermark(self.t + 1), CLOCK, partition)
        self._producer.produce(self.topics.queries, watermark(self.t + 1), CLOCK)
        assert self._producer.flush(60.0) == 0
        return set(ids)


@pytest.fixture
def stream(
    servers: Servers, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveStream]:
    name = f"topics-{request.node.callspec.id}" if hasattr(request.node, "callspec") else "topics"
    with LiveStream(servers, name, tmp_path_factory.mktemp(name), PLANE) as stream:
        yield stream


def delete(stream: LiveStream, topic: str) -> None:
    admin = stream.connection.admin()  # its futures end with it
    admin.delete_topics([topic])[topic].result(PATIENCE)


def create(connection: Connection, topic: str, partitions: int = 1) -> None:
    wanted = NewTopic(topic, partitions, 1, config={"max.message.bytes": str(LARGEST_MESSAGE)})
    admin = connection.admin()
    admin.create_topics([wanted])[topic].result(PATIENCE)


def troubles(stream: LiveStream) -> list[str]:
    """What both jobs have left in the routing store, where the operator reads it."""
    return [read_trouble(stream.store, job).text for job in JOBS]


def ready(stream: LiveStream) -> tuple[str, str]:
    """Status and message of the SpatialStream's condition Ready, as the operator makes it from that."""
    now = int(time.time() * 1000)
    router, worker = (
        Job(job, "running", trouble=trouble.text, since=trouble.since)
        for job, trouble in ((job, read_trouble(stream.store, job)) for job in JOBS)
    )
    made = conditions(Summary(now, 1, router, worker, BALANCED, Phase.WATCHING, {}))
    return next((each["status"], each["message"]) for each in made if each["type"] == "Ready")


def rows(stream: LiveStream) -> list[str]:
    """Ids of the objects in the messages of the topic of results."""
    values = [value for _, value in stream.messages(Topics(stream.name).results)]
    return [json.loads(line)["object"]["id"] for value in values for line in value.split(b"\n")]


@pytest.mark.timeout(1200)
def test_output_topics_that_are_deleted_are_told_and_get_what_comes_then_once_they_are_there_again(
    stream: LiveStream,
) -> None:
    feed, topics = Feed(stream), Topics(stream.name)
    before = feed.objects()
    assert await_condition(lambda: set(rows(stream)) == before, PATIENCE)
    assert await_condition(lambda: len(stream.rejected()) == 1, PATIENCE)

    for topic in (topics.rejected, topics.results):
        delete(stream, topic)
        gone = f"the broker has no topic {topic}"
        # nothing is sent: a stream at rest is told about, too
        assert await_condition(lambda gone=gone: troubles(stream) == [gone, gone], PATIENCE), troubles(stream)
        status, message = ready(stream)
        assert (status, message) == ("False", f"The router is not ready: it cannot continue, and retries: {gone}.")
        for job in (stream.router, stream.worker):
            assert f"{job.name}: {gone}\n" in job.log.read_text()
        after = feed.objects()
        if topic == topics.results:
            failed = f"worker: messages to {topic} were not delivered: "
            assert await_condition(lambda failed=failed: failed in stream.worker.log.read_text(), PATIENCE)
        create(stream.connection, topic)
        assert await_condition(lambda: troubles(stream) == ["", ""], PATIENCE), troubles(stream)
        assert ready(stream)[0] == "True"

    assert await_condition(lambda: set(rows(stream)) == after, PATIENCE), "what the deleted topic held is gone with it"
    assert await_condition(lambda: len(stream.rejected()) == 2, PATIENCE)
    assert (stream.router.running, stream.worker.running) == (True, True)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["objects", "queries", "blocks", "epochs"])
def test_a_deleted_topic_from_which_jobs_continue_is_told_and_one_created_in_its_place_is_refused(
    stream: LiveStream, kind: str
) -> None:
    feed, topic = Feed(stream), Topics(stream.name).names[kind]
    before = feed.objects()
    assert await_condition(lambda: set(rows(stream)) == before, PATIENCE)

    delete(stream, topic)
    gone = f"the broker has no topic {topic}"
    assert await_condition(lambda: troubles(stream) == [gone, gone], PATIENCE), troubles(stream)
    assert ready(stream) == ("False", f"The router is not ready: it cannot continue, and retries: {gone}.")

    create(stream.connection, topic, {"objects": PARTITIONS, "blocks": stream.slots}.get(kind, 1))
    for job in (stream.router, stream.worker):
        assert await_condition(lambda job=job: not job.running, PATIENCE), job.name
        assert f"{topic} was deleted, and is there again" in job.log.read_text()
    with pytest.raises(ServerError):
        stream.router.start(timeout=PATIENCE)
    assert f"{topic} was deleted and created again, so the stream cannot continue: " in stream.router.log.read_text()
    assert set(rows(stream)) == before

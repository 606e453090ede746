"""``spatialstream remove``: what cannot be removed is no reason to leave the rest."""

from types import SimpleNamespace

import pytest

from spatialstream.cli import live, main
from spatialstream.connectors import kafka
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.kafka import Topics
from spatialstream.model.errors import Unavailable
from spatialstream.stream.created_topics import record_topics
from spatialstream.stream.settings import StreamSettings
from tests.leases import Leases, MemoryLease

BETWEEN = {"quakes.blocks", "quakes.epochs"}


class Store:
    """A routing store that is there, or not."""

    def __init__(self, error=None):
        self.error, self.erased, self.incarnation, self.others = error, False, None, {}
        self.leases = {"router": Leases(), "worker": Leases()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def _asked(self):
        if self.error is not None:
            raise self.error

    def versions(self):
        self._asked()
        return () if self.incarnation is None else (1,)

    def state(self):
        self._asked()
        return SimpleNamespace(incarnation=self.incarnation)

    def of_others(self, name):
        self._asked()
        return {stream: {"cluster": cluster, "names": names} for stream, (cluster, names) in self.others.items()}

    def erase(self):
        self._asked()
        self.erased = True

    def lease(self, job):
        lease = MemoryLease(self.leases[job], job)
        lease.reachable = self.error is None
        return lease


@pytest.fixture
def stream(tmp_path, monkeypatch):
    """A stream that has made its topics; ``topics`` is the broker: ids by name, or what it fails with."""
    found = SimpleNamespace(store=Store(), topics={}, checkpoint=tmp_path / "checkpoint", cluster="c1")
    found.storage = Folder(found.checkpoint)
    found.incarnation = StreamSettings("quakes").claim(found.storage)
    found.store.incarnation = found.incarnation
    record_topics(found.storage, "quakes", found.incarnation, BETWEEN, dict).add(ids())
    found.topics.update(ids())

    def remove(self, connection, made):
        if not isinstance(found.topics, dict):
            raise found.topics
        gone = [name for name in made if found.topics.get(name) == made[name]]
        for name in gone:
            del found.topics[name]
        return gone

    monkeypatch.setattr(live, "LEASE_PATIENCE", 0.0)
    monkeypatch.setattr(live, "store", lambda options: found.store)
    monkeypatch.setattr(Topics, "remove", remove)
    monkeypatch.setattr(kafka, "cluster_of", lambda connection: found.cluster)
    return found


def ids(stream="quakes"):
    return {name: f"id of {name}" for name in Topics(stream).names.values()}


def named(*kinds):
    return {f"quakes.{kind}" for kind in kinds}


def remove(stream, *more):
    return main(
        ["remove", "--stream", "quakes", "--checkpoint", str(stream.checkpoint), "--yes", *(more or ["--quiet"])]
    )


def test_all_parts_are_removed(stream, capsys):
    assert remove(stream) == 0

    assert stream.store.erased
    assert stream.topics.keys() == named("objects", "queries", "results", "rejected", "areas")
    assert list(stream.checkpoint.iterdir()) == []


def test_all_topics_go_if_that_is_asked_for(stream):
    assert remove(stream, "--topics", "all") == 0

    assert stream.topics == {}


def test_only_topics_that_the_stream_has_made_are_deleted(stream, capsys):
    stream.topics["quakes.objects"] = "made anew by somebody"
    stream.topics["geo.ships.objects"] = "another stream's"
    told = ["--topic", "queries=geo.ships.objects", "--topics", "all"]

    assert remove(stream, *told) == 0

    assert stream.topics.keys() == {"quakes.objects", "geo.ships.objects"}
    said = capsys.readouterr().err
    assert "the topic geo.ships.objects is kept: it does not exist, or this stream did not create it" in said
    assert "the topic quakes.objects is kept" in said


def test_a_stream_without_a_checkpoint_is_not_known_to_have_made_topics(stream):
    assert main(["remove", "--stream", "quakes", "--topics", "all", "--yes"]) == 0

    assert stream.topics == ids()
    assert stream.store.erased


def test_topics_that_other_streams_of_the_same_kafka_use_are_spared(stream, capsys):
    used = {"objects": "quakes.objects", "queries": "quakes.queries"}
    stream.store.others = {"quakes-2": ("c1", used), "elsewhere": ("c2", {"results": "quakes.results"})}

    assert remove(stream, "--topics", "all", "--spare", "quakes.rejected") == 0

    assert stream.topics.keys() == named("objects", "queries", "rejected")
    said = capsys.readouterr().err
    assert "the topic quakes.objects is kept: the stream quakes-2 uses it" in said
    assert "the topic quakes.rejected is kept: another stream uses it" in said


def test_what_another_incarnation_of_the_name_has_in_zookeeper_is_left_alone(stream, capsys):
    stream.store.incarnation = "another"

    assert remove(stream) == 2

    assert (
        "the routing store belongs to another incarnation of quakes (another) "
        f"than the checkpoint ({stream.incarnation})" in (capsys.readouterr().err)
    )
    assert not stream.store.erased
    assert stream.topics == ids()
    assert (stream.checkpoint / "stream.json").exists()

    assert remove(stream, "--incarnation", "another") == 0
    assert stream.store.erased


def test_a_new_incarnation_has_only_what_was_between_the_jobs_of_the_one_before(stream):
    stream.topics = Unavailable("the broker cannot be reached")
    assert remove(stream) == 2
    assert [path.name for path in stream.checkpoint.iterdir()] == ["topics.json"]

    incarnation = StreamSettings("quakes").claim(stream.storage)
    record_topics(stream.storage, "quakes", incarnation, BETWEEN, dict)
    stream.topics, stream.store.incarnation = ids(), incarnation

    assert remove(stream, "--topics", "all") == 0
    assert stream.topics.keys() == named("objects", "queries", "results", "rejected", "areas")


def test_a_stream_whose_jobs_run_is_left_alone(stream, capsys):
    MemoryLease(stream.store.leases["worker"], "worker").acquire(0.0)

    assert remove(stream) == 2

    assert "another worker is running" in capsys.readouterr().err
    assert not stream.store.erased
    assert stream.topics == ids()
    assert (stream.checkpoint / "stream.json").exists()


def test_topics_between_the_jobs_and_checkpoint_go_without_zookeeper(stream, capsys):
    stream.store.error = Unavailable("ZooKeeper (zk:2181) did not answer within 10 s")

    assert remove(stream) == 2

    assert stream.topics.keys() == named("objects", "queries", "results", "rejected", "areas")
    assert [path.name for path in stream.checkpoint.iterdir()] == ["topics.json"]
    assert capsys.readouterr().err == "spatialstream: ZooKeeper (zk:2181) did not answer within 10 s\n"

    stream.store.error = None
    assert remove(stream, "--topics", "all") == 0, "what is left goes when it is asked for again"
    assert stream.topics == {}
    assert list(stream.checkpoint.iterdir()) == []


def test_routing_state_and_checkpoint_go_without_kafka_and_all_that_failed_is_told(stream, capsys):
    there, stream.topics = stream.topics, Unavailable("the broker cannot be reached")
    assert remove(stream) == 2
    assert stream.store.erased
    assert [path.name for path in stream.checkpoint.iterdir()] == ["topics.json"]
    capsys.readouterr()

    stream.store.error = Unavailable("ZooKeeper does not answer")
    assert remove(stream) == 2
    assert capsys.readouterr().err.splitlines() == [
        "spatialstream: the broker cannot be reached",
        "spatialstream: ZooKeeper does not answer",
    ]

    stream.store.error, stream.store.incarnation, stream.topics = None, None, there
    assert remove(stream) == 0
    assert stream.topics.keys() == named("objects", "queries", "results", "rejected", "areas")


def test_a_stream_of_an_earlier_release_has_what_is_between_its_jobs(stream):
    (stream.checkpoint / "topics.json").unlink()
    stream.storage.put("epochs/done", b"0")
    record_topics(
        stream.storage, "quakes", stream.incarnation, BETWEEN, lambda: {name: ids()[name] for name in BETWEEN}
    )
    record_topics(stream.storage, "quakes", stream.incarnation, BETWEEN, dict).add({})

    assert remove(stream, "--topics", "all") == 0
    assert stream.topics.keys() == named("objects", "queries", "results", "rejected", "areas")

"""``spatialstream remove``: what cannot be removed is no reason to leave the rest."""

from types import SimpleNamespace

import pytest

from spatialstream.cli import live, main
from spatialstream.model.errors import Unavailable
from spatialstream.sources.folder import Folder
from spatialstream.sources.kafka import Topics
from spatialstream.stream.settings import StreamSettings
from tests.leases import Leases, MemoryLease


class Store:
    """A routing store that is there, or not."""

    def __init__(self, error=None):
        self.error, self.erased = error, False
        self.leases = {"router": Leases(), "worker": Leases()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def erase(self):
        if self.error is not None:
            raise self.error
        self.erased = True

    def lease(self, job):
        lease = MemoryLease(self.leases[job], job)
        lease.reachable = self.error is None
        return lease


@pytest.fixture
def stream(tmp_path, monkeypatch):
    """A stream with a checkpoint; ``store`` and ``topics`` say what becomes of the other parts."""
    found = SimpleNamespace(store=Store(), topics=None, removed=[], checkpoint=tmp_path / "checkpoint")
    StreamSettings("quakes").claim(Folder(found.checkpoint))

    def remove(self, connection, kinds=()):
        if found.topics is not None:
            raise found.topics
        found.removed += kinds
        return [f"{self.stream}.{kind}" for kind in kinds]

    monkeypatch.setattr(live, "LEASE_PATIENCE", 0.0)
    monkeypatch.setattr(live, "store", lambda options: found.store)
    monkeypatch.setattr(Topics, "remove", remove)
    return found


def remove(stream):
    return main(["remove", "--stream", "quakes", "--checkpoint", str(stream.checkpoint), "--yes", "--quiet"])


def test_all_parts_are_removed(stream, capsys):
    assert remove(stream) == 0

    assert stream.store.erased
    assert set(stream.removed) == {"blocks", "epochs"}
    assert list(stream.checkpoint.iterdir()) == []


def test_a_stream_whose_jobs_run_is_left_alone(stream, capsys):
    MemoryLease(stream.store.leases["worker"], "worker").acquire(0.0)

    assert remove(stream) == 2

    assert "another worker is running" in capsys.readouterr().err
    assert not stream.store.erased
    assert stream.removed == []
    assert (stream.checkpoint / "stream.json").exists()


def test_topics_and_checkpoint_go_without_zookeeper(stream, capsys):
    stream.store.error = Unavailable("ZooKeeper (zk:2181) did not answer within 10 s")

    assert remove(stream) == 2

    assert set(stream.removed) == {"blocks", "epochs"}
    assert list(stream.checkpoint.iterdir()) == []
    assert capsys.readouterr().err == "spatialstream: ZooKeeper (zk:2181) did not answer within 10 s\n"


def test_routing_state_and_checkpoint_go_without_kafka_and_all_that_failed_is_told(stream, capsys):
    stream.topics = Unavailable("the broker cannot be reached")
    assert remove(stream) == 2
    assert stream.store.erased
    assert list(stream.checkpoint.iterdir()) == []
    capsys.readouterr()

    stream.store.error = Unavailable("ZooKeeper does not answer")
    assert remove(stream) == 2
    assert capsys.readouterr().err.splitlines() == [
        "spatialstream: ZooKeeper does not answer",
        "spatialstream: the broker cannot be reached",
    ]

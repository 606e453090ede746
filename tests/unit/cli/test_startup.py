"""Startup of a job: it waits for the lease while slow things start, and writes nothing before it holds it."""

from __future__ import annotations

import argparse
import shutil
import stat
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from spatialstream.cli import live
from spatialstream.cli.live import Begun
from spatialstream.connectors.calls import called
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.secret_file import bring
from spatialstream.model.errors import Missing, SettingError, StateError
from spatialstream.model.space import WGS84
from spatialstream.store.memory import MemoryStore
from spatialstream.stream.settings import StreamSettings
from tests.leases import Leases, MemoryLease

SETTINGS = StreamSettings("s", 2, WGS84)
OPTIONS = argparse.Namespace(command="worker", stream="s", quiet=False)


def begun(checkpoint: Path, leased: Future[None]) -> Begun:
    nobody: Any = None
    storage = Folder(checkpoint)
    return Begun(OPTIONS, SETTINGS, nobody, nobody, leased, storage, SETTINGS.claim(storage), nobody)


def test_the_lease_is_awaited(tmp_path: Path) -> None:
    leases = Leases()
    before, lease = MemoryLease(leases), MemoryLease(leases)
    before.acquire(0.0)
    leased = called(lambda: lease.acquire(60.0))
    given = begun(tmp_path, leased)
    assert not leased.done()
    before.release()
    given.await_lease()
    given.await_lease()
    assert lease.held


def test_another_one_that_runs_is_told(tmp_path: Path) -> None:
    leases = Leases()
    MemoryLease(leases).acquire(0.0)
    with pytest.raises(SettingError, match="another job is running"):
        begun(tmp_path, called(lambda: MemoryLease(leases).acquire(0.0))).await_lease()


def test_it_goes_on_where_nobody_can_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = MemoryLease(Leases())
    away.reachable = False
    begun(tmp_path, called(lambda: away.acquire(0.0))).await_lease()
    assert "the lease cannot be reached; continuing without it" in capsys.readouterr().err


@pytest.mark.parametrize("anew", [False, True])
def test_a_stream_that_is_removed_meanwhile_is_not_continued(tmp_path: Path, anew: bool) -> None:
    given = begun(tmp_path / "state", called(lambda: None))
    shutil.rmtree(tmp_path / "state")
    if anew:
        SETTINGS.claim(Folder(tmp_path / "state"))
    with pytest.raises(StateError, match="has been removed while its worker was starting"):
        given.await_lease()


class _Store(MemoryStore):
    """A store in memory that gives leases."""

    def __init__(self, leases: Leases) -> None:
        super().__init__()
        self.leases = leases

    def lease(self, job: str) -> MemoryLease:
        return MemoryLease(Leases() if job == "claim" else self.leases, job)


@pytest.mark.parametrize("new", [False, True])
def test_nobody_makes_a_stream_without_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool) -> None:
    leases = Leases()
    MemoryLease(leases).acquire(0.0)
    monkeypatch.setattr(live, "LEASE_PATIENCE", 0.05)
    monkeypatch.setattr(live, "connection", lambda options: None)
    monkeypatch.setattr(live, "store", lambda options: _Store(leases))
    options = argparse.Namespace(**vars(OPTIONS), checkpoint=Folder(tmp_path))
    if not new:
        SETTINGS.claim(Folder(tmp_path))
    began = []

    def begin() -> None:
        with live.begin(options, SETTINGS) as given:
            began.append(given)
            given.await_lease()

    with pytest.raises(SettingError, match="another worker is running"):
        begin()
    assert len(began) == (not new)
    assert (tmp_path / "stream.json").exists() == (not new)


@pytest.mark.parametrize("remote", [False, True])
def test_on_kubernetes_executors_find_the_secret_in_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    local = tmp_path / "local"
    local.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(local))
    checkpoint = MemoryStorage() if remote else Folder(tmp_path)
    for _ in range(2):
        with live.spark_secret(argparse.Namespace(command="worker", stream="quakes", checkpoint=checkpoint)) as path:
            assert path.name == "worker.secret"
            assert local in path.parents if remote else path.parent == tmp_path
            assert checkpoint.get("worker.secret").to_pybytes() == path.read_bytes()
            assert path.parent.stat().st_mode & 0o077 == 0 or not remote
    assert list(local.iterdir()) == []


def test_an_executor_brings_the_secret_to_where_spark_reads_it(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "worker.secret").write_bytes(b"0123")
    there = tmp_path / "tmp" / "worker.secret"
    for _ in range(2):
        bring(str(tmp_path / "checkpoint"), there)
        assert there.read_bytes() == b"0123"
        assert stat.S_IMODE(there.stat().st_mode) == 0o600
    with pytest.raises(Missing, match=r"router\.secret is missing"):
        bring(str(tmp_path / "checkpoint"), tmp_path / "router.secret")

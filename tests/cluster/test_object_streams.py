"""Whole streams whose state is in an object store that fails, and is away for a while: rows are the oracle's."""

from __future__ import annotations

import math
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from bisect import bisect
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spatialstream.cli import main
from spatialstream.connectors.local_cache import LocalCache
from spatialstream.connectors.object_store import ObjectStorage
from spatialstream.model.errors import SettingError, StateError
from spatialstream.model.space import WGS84
from spatialstream.oracle import check_files
from spatialstream.servers.job import JobServer
from spatialstream.servers.process import await_condition
from spatialstream.spark.run import RunSettings, open_run
from spatialstream.stages.state import forget
from spatialstream.stream.settings import StreamSettings
from tests import streams
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.lengths import AT_LENGTH, examples
from tests.objects import BUCKET, SECRET, VARIABLES, Chance, Fault, ObjectServer, Proxy, environment, faults
from tests.simulation import IDLE, Simulation
from tests.unit.stream.test_stream import differences as simulated_differences
from tests.unit.stream.test_stream import in_order

WAYS = ("drop", "lost", "truncate", "500", "503")


def url() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class Outages:
    """Requests fail now and then, and at times all do, for so many in a row.

    Few requests are waited for, so the first time lasts until it is ``met``: until a job has had no store.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.chance, self.left, self.asked = random.Random(seed), Chance(0.05, WAYS, seed), 0, 0
        self.met: Callable[[], bool] = lambda: True

    def __call__(self, method: str, path: str) -> Fault:
        self.asked += 1
        if self.asked == 60 or self.random.random() < 0.002:
            self.left = 40
        self.left -= 1
        away = self.left > 0 or (60 <= self.asked < 2_000 and not self.met())
        return "503" if away else self.chance(method, path)


class Noting(Simulation):
    """Notes when rounds are done, s of the monotonic clock."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.done: list[float] = []

    def run_worker(self) -> None:
        before = len(self.rounds)
        super().run_worker()
        if len(self.rounds) > before:
            self.done.append(time.monotonic())


_SEEDS = examples(1, 50)
_survived: dict[int, tuple[int, float]] = {}
"""By seed, how many requests have failed, and the longest time until a round was done after that."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(_SEEDS))
def test_while_everything_fails(seed: int, objects: ObjectServer, tmp_path: Path) -> None:
    stream = in_order(streams.random_stream(seed, 60, 20, WGS84))
    setup = StreamSettings("s", slots=2, space=WGS84, partitions=2, mergers=2 - seed % 2, idle=IDLE, epoch_records=20)
    with faults(objects, outages := Outages(seed)) as proxy:
        storage = ObjectStorage(url(), LocalCache(), patience=0.3)
        given = (tmp_path, WGS84, stream.objects, stream.queries, setup, seed)
        simulation = Noting(*given, chaos=0.01, storage=storage)
        outages.met = lambda: simulation.away > 0
        simulation.run(0.2, 0.05)
        ends = [*simulation.done, time.monotonic()]
        assert simulated_differences(stream, simulation) == []
        forget(storage)
    assert sum(proxy.failed.values()) > 10
    assert simulation.crashes > 0
    assert simulation.away > 0
    failed = [at for at in proxy.failed_at if at < ends[-1]]
    _survived[seed] = len(failed), max(ends[bisect(ends, at)] - at for at in failed)


def test_while_everything_fails_all_seeds_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    if len(_survived) < _SEEDS:
        pytest.skip("it is not all seeds that were tried here")
    total, longest = sum(count for count, _ in _survived.values()), max(took for _, took in _survived.values())
    with capsys.disabled():
        print(f"\nfailed requests: {total}; a round was done within {longest:.1f} s of each")
    assert total >= examples(10, 200)


# ---------------------------------------------------------------------------------------------------------------- files


def test_a_checkpoint_is_of_one_output(objects: ObjectServer, tmp_path: Path) -> None:
    files = streams.write_stream(tmp_path, streams.random_stream(1, 10, 2))
    place = url()

    def run(output: str, **more: Any) -> RunSettings:
        return RunSettings((files[0],), (files[1],), tmp_path / output, checkpoint=place, **more)

    with environment(objects.url):
        storage = ObjectStorage(place)
        open_run(run("out"))
        storage.put("samples/000000003-queries-0000.arrow", b"")
        there = storage.list("")
        for more in ({}, {"overwrite": True}):
            with pytest.raises(StateError, match="belongs to a run with other output"):
                open_run(run("elsewhere", **more))
        assert storage.list("") == there
        open_run(run("out"))  # to go on with it
        storage.put("thesis.txt", b"years of work")
        with pytest.raises(SettingError, match=f"{place}/thesis.txt does not belong to the checkpoint of a run"):
            open_run(run("out", overwrite=True))
        storage.delete(["thesis.txt"])
        (tmp_path / "out" / ".checkpoint").mkdir()
        (tmp_path / "out" / ".checkpoint" / "error.log").write_text("of a failure")
        open_run(run("out", overwrite=True))
        assert storage.list("") == ["run.json"]


class Command:
    """``spatialstream run`` of one stream."""

    def __init__(self, folder: Path, output: str, *more: str) -> None:
        self.files = streams.write_stream(folder, streams.random_stream(11, 900, 30))
        self.output = folder / output
        objects, queries = map(str, self.files)
        self.words = ["run", "--objects", objects, "--queries", queries, "--output", str(self.output)]
        self.words += ["--slots", "2", "--epoch", "90", "--time-unit", "ms", *more]

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "spatialstream", *self.words]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def finish(self) -> None:
        process = self.start()
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told
        assert SECRET not in told

    @property
    def results(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.output / "results").glob("*.jsonl")}


@pytest.mark.timeout(900)
def test_a_run_that_is_killed_goes_on_to_the_same_bytes(objects: ObjectServer, tmp_path: Path) -> None:
    """It is killed when it decides its second epoch, and again when it decides its fourth round from then on."""
    command, chance = Command(tmp_path, "out", "--checkpoint", url()), Chance(0.02, WAYS)
    kills, running = [("/epochs/0", 2), ("/rounds/0", 4)], list[subprocess.Popen[str]]()
    seen = Counter[str]()

    def fault(method: str, path: str) -> Fault:
        if running and method == "PUT" and kills[0][0] in path:
            seen[path] += 1
            if len(seen) == kills[0][1]:
                running.pop().kill()
        return chance(method, path)

    with faults(objects, fault):
        while kills:
            process = command.start()
            seen.clear()
            running[:] = [process]
            process.communicate(timeout=PATIENCE)
            assert process.returncode == -signal.SIGKILL
            kills.pop(0)
        command.finish()
    undisturbed = Command(tmp_path, "undisturbed")
    undisturbed.finish()
    assert command.results == undisturbed.results
    assert check_files([command.files[0]], [command.files[1]], command.output / "results", WGS84).exact
    assert [path.name for path in command.output.glob(".checkpoint/*")] == ["run.lock"], "nothing else is here"


def test_a_store_that_denies_is_told_at_the_start(
    objects: ObjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with environment(objects.url, AWS_SECRET_ACCESS_KEY="not-the-one"):
        assert main(Command(tmp_path, "out", "--checkpoint", url()).words) == 2
    told = capsys.readouterr().err
    assert "is denied: SignatureDoesNotMatch" in told
    assert "not-the-one" not in told


# ----------------------------------------------------------------------------------------------------------------- live


def metric(job: JobServer, name: str) -> float:
    """Of a job that runs; NaN if it does not say."""
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{job.port}/metrics", timeout=5.0) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    return math.nan


@pytest.mark.skipif(not AT_LENGTH, reason="at length: a stream of tests/e2e has its state in a store with every change")
@pytest.mark.timeout(900)
def test_a_live_stream_survives_kills_and_a_store_that_is_away(
    servers: Servers, objects: ObjectServer, tmp_path: Path
) -> None:
    """The store takes 60 ms, and fails at times; a job of which a part dies is killed with all its processes."""
    drawn = streams.random_stream(7, 6_000, 20, WGS84)
    sent = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    away, chance = threading.Event(), Chance(0.01, WAYS)
    proxy = Proxy(objects.port, 0.06, lambda method, path: "503" if away.is_set() else chance(method, path))
    given = {**VARIABLES, "AWS_ENDPOINT_URL": proxy.url}
    options = ("--checkpoint", url(), "--checkpoint-interval", "2s")
    with LiveStream(servers, "objects", tmp_path, WGS84, 3, *options, environment=given) as stream:
        sending = stream.send(sent, queries, rate=100.0, lasting=True)
        stream.await_rows(100)
        for job in (stream.worker, stream.router):
            job.kill()
            job.start(timeout=PATIENCE)
            stream.await_progress()

        away.set()
        told = "spatialstream_storage_unavailable"
        assert await_condition(lambda: 1.0 in (metric(stream.router, told), metric(stream.worker, told)), PATIENCE)
        stream.worker.kill()
        away.clear()
        stream.worker.start(timeout=PATIENCE)
        stream.await_progress()
        assert await_condition(lambda: metric(stream.router, told) == metric(stream.worker, told) == 0.0, PATIENCE)

        stream.sending.rate = 0.0
        sending.join()
        assert differences(stream, sent, queries) == []
        for job in (stream.router, stream.worker):
            for method in ("put", "delete"):
                assert metric(job, f'spatialstream_storage_requests_total{{method="{method}"}}') > 0
        assert metric(stream.worker, 'spatialstream_storage_requests_total{method="get"}') > 0, "state was restored"
        logs = stream.worker.log.read_text() + stream.router.log.read_text()
    assert proxy.failed.keys() >= {"drop", "503"}
    assert SECRET not in logs
    assert not stream.checkpoint.exists(), "there is no folder that they share"
    proxy.close()

"""Whole streams whose state is in an object store that fails, and is away for a while: rows are the oracle's."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from spatialstream.cli import main
from spatialstream.model.space import WGS84
from spatialstream.oracle import check_files
from spatialstream.sources.local_cache import LocalCache
from spatialstream.sources.object_store import ObjectStorage
from spatialstream.stages.state import forget
from spatialstream.stream.settings import StreamSettings
from tests import streams
from tests.cluster.stream import LiveStream, Servers, differences
from tests.lengths import examples
from tests.objects import BUCKET, SECRET, VARIABLES, Chance, Fault, ObjectServer, Proxy, environment, faults
from tests.simulation import IDLE, Simulation
from tests.unit.stream.test_stream import differences as simulated_differences
from tests.unit.stream.test_stream import in_order

WAYS = ("drop", "lost", "truncate", "500", "503")


def url() -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class Outages:
    """Requests fail now and then, and at times all do, for so many in a row."""

    def __init__(self, seed: int) -> None:
        self.random, self.chance, self.left, self.asked = random.Random(seed), Chance(0.05, WAYS, seed), 0, 0

    def __call__(self, method: str, path: str) -> Fault:
        self.asked += 1
        if self.asked == 60 or self.random.random() < 0.002:
            self.left = 40
        self.left -= 1
        return "503" if self.left > 0 else self.chance(method, path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(examples(2, 50)))
def test_while_everything_fails(seed: int, objects: ObjectServer, tmp_path: Path) -> None:
    stream = in_order(streams.random_stream(seed, 60, 20, WGS84))
    setup = StreamSettings("s", slots=2, space=WGS84, partitions=2, mergers=1 + seed % 2, idle=IDLE, epoch_records=20)
    with faults(objects, Outages(seed)) as proxy:
        storage = ObjectStorage(url(), LocalCache(), patience=0.3)
        given = (tmp_path, WGS84, stream.objects, stream.queries, setup, seed)
        simulation = Simulation(*given, chaos=0.01, storage=storage)
        simulation.run(0.2, 0.05)
        assert simulated_differences(stream, simulation) == []
        forget(storage)
    assert sum(proxy.failed.values()) > 10
    assert simulation.crashes > 0
    assert simulation.away > 0


# ---------------------------------------------------------------------------------------------------------------- files


class Command:
    """``spatialstream run`` with its checkpoint in the store."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.files = streams.write_stream(folder, streams.random_stream(11, 900, 30))
        self.output, self.checkpoint = folder / "out", url()
        objects, queries = map(str, self.files)
        self.words = ["run", "--objects", objects, "--queries", queries, "--output", str(self.output)]
        self.words += ["--checkpoint", self.checkpoint, "--slots", "2", "--epoch", "90", *more]

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "spatialstream", *self.words]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def finish(self) -> str:
        process = self.start()
        _, told = process.communicate(timeout=240)
        assert process.returncode == 0, told
        assert SECRET not in told
        return told

    def exact(self) -> bool:
        return bool(check_files([self.files[0]], [self.files[1]], self.output / "results", WGS84).exact)


@pytest.mark.timeout(900)
def test_a_run_that_is_killed_goes_on_and_is_exact(objects: ObjectServer, tmp_path: Path) -> None:
    kills = [f"{folder}/" for folder in ("epochs", "blocks", "state")]
    command, chance = Command(tmp_path), Chance(0.02, WAYS)
    waiting: list[tuple[str, subprocess.Popen[str]]] = []
    killed = []

    def fault(method: str, path: str) -> Fault:
        if waiting and method == "PUT" and waiting[0][0] in path:
            name, process = waiting.pop()
            process.send_signal(signal.SIGKILL)
            killed.append(name)
        return chance(method, path)

    with faults(objects, fault):
        for name in kills:
            process = command.start()
            waiting[:] = [(name, process)]
            process.communicate(timeout=240)
            waiting.clear()
        command.finish()
    assert killed == kills
    assert command.exact()
    assert sorted(path.name for path in command.output.glob(".checkpoint/*")) == ["run.lock"], "nothing else is here"


def test_a_checkpoint_is_of_one_output(
    objects: ObjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with environment(objects.url):
        command = Command(tmp_path)
        command.finish()
        first = sorted(ObjectStorage(command.checkpoint).list(""))
        elsewhere = [each if each != str(command.output) else str(tmp_path / "elsewhere") for each in command.words]
        assert main(elsewhere) == 2
        assert "belongs to a run with other output" in capsys.readouterr().err
        assert sorted(ObjectStorage(command.checkpoint).list("")) == first
        assert main([*elsewhere, "--overwrite"]) == 2
        assert "belongs to a run with other output" in capsys.readouterr().err
        assert sorted(ObjectStorage(command.checkpoint).list("")) == first
        command.finish()  # all is done
        ObjectStorage(command.checkpoint).put("thesis.txt", b"years of work")
        assert main([*command.words, "--overwrite"]) == 2
        assert f"{command.checkpoint}/thesis.txt is not of the checkpoint of a run" in capsys.readouterr().err
        ObjectStorage(command.checkpoint).delete(["thesis.txt"])
        (command.output / ".checkpoint" / "error.log").write_text("of a failure")
        command.words.append("--overwrite")
        command.finish()
        assert command.exact()


def test_a_store_that_denies_is_told_at_the_start(
    objects: ObjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with environment(objects.url, AWS_SECRET_ACCESS_KEY="not-the-one"):
        command = Command(tmp_path)
        assert main(command.words) == 2
    told = capsys.readouterr().err
    assert "is denied: SignatureDoesNotMatch" in told
    assert "not-the-one" not in told


# ----------------------------------------------------------------------------------------------------------------- live

_numbers = itertools.count()


@pytest.mark.timeout(900)
def test_a_live_stream_survives_kills_and_a_store_that_is_away(
    servers: Servers, objects: ObjectServer, tmp_path: Path
) -> None:
    drawn = streams.random_stream(7, 12_000, 20, WGS84)
    sent = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    proxy, away = Proxy(objects.port, 0.02, Chance(0.01, WAYS)), [False]
    chance = proxy.fault
    proxy.fault = lambda method, path: "503" if away[0] else chance(method, path)
    given = {**VARIABLES, "AWS_ENDPOINT_URL": proxy.url}
    place = url()
    options = ("--checkpoint", place, "--checkpoint-interval", "2s")
    with LiveStream(servers, "objects", tmp_path, WGS84, 3, *options, environment=given) as stream:
        sending = stream.send(sent, queries, rate=100.0)
        stream.await_rows(100, 120.0)
        for job in (stream.worker, stream.router, stream.worker):
            job.kill()
            job.start(timeout=240.0)
            stream.await_progress(120.0)
        away[0] = True
        stream.worker.kill()
        away[0] = False
        stream.worker.start(timeout=240.0)
        stream.await_progress(120.0)
        stream.sending.rate = 0.0
        sending.join()
        assert differences(stream, sent, queries, timeout=240.0) == []
        logs = stream.worker.log.read_text() + stream.router.log.read_text()
    assert SECRET not in logs
    assert not stream.checkpoint.exists(), "there is no folder that they share"
    proxy.close()

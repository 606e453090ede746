"""The driver dies, or is asked to stop, and the same command goes on: the results are those of an undisturbed run."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from spatialstream.model.space import WGS84
from spatialstream.oracle import check_files
from tests import streams
from tests.lengths import AT_LENGTH

PATIENCE = 400


@dataclass(frozen=True)
class Case:
    """A stream's files, and the command that runs it into a folder."""

    objects: Path
    queries: Path

    def start(self, output: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "spatialstream", "run", "--objects", str(self.objects)]
        command += ["--queries", str(self.queries), "--output", str(output), "--slots", "2", "--epoch", "20"]
        command += ["--time-unit", "ms"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def finish(self, output: Path) -> str:
        process = self.start(output)
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told
        return told


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(*streams.write_stream(tmp_path_factory.mktemp("input"), streams.random_stream(11, 500, 30)))


@pytest.fixture(scope="module")
def undisturbed(case: Case, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    case.finish(output)
    assert check_files([case.objects], [case.queries], output / "results", WGS84).exact
    return text_of(output)


def text_of(output: Path) -> bytes:
    names = [*(output / "results").glob("*.jsonl"), *(output / "rejected").glob("*.jsonl")]
    return b"".join(path.name.encode() + path.read_bytes() for path in sorted(names))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until the condition holds, or the process has ended."""
    limit = time.monotonic() + PATIENCE
    while not condition() and process.poll() is None:
        assert time.monotonic() < limit
        time.sleep(0.002)


# what the driver has just done, told by the files that it leaves: phase -> (folder, names)
PHASES = {
    "decoding": (".checkpoint/input", "*.arrow"),
    "decided": (".checkpoint/epochs", "0*.json"),
    "routed": (".checkpoint/blocks", "*.ipc"),
    "announced": (".checkpoint/announced", "*.json"),
    "round decided": (".checkpoint/rounds", "0*.json"),
    "published": ("results", "epoch-*.jsonl"),
}
if not AT_LENGTH:  # with each change tests/unit/stream stops the same code before each of its steps
    PHASES = {name: PHASES[name] for name in ("routed", "round decided", "published")}


def reached(output: Path, phase: str, since: int) -> bool:
    """Whether a file of the phase has been written after ``since`` (ns)."""
    folder, names = PHASES[phase]
    return any(path.stat().st_mtime_ns > since for path in (output / folder).glob(names))


@pytest.mark.timeout(2400)
def test_killed_in_each_phase(case: Case, undisturbed: bytes, tmp_path: Path) -> None:
    times = 2 if AT_LENGTH else 1
    output = tmp_path / "out"
    killed = []
    for phase in PHASES:
        for _ in range(times):
            since = time.time_ns()
            process = case.start(output)
            wait_for(lambda: reached(output, phase, since), process)  # noqa: B023 - called at once
            if process.poll() is None:
                process.kill()
                killed.append(phase)
            process.communicate(timeout=PATIENCE)
            assert set(text_of(output).splitlines()) <= set(undisturbed.splitlines()), phase
    case.finish(output)
    assert text_of(output) == undisturbed
    assert killed == [phase for phase in PHASES for _ in range(times)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", [signal.SIGINT, *([signal.SIGTERM] if AT_LENGTH else [])])
def test_a_signal_finishes_the_epoch_and_the_run_goes_on_later(
    case: Case, undisturbed: bytes, tmp_path: Path, number: signal.Signals
) -> None:
    output = tmp_path / "out"
    process = case.start(output)
    wait_for(lambda: reached(output, "published", 0), process)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, told
    assert "stopped   after epoch" in told
    rows = text_of(output)
    assert rows
    assert rows != undisturbed
    case.finish(output)
    assert text_of(output) == undisturbed

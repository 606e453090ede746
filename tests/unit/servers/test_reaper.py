"""What runs below a process that is killed ends by itself, and what is to stay stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spatialstream.servers.process import REAPER, Server, await_condition, recorded, stop_recorded
from spatialstream.store.holder import began

ROOT = Path(__file__).parents[3]
SERVER = """
import pathlib, signal, sys, time
def end(*_):
    with pathlib.Path("../ended").open("a") as told:
        told.write(pathlib.Path.cwd().name + " ")
    sys.exit()
signal.signal(signal.SIGTERM, end)
pathlib.Path("ready").touch()
time.sleep(600)
"""


class Sleeper(Server):
    """Does nothing but to tell that it has been ended in order."""

    name = "the sleeper"

    def _configure(self) -> None:
        (self.folder / "ready").unlink(missing_ok=True)

    def _command(self) -> list[str]:
        return [sys.executable, "-c", SERVER]

    def answers(self) -> bool:
        return (self.folder / "ready").exists()


def parent(folder: Path, names: list[str], detached: str, ended: str) -> None:
    """Starts servers, tells their process ids and that of its reaper, and waits."""
    servers = {name: Sleeper(folder / name, 1).start(60.0) for name in names}
    for each in (detached, ended):
        if each in servers:
            servers[each].detach() if each == detached else servers[each].stop()
    reaper = REAPER.process
    assert reaper is not None
    print(json.dumps({"reaper": reaper.pid, **{name: server.pid for name, server in servers.items()}}), flush=True)
    sys.stdin.readline()
    os._exit(0)


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def begin(names: list[str], detached: str = "", ended: str = "") -> tuple[subprocess.Popen[str], dict[str, int]]:
        given = [str(tmp_path), json.dumps(names), detached, ended]
        command = [sys.executable, "-m", "tests.unit.servers.test_reaper", *given]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return process, json.loads(process.stdout.readline())

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    for folder in tmp_path.iterdir():
        if folder.is_dir():
            stop_recorded(folder)


def gone(*pids: int) -> bool:
    return await_condition(lambda: all(began(pid) == -1 for pid in pids), 60.0)


def test_what_a_killed_process_has_started_ends_in_order(begun: Any, tmp_path: Path) -> None:
    process, pids = begun(["first", "second", "third", "stays"], detached="stays", ended="second")
    process.send_signal(signal.SIGKILL)
    assert gone(pids["first"], pids["third"], pids["reaper"])
    assert (tmp_path / "ended").read_text().split() == ["second", "third", "first"]
    assert recorded(tmp_path / "first") is None
    assert recorded(tmp_path / "stays") == pids["stays"]


def test_a_reaper_is_replaced_when_it_was_killed(tmp_path: Path) -> None:
    first = Sleeper(tmp_path / "first", 1).start(60.0)
    killed = REAPER.process
    assert killed is not None
    killed.kill()
    killed.wait()
    with Sleeper(tmp_path / "second", 1) as second:
        reaper = REAPER.process
        assert reaper is not None
        assert reaper.poll() is None
        assert second.running
    first.stop()
    assert reaper.poll() is None


def test_it_ends_with_a_process_that_leaves_nothing(begun: Any) -> None:
    process, pids = begun(["one"], ended="one")
    process.communicate("go\n")
    assert gone(pids["reaper"])


if __name__ == "__main__":
    parent(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4])

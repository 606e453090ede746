"""Everything that a live stream is made of dies, under load, and the results are the oracle's all the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spatialstream.index.version import RoutingVersion
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.integration.processes import descendants
from tests.lengths import AT_LENGTH
from tests.listening import command_of
from tests.streams import random_stream

_SESSION = 10.0  # seconds, the store's


@pytest.mark.gate
def test_everything_dies(servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = random_stream(6, 30_000, 20, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    with LiveStream(servers, "faults", tmp_path, WGS84) as stream:
        faults: list[tuple[str, Callable[[], object]]] = [
            ("a Python process of the worker killed", lambda: kill_python(stream)),
            ("sessions with ZooKeeper expired", lambda: _expire_sessions(stream)),
            ("router killed while a version is prepared", lambda: _kill_while_preparing(stream, "router")),
            ("worker killed while a version is prepared", lambda: _kill_while_preparing(stream, "worker")),
        ]
        if AT_LENGTH:  # with every change test_quorums.py has servers that die, and tests/e2e whole jobs
            faults += [
                ("the worker's JVM killed", lambda: _kill_jvm(stream)),
                ("broker killed", lambda: _kill_server(servers.kafka)),
                ("ZooKeeper killed while a version is prepared", lambda: _kill_while_preparing(stream, "zookeeper")),
                ("router killed", lambda: _kill(stream, "router")),
                ("worker killed", lambda: _kill(stream, "worker")),
                ("ZooKeeper killed", lambda: _kill_server(servers.zookeeper)),
            ]
        sending = stream.send(objects, queries, rate=50.0, lasting=True, tick=0.1)
        stream.await_rows(100)
        lines = []
        for name, fault in faults:
            assert sending.is_alive()
            began = time.monotonic()
            fault()
            stream.await_progress()
            lines.append(f"{name:<46} {time.monotonic() - began:5.1f} s until results came again")
            stream.await_progress()
        stream.sending.rate = 0.0  # the rest as fast as can be
        sending.join()
        assert differences(stream, objects, queries) == []
        state = stream.store.state()
        assert await_condition(lambda: stream.store.state().pending is None, PATIENCE)
        assert state.active.number == sum("while a version is prepared" in name for name, _ in faults)
        with capsys.disabled():
            print("\n" + "\n".join(lines))
            print(f"{stream.results.repeated} repeated rows of results were dropped")


test_everything_dies = pytest.mark.timeout(2400)(test_everything_dies)


def _kill(stream: LiveStream, job: str) -> None:
    server = getattr(stream, job)
    server.kill()
    server.start(timeout=PATIENCE)


def _kill_server(server: object) -> None:
    server.kill()  # type: ignore[attr-defined]
    server.start(timeout=PATIENCE)  # type: ignore[attr-defined]


def kill_python(stream: LiveStream) -> None:
    """Kill the processes that do the slots' work; their parent, Spark's daemon, lives on."""
    pid = stream.worker.pid
    assert pid is not None
    daemons = [each for each in descendants(pid) if "spatialstream.spark.daemon" in command_of(each)]
    workers = [each for daemon in daemons for each in descendants(daemon)]
    assert workers
    for each in workers:
        os.kill(each, signal.SIGKILL)


def _kill_jvm(stream: LiveStream) -> None:
    """Kill what a job can do nothing without: it ends at once, and says why, so that it is started again."""
    job = stream.worker
    assert job.pid is not None
    (jvm,) = [each for each in descendants(job.pid) if Path(f"/proc/{each}/comm").read_text() == "java\n"]
    os.kill(jvm, signal.SIGKILL)
    assert await_condition(lambda: not job.running, PATIENCE)
    assert "the worker has lost Spark" in job.log.read_text()
    job.kill()  # what is left of its group
    job.start(timeout=PATIENCE)


def _expire_sessions(stream: LiveStream) -> None:
    """Stop both jobs for longer than ZooKeeper waits for them."""
    pids = [stream.router.pid, stream.worker.pid]
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    time.sleep(1.5 * _SESSION)  # it is the passing of time itself that expires a session
    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGCONT)


def _kill_while_preparing(stream: LiveStream, victim: str) -> None:
    """Publish a version that moves every leaf, and kill something before it is active."""
    number = publish_moved(stream)
    if victim == "zookeeper":
        _kill_server(stream.servers.zookeeper)
    else:
        _kill(stream, victim)
    assert await_condition(lambda: _active(stream) == number, PATIENCE)


def publish_moved(stream: LiveStream) -> int:
    """Publish a version that moves every leaf; its number."""
    state = stream.store.state()
    active = stream.store.load(state.active.number)
    mapping = ((active.mapping + 1) % active.slots).astype(active.mapping.dtype)
    number = state.last + 1
    stream.store.publish(RoutingVersion(number, active.index, mapping, active.slots), active.number, f"p{number}", {})
    return number


def _active(stream: LiveStream) -> int | None:
    view = stream.store.latest()
    return None if view is None else view.active.number

"""Both jobs with their actors in executors, as on Kubernetes.

Processes of their own, which come, go, and are killed.
"""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from spatialstream.model.objects import SpatialObject
from spatialstream.model.queries import Cancellation, Query
from spatialstream.model.space import WGS84
from spatialstream.servers.job import JobServer
from spatialstream.servers.process import await_condition
from spatialstream.store.reports import ask_executors
from tests.cluster.stream import PATIENCE, LiveStream, Servers, differences
from tests.executors import MASTER, executors, spark_home
from tests.lengths import AT_LENGTH
from tests.listening import command_of
from tests.streams import random_stream

TURNS = {"router": "spatialstream_router_epoch", "worker": "spatialstream_worker_round"}


def figure(job: JobServer, name: str) -> float:
    """What a job says of itself to Prometheus."""
    with urllib.request.urlopen(f"http://127.0.0.1:{job.port}/metrics", timeout=60.0) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def failures(job: JobServer) -> int:
    """How many turns have failed."""
    return job.log.read_text().count("; trying again")


@pytest.mark.skipif(not AT_LENGTH, reason="at length: with every change tests/e2e has them, on Kubernetes")
@pytest.mark.timeout(2400)
def test_executors_come_and_go_and_are_killed(servers: Servers, tmp_path: Path) -> None:
    drawn = random_stream(12, 30_000, 12, WGS84)
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = sorted(drawn.queries, key=lambda each: each.t)
    cut = objects[len(objects) * 9 // 10].t

    def part(belongs: Callable[[int], bool]) -> tuple[list[SpatialObject], list[Query | Cancellation]]:
        return [each for each in objects if belongs(each.t)], [each for each in queries if belongs(each.t)]

    more = ["--master", MASTER, "--executors-from-store", "--conf", "spark.executor.memory=512m"]
    with LiveStream(servers, "crew", tmp_path, WGS84, 2, *more, environment=spark_home(tmp_path)) as stream:
        jobs = stream.router, stream.worker
        sending = stream.send(*part(lambda t: t < cut), rate=50.0, lasting=True)
        stream.await_rows(50)
        for job in jobs:
            assert sending.is_alive(), "the stream is too short for all of it"
            assert all("-XX:TieredStopAtLevel=1" in command_of(pid) for pid in executors(job).values())
            kill_an_executor(stream, job)
            before = failures(job)
            scale_in(stream, job)
            stream.await_progress()
            scale_out(stream, job)
            stream.await_progress()
            assert failures(job) == before, "no turn fails because an executor is wanted no more"
        stream.sending.rate = 0.0
        sending.join()
        for job in jobs:  # nothing comes in now
            scale_in(stream, job)
        stream.send(*part(lambda t: t >= cut), rate=0.0).join()
        assert differences(stream, objects, queries) == []
        for job in jobs:
            assert figure(job, f"spatialstream_{job.name}_task_seconds_total") > 0.0


def kill_an_executor(stream: LiveStream, job: JobServer) -> None:
    """Kill one: the job goes on with the other, and Spark starts another in its place.

    The turn that is under way may not need it any more, so the one after it is what fails, if nobody has come by then.
    """
    first, second = sorted(executors(job), key=int)
    os.kill(executors(job)[first], signal.SIGKILL)
    turn = figure(job, TURNS[job.name])
    assert await_condition(lambda: figure(job, TURNS[job.name]) >= turn + 2, PATIENCE)
    stream.await_progress()
    assert await_condition(lambda: len(executors(job).keys() - {first, second}) == 1, PATIENCE)
    assert await_condition(lambda: figure(job, "spatialstream_actors") == 2.0, PATIENCE)


def scale_in(stream: LiveStream, job: JobServer) -> None:
    """Want one executor: the one that came last goes."""
    known = executors(job)
    ask_executors(stream.store, job.name, 1)
    assert await_condition(lambda: executors(job).keys() == {min(known, key=int)}, PATIENCE)
    assert await_condition(lambda: figure(job, "spatialstream_actors") == 1.0, PATIENCE)


def scale_out(stream: LiveStream, job: JobServer) -> None:
    """Want two executors, and get them."""
    ask_executors(stream.store, job.name, 2)
    assert await_condition(lambda: figure(job, f"spatialstream_{job.name}_executors") == 2.0, PATIENCE)
    assert await_condition(lambda: figure(job, "spatialstream_actors") == 2.0, PATIENCE)

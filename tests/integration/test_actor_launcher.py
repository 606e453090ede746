"""Actors as tasks of a Spark job: the contract of engines, processes that are killed, and sessions of others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spatialstream.actors.engine import ActorEngine
from spatialstream.actors.wire import ActorLost
from spatialstream.spark.actor_launcher import SparkActorLauncher
from spatialstream.stream.engine import Engine
from tests.contracts.engine_contract import EngineContract
from tests.contracts.engines import TASKS, WITHIN, TestTasks, until, world
from tests.integration.processes import python_of
from tests.lengths import AT_LENGTH

WORDS = tuple((str(item),) for item in range(6))
ALL = list(range(6))


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Iterator[Engine]:
    with ActorEngine(
        world(), SparkActorLauncher(spark, name="tests"), heartbeat_timeout=2 * WITHIN, tasks=TASKS
    ) as made:
        yield made


class TestSpark(EngineContract):
    pass


def turn(engine: ActorEngine) -> bool:
    """Whether a turn is done as it should be, if actors do not go in it."""
    try:
        return engine.map(TestTasks(words=WORDS).lines, ALL) == [str(item) for item in ALL]
    except ActorLost:
        return False


def test_a_process_that_is_killed_is_soon_replaced(engine: ActorEngine, capfd: pytest.CaptureFixture[str]) -> None:
    until(lambda: turn(engine) and len(engine.observed()) == 2)
    killed = engine.observed()[0].pid
    os.kill(killed, signal.SIGKILL)
    until(lambda: len(engine.observed()) == 2 and killed not in [actor.pid for actor in engine.observed()])
    until(lambda: turn(engine))
    assert capfd.readouterr().err == ""


_SCRIPT = """
import os, signal, sys, time
from pyspark.sql import SparkSession
from spatialstream.actors.engine import ActorEngine
from spatialstream.spark.actor_launcher import SparkActorLauncher
from tests.contracts.engines import TASKS, TestTasks, until, world
from tests.integration.test_actor_launcher import turn

session = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
session = session.config("spark.driver.host", "127.0.0.1").config("spark.executorEnv.PYTHONPATH", os.getcwd())
session = session.getOrCreate()
session.sparkContext.setLogLevel("OFF")
def engine(count=None):
    return ActorEngine(world(), SparkActorLauncher(session, count, "mine"), heartbeat_timeout=5.0, tasks=TASKS)
"""


def run(script: str, master: str) -> str:
    given = [sys.executable, "-c", _SCRIPT + script, master]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(given, check=False, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_a_session_that_tries_nothing_twice_the_job_is_begun_anew() -> None:
    script = """
with engine() as made:
    until(lambda: turn(made) and len(made.observed()) == 2)
    killed = {actor.pid for actor in made.observed()}
    os.kill(min(killed), signal.SIGKILL)
    began = time.monotonic()
    until(lambda: min(killed) not in {actor.pid for actor in made.observed()} and turn(made))
    until(lambda: len(made.observed()) == 2 and turn(made))
    print(f"again after {time.monotonic() - began:.1f} s")
    began = time.monotonic()
print(f"over after {time.monotonic() - began:.1f} s")
until(lambda: not session.sparkContext.statusTracker().getActiveJobsIds())
session.stop()
"""
    assert "again after" in run(script, "local[2]")


@pytest.mark.skipif(not AT_LENGTH, reason="at length: with every change tests/e2e has them")
def test_with_executors_that_come_and_go() -> None:
    script = """
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

with engine(4) as made:
    until(lambda: turn(made) and len(made.observed()) == 2)
    print("executors", *sorted(actor.executor for actor in made.observed()))
    killed = made.observed()[0]
    os.kill(parent(parent(killed.pid)), signal.SIGKILL)  # its executor, which has started Spark's daemon
    until(lambda: killed.name not in {actor.name for actor in made.observed()})
    until(lambda: turn(made))
    until(lambda: len(made.observed()) == 2)
    until(lambda: turn(made))
    made.settled()
    until(lambda: turn(made))
    print("actors", len(set(made.slots().values())))
session.stop()
"""
    assert run(script, "local-cluster[2,1,1024]").splitlines()[-2:] == ["executors 0 1", "actors 2"]


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, *([signal.SIGTERM, signal.SIGINT] if AT_LENGTH else [])], ids=lambda how: how.name
)
def test_a_driver_that_is_ended_in_a_turn_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    script = f"""
from spatialstream.spark.session import embedded_session
from spatialstream.spark.actor_launcher import stop_spark
session.stop()
signal.signal(signal.SIGTERM, signal.default_int_handler)
session = embedded_session("tests", 2)
try:
    with engine() as made:
        made.map(TestTasks(folder={str(tmp_path)!r}, item=1).wait, range(6))
finally:
    stop_spark(session)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd()), "ACTORS_TEST": str(tmp_path)}
    given = [sys.executable, "-c", _SCRIPT + script, "local[1]"]
    process = subprocess.Popen(given, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    until((tmp_path / "waiting-1").exists, 240.0)  # Spark starts twice before
    assert len(python_of(f"ACTORS_TEST={tmp_path}")) >= 3
    if how == signal.SIGINT:  # as a terminal does
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    process.wait(60)
    until(lambda: not python_of(f"ACTORS_TEST={tmp_path}"))

"""Who is let in at Spark's port: nobody who does not know the session's secret."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from spatialstream.spark.java import classes_file
from spatialstream.spark.session import jvm_of
from tests.integration.processes import descendants
from tests.listening import listeners

_GUARDED = (
    "-Dspark.authenticate=true",
    "-Dspark.network.crypto.enabled=true",
    "-Dspark.network.crypto.authEngineVersion=2",
    "-Dspark.network.crypto.cipher=AES/GCM/NoPadding",
    "-Dspark.network.crypto.saslFallback=false",
)


def secret_of(spark: SparkSession) -> str:
    return str(jvm_of(spark).org.apache.spark.SparkEnv.get().securityManager().getSecretKey())


def registers(spark: SparkSession, *options: str, secret: str | None = None) -> str:
    """What an executor says that is started by hand with the driver's address; it ends by itself."""
    address = jvm_of(spark).org.apache.spark.SparkEnv.get().rpcEnv().address().hostPort()
    environment = dict(os.environ) | ({} if secret is None else {"_SPARK_AUTH_SECRET": secret})
    done = subprocess.run(
        [
            *(
                f"{os.environ['JAVA_HOME']}/bin/java",
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                *options,
            ),
            *("-cp", f"{Path(pyspark.__file__).parent}/jars/*"),
            "org.apache.spark.executor.CoarseGrainedExecutorBackend",
            *("--driver-url", f"spark://CoarseGrainedScheduler@{address}"),
            *("--executor-id", "1", "--cores", "1", "--app-id", "intruder", "--resourceProfileId", "0"),
            *("--hostname", "127.0.0.1", "--bind-address", "127.0.0.1"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


_KILLED = """
import os, signal, sys, threading, time
from pyspark import SparkContext
from spatialstream.model.errors import RunError
from spatialstream.spark.session import embedded_session

def kill():
    while SparkContext._gateway is None:
        time.sleep(0.001)
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

threading.Thread(target=kill, daemon=True).start()
try:
    embedded_session("killed", 1)
except RunError as error:
    print(error)
"""


def test_a_jvm_that_is_killed_while_a_session_begins_is_told_of_in_a_line() -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (
        0,
        "lost Spark: its process ended (status -9) while it was being started\n",
    )


def test_a_jvm_that_ends_before_it_has_begun_is_told_of_in_a_line(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 7\n")
    java.chmod(0o755)
    environment = os.environ | {"JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _KILLED], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "lost Spark: its process ended while it was being started\n")


def test_the_processes_below_a_session_have_few_arenas(spark: SparkSession) -> None:
    spark.sparkContext.parallelize(range(2), 2).map(lambda each: each).collect()
    java = spark.sparkContext._gateway.proc.pid
    below = [java, *descendants(java)]
    assert len(below) > 1
    looked_at = 0
    for pid in below:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            assert b"\0MALLOC_ARENA_MAX=2\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes(), pid
            looked_at += 1
    assert looked_at > 1


def test_only_who_knows_the_secret_is_let_in(spark: SparkSession) -> None:
    secret = secret_of(spark)
    attempts = {
        "nothing": ((), None),
        "a wrong secret": (_GUARDED, "f" * len(secret)),
        "the secret, but no encryption": (_GUARDED[:1], secret),
        "the secret": (_GUARDED, secret),
    }
    with ThreadPoolExecutor(2) as pool:
        tries = {
            name: pool.submit(registers, spark, *options, secret=known) for name, (options, known) in attempts.items()
        }
        said = {name: each.result() for name, each in tries.items()}

    # a driver without executors has nobody who would register them: that is found out after the query endpoint
    inside = "Cannot find endpoint"
    assert [name for name, text in said.items() if inside in text] == ["the secret"], said


def test_nothing_shows_the_secret(spark: SparkSession) -> None:
    secret = secret_of(spark)

    assert len(secret) >= 64
    assert not any(secret in value for _, value in spark.sparkContext.getConf().getAll())
    for shown in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{shown}"):
            try:
                assert secret.encode() not in path.read_bytes()
            except OSError:  # the process has ended, or is another user's
                continue


@pytest.mark.parametrize("key", ["spark.authenticate", "spark.network.crypto.enabled"])
def test_a_session_is_guarded(spark: SparkSession, key: str) -> None:
    assert spark.sparkContext.getConf().get(key) == "true"


def test_nothing_listens_but_on_loopback(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize([1, 2], 2).map(lambda x: x + 1).collect() == [2, 3]  # Python processes, too

    ours = {os.getpid(), *descendants(os.getpid())}
    listening = [each for each in listeners() if ours & {*each.processes}]

    assert len(listening) >= 3  # RPC, blocks, Python's gateway
    assert [str(each) for each in listening if not each.is_loopback] == []


def test_spark_maps_its_classes_where_they_have_been_made_ready(spark: SparkSession) -> None:
    path = classes_file()
    if not path.exists():
        pytest.skip("python -m spatialstream.spark.class_data has not been run")
    jvm = int(jvm_of(spark).java.lang.ProcessHandle.current().pid())
    assert str(path) in Path(f"/proc/{jvm}/maps").read_text()

"""The Spark session of the jobs, and the environment of its Python processes.

Spark's driver listens for executors, and sends jars and tasks to whatever it takes for one. So a session created here
always authenticates both sides by a secret of this one application, and encrypts their traffic, whatever its ``master``
is: loopback is shared by all users of a machine, and a pod's address by all pods of a cluster.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spatialstream.connectors.disk import private_file
from spatialstream.connectors.process_memory import ARENAS
from spatialstream.model.errors import RunError, SettingError
from spatialstream.spark.java import java_home, mapped_classes

__all__ = [
    "INTERRUPTED",
    "SparkSession",
    "check_conf",
    "embedded_session",
    "jvm_of",
    "new_secret",
    "right_python",
    "used_session",
    "while_java_lives",
]

_LASTING = 1_000_000
"""How often Spark starts a long-running task before it gives up."""

_GUARD = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # the key exchange and the cipher that Spark recommends; its defaults are older, for compatibility. GCM is
    # correct since 4.2 (SPARK-56227)
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    # otherwise a client could choose the older mechanism, which does not encrypt
    "spark.network.crypto.saslFallback": "false",
}
_GUARDED = ("spark.authenticate", "spark.network.crypto.")
_SECRET_BYTES = 32
_ENDING_SECONDS = 5.0
"""Maximum wait for a process that does not respond any more."""

INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the micro-batch\n: java.lang.InterruptedException"
)
"""What Spark takes for the end of a micro-batch that was cancelled because the query is being stopped.

Stopping a query waits for the function of ``foreachBatch``; if that simply returned, Spark would commit a micro-batch
that was not done, and any other error would count as the query's failure.
"""

_LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM whose heavy work is in Python: it compiles less, starts in half the time, and leaves the cores to that."""


def quiet_logging() -> str:
    """The option of a JVM that has Spark log errors only."""
    return f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"


def check_conf(conf: Mapping[str, str]) -> None:
    """Reject settings of Spark that would weaken how processes of an application authenticate each other.

    Raises:
        SettingError: there is one.
    """
    for key, value in conf.items():
        if key.startswith(_GUARDED) and value != _GUARD.get(key):
            raise SettingError(
                "conf",
                f"{key} cannot be set: Spark's processes always authenticate each other by a secret, and encrypt"
                " (see Access and encryption in docs/live.md)",
            )


def embedded_session(
    name: str,
    cores: int | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    secret: Path | None = None,
    lasting: bool = False,
    java: str | None = None,
) -> SparkSession:
    """A Spark session for ``cores`` cores (default: all) in this process, which listens on loopback only.

    With a ``master`` of another kind than ``local``, the tasks run in executors that Spark gets from there; then the
    driver listens where Spark's own settings say.

    The secret that driver and executors share is new in every session. Within this process Spark keeps it in memory. On
    Kubernetes Spark would put it into the executors' pods as an environment variable, visible to everyone who may read
    pods; with ``secret`` they read it from that file. The master of a standalone cluster has to know the secret
    beforehand: there it is ``spark.authenticate.secret`` in the ``spark-defaults.conf`` of all machines.

    Python processes are forked from a daemon that has loaded the package and its compiled kernels, so a new one costs
    nothing; see :mod:`spatialstream.spark.daemon`.

    Args:
        name: of the application.
        cores: see above.
        master: where Spark runs, if not in this process.
        conf: settings that override those made here, except for those that guard the session.
        secret: with a Kubernetes ``master``: the file of :func:`new_secret`, which the executors see at the same path.
        lasting: whether the session is only for long-running tasks (:mod:`~spatialstream.spark.actor_launcher`): they
            are restarted without limit. Other tasks would be, too, whatever their failure.
        java: more options of the JVMs; None: those by which they map their classes, see
            :mod:`~spatialstream.spark.java`. Executors on other machines have no such file, and start without it.

    Raises:
        SettingError: there is no Java, ``conf`` has settings that must not be set, or ``master`` needs a secret that
            Spark's configuration does not have.
        RunError: Spark's process has ended meanwhile.
    """
    check_conf(conf or {})
    if home := java_home():
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("MALLOC_ARENA_MAX", str(ARENAS))  # for the JVM that is started, and the processes below it
    java = mapped_classes() if java is None else java
    settings = _GUARD | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{_LEAN} {quiet_logging()} {java}",
        "spark.executor.extraJavaOptions": f"{_LEAN} {quiet_logging()} {java}",
        "spark.sql.adaptive.enabled": "false",
        # rows are few and large: generating and compiling code for each plan takes longer than it saves
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        # an epoch without input makes no micro-batch: the epoch's number and the micro-batch's are one
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # rows are blocks of at most 64 MiB: a batch has as many as fit into these bytes, or one
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.python.daemon.module": "spatialstream.spark.daemon",
        "spark.python.worker.reuse": "true",
        "spark.executorEnv.MALLOC_ARENA_MAX": str(ARENAS),
    }
    tries = _LASTING if lasting else 1
    settings["spark.task.maxFailures"] = str(tries)
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if secret is not None and master is not None and master.startswith("k8s:"):
        settings["spark.authenticate.secret.file"] = str(secret)
    builder = SparkSession.builder.master(master or f"local[{cores or '*'},{tries}]").appName(name)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    try:
        with while_java_lives():
            return builder.getOrCreate()
    except Py4JJavaError as error:
        if "A secret key must be specified" in str(error.java_exception.getMessage()):
            raise SettingError(
                "master",
                f"{master} needs spark.authenticate.secret in spark-defaults.conf, equal on all its machines",
            ) from None
        raise


@contextmanager
def while_java_lives() -> Iterator[None]:
    """Turns any error within into one that says that the JVM has ended, if it has: each call to it fails differently.

    Raises:
        RunError: it has ended.
        Exception: what is raised within, for another reason.
    """
    try:
        yield
    except Exception as error:
        process = getattr(SparkContext._gateway, "proc", None)
        with suppress(TimeoutExpired):  # the JVM may be about to end
            status = None if process is None else process.wait(_ENDING_SECONDS if _is_lost(error) else 0)
            if status is not None or "JAVA_GATEWAY_EXITED" in str(error):
                told = "" if status is None else f" (status {status})"
                raise RunError(f"lost Spark: its process ended{told} while it was being started") from error
        raise


def _is_lost(error: Exception) -> bool:
    """Whether an error is one of the connection to the JVM."""
    return isinstance(error, Py4JNetworkError | OSError)


def new_secret(path: Path) -> bytes:
    """Write a new secret to a file that only this user may read; returns the secret.

    Raises:
        SettingError: the file cannot be written.
    """
    secret = secrets.token_hex(_SECRET_BYTES).encode()
    try:
        private_file(path, secret)
    except OSError as error:
        raise SettingError("checkpoint", f"{path} cannot be written: {error.strerror}") from None
    return secret


class _Sessions:
    """The session that was created here for callers without one; it ends with its last user."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: SparkSession | None = None
        self._users = 0

    def take(self, cores: int | None, keep: bool) -> SparkSession:
        with self._lock:
            session = _existing()
            if session is None:
                session = self._made = embedded_session("spatialstream", cores)
                self._users = 0
            if keep and self._made is session:
                self._made = None
            if self._made is session:
                self._users += 1
            return session

    def give_back(self, session: SparkSession) -> None:
        with self._lock:
            if self._made is session:
                self._users -= 1
                if not self._users:
                    self._made = None
                    session.stop()


_sessions = _Sessions()


@contextmanager
def used_session(
    spark: SparkSession | None = None, cores: int | None = None, keep: bool = False
) -> Iterator[SparkSession]:
    """A session to work in, from any thread: the one passed, else that of this process, else a new one.

    Args:
        spark: the session to use.
        cores: of a new session; default: all.
        keep: whether a new session is left to the caller; otherwise it ends with the last of its users.
    """
    session = spark or _sessions.take(cores, keep)
    right_python(session)
    try:
        yield session
    finally:
        if spark is None:
            _sessions.give_back(session)


def _existing() -> SparkSession | None:
    """The session of this thread, or of the process."""
    try:
        return SparkSession.active()
    except PySparkException:
        return None


def jvm_of(session: SparkSession) -> Any:
    """The classes and objects of a session's JVM, by their Java names; PySpark has no public way to them."""
    return session.sparkContext._jvm


def right_python(session: SparkSession) -> None:
    """Let a session on this machine start its Python processes with this Python, unless another one is configured.

    Spark's own choice is the ``python3`` of the ``PATH``, which need not have this package, nor this version.
    """
    context = session.sparkContext
    told = "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python")
    if not told and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable

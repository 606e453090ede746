"""The Spark session of the jobs, and what its Python processes start with.

Spark's driver listens for executors, and whoever it takes for one is given jars and tasks. So a session made here
always authenticates both sides by a secret of this one application, and encrypts what they say, whatever its ``master``
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
    "new_secret",
    "right_python",
    "used_session",
    "while_java_lives",
]

_LASTING = 1_000_000
"""How often Spark starts a task that is to stay before it gives up."""

_GUARD = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # the key exchange and the cipher that Spark recommends; its defaults are older, for compatibility. GCM is
    # right since 4.2 (SPARK-56227)
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    # otherwise a client could choose the mechanism before, which does not encrypt
    "spark.network.crypto.saslFallback": "false",
}
_GUARDED = ("spark.authenticate", "spark.network.crypto.")
_SECRET_BYTES = 32
_ENDING_SECONDS = 5.0
"""For which a process is waited for that does not answer any more."""

INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the micro-batch\n: java.lang.InterruptedException"
)
"""What Spark takes for the end of a micro-batch that was broken off because the query is being stopped.

Stopping a query waits for the function of ``foreachBatch``; if that simply returned, Spark would commit a micro-batch
that was not done, and any other error would count as the query's failure.
"""

_LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a JVM whose heavy work is in Python: it compiles less, starts in half the time, and leaves the cores to that."""


def _quiet_logging() -> str:
    return f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"


def check_conf(conf: Mapping[str, str]) -> None:
    """Refuse settings of Spark that would weaken how processes of an application authenticate each other.

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
    """A Spark session for ``cores`` cores (default: all) in this process, that listens on loopback only.

    With a ``master`` of another kind than ``local``, the tasks run in executors that Spark gets from there; then the
    driver listens where Spark's own settings say.

    The secret that driver and executors share is new in every session. Within this process Spark keeps it in memory. On
    Kubernetes Spark would put it into the executors' pods as an environment variable, for everyone to see who may look
    at pods; with ``secret`` they read it from that file. The master of a standalone cluster has to know the secret
    beforehand: there it is ``spark.authenticate.secret`` in the ``spark-defaults.conf`` of all machines.

    Python processes are forked from a daemon that has the package and its compiled kernels loaded, so a new one costs
    nothing; see :mod:`spatialstream.spark.daemon`.

    Args:
        name: of the application.
        cores: see above.
        master: where Spark runs, if not in this process.
        conf: settings that go before those made here, but for those that guard the session.
        secret: with a Kubernetes ``master``: the file of :func:`new_secret`, which the executors see at the same path.
        lasting: whether nothing is to be done in it but tasks that stay (:mod:`~spatialstream.spark.actor_launcher`):
            they are started again however often they go. Other tasks would be, too, whatever they fail of.
        java: more options of the JVMs; None: those by which they map their classes, see
            :mod:`~spatialstream.spark.java`. Executors on other machines have no such file, and do without.

    Raises:
        SettingError: there is no Java, ``conf`` holds what cannot be set, or ``master`` needs a secret that Spark's
            configuration does not have.
        RunError: Spark's process has ended meanwhile.
    """
    check_conf(conf or {})
    if home := java_home():
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("MALLOC_ARENA_MAX", str(ARENAS))  # of the JVM that is begun, and of the processes below it
    java = mapped_classes() if java is None else java
    settings = _GUARD | {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{_LEAN} {_quiet_logging()} {java}",
        "spark.executor.extraJavaOptions": f"{_LEAN} {_quiet_logging()} {java}",
        "spark.sql.adaptive.enabled": "false",
        # rows are few and large: code made and compiled for each plan takes longer than it saves
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        # an epoch without input makes no micro-batch: the epoch's number and the micro-batch's are one
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        # rows are blocks of megabytes, of 64 MiB at most: a batch is as many as make no more than these bytes, or one
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
                f"{master} needs spark.authenticate.secret in spark-defaults.conf, as all its machines have it",
            ) from None
        raise


@contextmanager
def while_java_lives() -> Iterator[None]:
    """What fails within because the JVM has ended fails with an error that says so: each call of it fails otherwise.

    Raises:
        RunError: it has ended.
        Exception: what is raised within, for another reason.
    """
    try:
        yield
    except Exception as error:
        process = getattr(SparkContext._gateway, "proc", None)
        with suppress(TimeoutExpired):  # it may be about to
            status = None if process is None else process.wait(_ENDING_SECONDS if _is_lost(error) else 0)
            if status is not None or "JAVA_GATEWAY_EXITED" in str(error):
                told = "" if status is None else f" (status {status})"
                raise RunError(f"lost Spark: its process ended{told} while it was being started") from error
        raise


def _is_lost(error: Exception) -> bool:
    """Whether an error is one of the connection to the JVM."""
    return isinstance(error, Py4JNetworkError | OSError)


def new_secret(path: Path) -> bytes:
    """A new secret, in a file that nobody but this user may read.

    Raises:
        SettingError: it cannot be written.
    """
    secret = secrets.token_hex(_SECRET_BYTES).encode()
    try:
        private_file(path, secret)
    except OSError as error:
        raise SettingError("checkpoint", f"{path} cannot be written: {error.strerror}") from None
    return secret


class _Sessions:
    """The session that has been made here for whoever needs one; it ends when nobody does any more."""

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
    """A session to work in, from any thread: the one given, else that of this process, else one that is made now.

    Args:
        spark: the session to use.
        cores: of a session that is made; default: all.
        keep: whether a session that is made is left to the caller; else it ends with the last of its users.
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


def right_python(session: SparkSession) -> None:
    """Let a session on this machine start its Python processes with this Python, unless it was told another.

    Spark's own choice is the ``python3`` of the ``PATH``, which need not have this package, nor be of this version.
    """
    context = session.sparkContext
    told = "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python")
    if not told and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable

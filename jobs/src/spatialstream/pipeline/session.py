"""The Spark session of the embedded mode, and what its Python processes start with."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from spatialstream.model.errors import SettingError

__all__ = ["INTERRUPTED", "embedded_session", "java_home"]

_JAVA_WANTED = 17

INTERRUPTED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the micro-batch\n: java.lang.InterruptedException"
)
"""What Spark takes for the end of a micro-batch that was broken off because the query is being stopped.

Stopping a query waits for the function of ``foreachBatch``; if that simply returned, Spark would commit a micro-batch
that was not done, and any other error would count as the query's failure.
"""


def java_home() -> str | None:
    """Where Java is: ``JAVA_HOME``, else what ``make`` has set up for this environment, else None (java on the PATH).

    Raises:
        SettingError: there is no Java at all.
    """
    if home := os.environ.get("JAVA_HOME"):
        return home
    remembered = Path(sys.prefix) / "java_home"
    if remembered.is_file():
        return remembered.read_text().strip()
    if shutil.which("java") is None:
        raise SettingError("java", f"Spark needs Java {_JAVA_WANTED} or newer; install a JDK, or set JAVA_HOME to one")
    return None


def _quiet_logging() -> str:
    return f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"


def embedded_session(
    name: str,
    cores: int | None = None,
    *,
    master: str | None = None,
    jars: Sequence[Path] = (),
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session for ``cores`` cores (default: all) in this process, that listens on loopback only.

    With a ``master`` of another kind than ``local``, the tasks run in executors that Spark gets from there; then the
    driver listens where Spark's own settings say.

    Python processes are forked from a daemon that has the package and its compiled kernels loaded, so a new one costs
    nothing; see :mod:`spatialstream.pipeline.daemon`.

    Args:
        name: of the application.
        cores: see above.
        master: where Spark runs, if not in this process.
        jars: jars that the executors need too.
        conf: settings that go before those made here.
    """
    if home := java_home():
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        # the heavy work is in Python: a JVM that compiles less starts in half the time and leaves the cores to it
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_quiet_logging()}",
        "spark.sql.adaptive.enabled": "false",
        # rows are few and large: code made and compiled for each plan takes longer than it saves
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.ui.explainMode": "simple",
        # all but Kafka, which is by default read through an older interface that converts each row twice
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.metricsEnabled": "false",
        # an epoch without input makes no micro-batch: the epoch's number and the micro-batch's are one
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
        "spark.python.daemon.module": "spatialstream.pipeline.daemon",
        "spark.python.worker.reuse": "true",
        "spark.task.maxFailures": "1",
    }
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    else:
        # that an executor has gone is no failure of the tasks; those that fail by themselves are tried once more
        settings |= {"spark.executor.extraJavaOptions": _quiet_logging(), "spark.task.maxFailures": "2"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    builder = SparkSession.builder.master(master or f"local[{cores or '*'}]").appName(name)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()

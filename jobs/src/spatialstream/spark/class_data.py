"""Creates the file of :func:`~spatialstream.spark.java.mapped_classes`: ``python -m spatialstream.spark.class_data``.

Once for each Java and each Spark; it takes some 20 s.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from pyspark import SparkContext

from spatialstream.spark.java import classes_file
from spatialstream.spark.session import embedded_session

__all__ = ["make"]

_PATIENCE = 300.0
"""Maximum seconds for Java to write the file on exit; on a quiet machine it takes 8."""


def make() -> Path:
    """Create the file, unless it exists; of several processes one does. For a process without a session.

    Raises:
        SettingError: there is no Java.
        RuntimeError: Java has not created it.
    """
    path = classes_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(path.parent, "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for left in path.parent.glob("spark-*.new"):  # of a process that was killed
                left.unlink()
            new = path.with_suffix(".new")
            _dump(new)
            with new.open("rb") as written:
                os.fsync(written.fileno())  # a truncated file crashes the JVM that maps it
            new.replace(path)
    return path


def _dump(path: Path) -> None:
    """Start Spark, do one of each kind of work of a run, and have the JVM write its classes on exit."""
    session = embedded_session("class data", 1, java=f'"-XX:ArchiveClassesAtExit={path}" -Xlog:cds*=off')
    session.sparkContext.parallelize(range(1), 1).map(str).collect()
    session.createDataFrame([(1, "a")], "number int, text string").collect()
    gateway = SparkContext._gateway  # the only reference to its process
    assert gateway is not None
    session.stop()
    gateway.proc.stdin.close()  # this ends the JVM
    status = gateway.proc.wait(_PATIENCE)
    if status or not path.exists():
        raise RuntimeError(f"Java has ended with status {status}, and has not written {path}")


if __name__ == "__main__":
    made = make()
    sys.stdout.write(f"    {made}: {made.stat().st_size >> 20} MiB\n")

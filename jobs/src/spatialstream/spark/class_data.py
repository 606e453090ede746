"""Makes the file of :func:`~spatialstream.spark.java.mapped_classes`: ``python -m spatialstream.spark.class_data``.

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
"""Seconds that Java may take to write the file when it ends; on a quiet machine it takes 8."""


def make() -> Path:
    """Make the file, unless it is there; of several processes one does. For a process without a session.

    Raises:
        SettingError: there is no Java.
        RuntimeError: Java has not made it.
    """
    path = classes_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with Path(path.parent, "spark.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for left in path.parent.glob("spark-*.new"):  # by one that was killed
                left.unlink()
            new = path.with_suffix(".new")
            _dump(new)
            with new.open("rb") as written:
                os.fsync(written.fileno())  # a file that was cut off ends the JVM that maps it
            new.replace(path)
    return path


def _dump(path: Path) -> None:
    """Start Spark, do what a run does of each kind, and have the JVM write down its classes when it ends."""
    session = embedded_session("class data", 1, java=f'"-XX:ArchiveClassesAtExit={path}" -Xlog:cds*=off')
    session.sparkContext.parallelize(range(1), 1).map(str).collect()
    session.createDataFrame([(1, "a")], "number int, text string").collect()
    gateway = SparkContext._gateway  # its process is nowhere else
    assert gateway is not None
    session.stop()
    gateway.proc.stdin.close()  # which is what the JVM ends by
    status = gateway.proc.wait(_PATIENCE)
    if status or not path.exists():
        raise RuntimeError(f"Java has ended with status {status}, and has not written {path}")


if __name__ == "__main__":
    made = make()
    sys.stdout.write(f"    {made}: {made.stat().st_size >> 20} MiB\n")

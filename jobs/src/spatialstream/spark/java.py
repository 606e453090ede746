"""Finds Java, and a file with Spark's classes as a JVM holds them in memory, which the next JVM maps (JEP 350).

A JVM that starts Spark reads, checks and links some ten thousand classes of a few hundred jars: a quarter of the
processor time of a small run. The file saves that. :mod:`spatialstream.spark.class_data` creates it, for one Java and
one Spark; a JVM for which it does not fit starts without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from spatialstream.model.errors import SettingError
from spatialstream.model.kernels import user_cache

__all__ = ["classes_file", "java_home", "mapped_classes"]

_WANTED = 17


def java_home() -> str | None:
    """The home of Java: ``JAVA_HOME``, else what ``make`` has set up for this environment, else None (java on PATH).

    Raises:
        SettingError: there is no Java at all.
    """
    if home := os.environ.get("JAVA_HOME"):
        return home
    remembered = Path(sys.prefix) / "java_home"
    if remembered.is_file():
        return remembered.read_text().strip()
    if shutil.which("java") is None:
        raise SettingError("java", f"Spark needs Java {_WANTED} or newer; install a JDK, or set JAVA_HOME to one")
    return None


def classes_file() -> Path:
    """The path of the file, which may not exist yet: in the user's cache, named by a hash of Java and Spark's jars.

    Raises:
        SettingError: there is no Java.
    """
    home = java_home()
    java = Path(shutil.which("java") or "java") if home is None else Path(home, "bin", "java")
    if not java.exists():
        raise SettingError("java", f"there is no {java}; set JAVA_HOME to a JDK")
    java = java.resolve()
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode())
    for jar in sorted(Path(_find_spark_home(), "jars").glob("*.jar")):
        state = jar.stat()
        digest.update(f"{jar} {state.st_mtime_ns} {state.st_size} ".encode())
    return user_cache() / f"spark-{digest.hexdigest()[:16]}.jsa"


def mapped_classes() -> str:
    """The options of a JVM that maps the file; empty if it has not been created.

    Raises:
        SettingError: there is no Java.
    """
    path = classes_file()
    # without Xlog, a JVM for which the file does not fit reports that on standard output, among the rows
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds*=off' if path.exists() else ""

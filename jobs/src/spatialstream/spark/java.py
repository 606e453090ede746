"""Where Java is, and Spark's classes as a JVM has them in memory, in a file that the next one maps (JEP 350).

A JVM that starts Spark reads, checks and links some ten thousand classes of a few hundred jars: a quarter of the
processor time that a small run takes. With the file it does not. :mod:`spatialstream.spark.class_data` makes the file,
for one Java and one Spark; a JVM that finds that it does not fit goes on without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from spatialstream.model.errors import SettingError
from spatialstream.model.kernels import cache_folder

__all__ = ["classes_file", "java_home", "mapped_classes"]

_WANTED = 17


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
        raise SettingError("java", f"Spark needs Java {_WANTED} or newer; install a JDK, or set JAVA_HOME to one")
    return None


def classes_file() -> Path:
    """Where the file is, or would be: in the user's cache, named after what it is made of.

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
    return cache_folder().parent / f"spark-{digest.hexdigest()[:16]}.jsa"


def mapped_classes() -> str:
    """The options of a JVM that maps the file; none where it has not been made.

    Raises:
        SettingError: there is no Java.
    """
    path = classes_file()
    # that a file does not fit would be told on standard output, among the rows
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:cds*=off' if path.exists() else ""

"""Where Java and the jars are: Spark's own come with the pyspark wheel, Kafka's are fetched by ``make`` (Maven).

``make`` remembers in the environment's folder where it has put them (``.venv/.jars``, ``.venv/java_home``); what the
variables ``SPATIALSTREAM_JARS`` and ``JAVA_HOME`` say goes before.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from spatialstream.model.errors import SettingError

__all__ = ["VARIABLE", "jars_folder", "java", "kafka_class_path", "pyspark_class_path"]

VARIABLE = "SPATIALSTREAM_JARS"
"""The environment variable that names the folder with ``kafka`` in it."""

_STAMP = ".jars"


def java() -> str:
    """The command that starts Java.

    Raises:
        SettingError: there is no Java.
    """
    remembered = Path(sys.prefix) / "java_home"
    home = os.environ.get("JAVA_HOME") or (remembered.read_text().strip() if remembered.is_file() else "")
    command = Path(home) / "bin" / "java" if home else shutil.which("java")
    if command is None or not Path(command).is_file():
        raise SettingError("java", "Kafka and ZooKeeper need Java 17 or newer; install a JDK, or set JAVA_HOME to one")
    return str(command)


def jars_folder() -> Path:
    """The folder with Kafka's jars: what ``SPATIALSTREAM_JARS`` names, else what ``make`` has fetched.

    Raises:
        SettingError: there is no such folder.
    """
    if named := os.environ.get(VARIABLE):
        folder, problem = Path(named), f"{named} is not a folder"
    else:
        stamp = Path(sys.prefix) / _STAMP
        folder = Path(stamp.read_text().strip()) if stamp.is_file() else stamp
        problem = f"Kafka's jars are missing; run `make .venv/.jars`, or set {VARIABLE} to the folder that has them"
    if not folder.is_dir():
        raise SettingError("jars", problem)
    return folder


def kafka_class_path() -> str:
    """The class path of a Kafka broker.

    Raises:
        SettingError: its jars are missing.
    """
    folder = jars_folder() / "kafka"
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise SettingError(
            "jars", f"{folder} holds no jars; run `make .venv/.jars`, or set {VARIABLE} to another folder"
        )
    return os.pathsep.join(map(str, jars))


def pyspark_class_path() -> str:
    """The class path of all that Spark brings along, a ZooKeeper server included.

    Raises:
        SettingError: pyspark is not installed, or is installed without its jars.
    """
    spec = find_spec("pyspark")
    folders = spec.submodule_search_locations if spec else None
    jars = Path(folders[0]) / "jars" if folders else None
    if jars is None or not jars.is_dir():
        raise SettingError("jars", "ZooKeeper comes with pyspark, which is not installed here, or without its jars")
    return str(jars / "*")

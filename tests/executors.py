"""Executors of Spark's own cluster on this machine: processes of their own, as on Kubernetes."""

from __future__ import annotations

import os
from pathlib import Path

import pyspark

from spatialstream.servers.job import JobServer
from tests.integration.processes import descendants
from tests.listening import command_of

__all__ = ["MASTER", "executors", "master", "spark_home"]


def master(executors: int, mebibytes: int = 1024) -> str:
    """Spark's name for so many executors of one core."""
    return f"local-cluster[{executors},1,{mebibytes}]"


MASTER = master(2)


def spark_home(folder: Path) -> dict[str, str]:
    """The environment of Spark's own cluster on this machine, which writes nothing but there."""
    home = folder / "spark"
    (home / "conf").mkdir(parents=True)
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name not in ("conf", "work"):
            (home / each.name).symlink_to(each)
    (home / "conf" / "spark-defaults.conf").write_text(f"spark.authenticate.secret {os.urandom(32).hex()}\n")
    return {"SPARK_HOME": str(home), "SPARK_CONF_DIR": str(home / "conf")}


def executors(job: JobServer) -> dict[str, int]:
    """The processes of a job's executors, by id."""
    assert job.pid is not None
    commands = {each: command_of(each) for each in descendants(job.pid)}
    return {words[words.index("--executor-id") + 1]: pid for pid, words in commands.items() if "--executor-id" in words}

"""Spark's Python daemon with clocks: each task that its processes do leaves a line in a file.

Set as ``spark.python.daemon.module`` in place of :mod:`spatialstream.spark.daemon`, which it goes on as; the folder of
the files is in :data:`VARIABLE`.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path

from tests.benchmarks.clocks import VARIABLE, clock_tasks

if __name__ == "__main__":
    clock_tasks(Path(os.environ[VARIABLE]))
    runpy.run_module("spatialstream.spark.daemon", run_name="__main__")

"""Spark's Python daemon with clocks: each task in its processes writes a line to a file.

Set as ``spark.python.daemon.module`` instead of :mod:`spatialstream.spark.daemon`, to which it delegates; the folder of
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

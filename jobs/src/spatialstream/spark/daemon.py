"""Spark's Python daemon, with the package and its kernels loaded before it forks a worker.

Set as ``spark.python.daemon.module``. Every worker process is a fork of this one, so none of them imports or compiles
anything when its first task comes, however late in the stream that is.
"""

from __future__ import annotations

import gc

from pyspark import daemon

from spatialstream.actors import actor  # noqa: F401 - imported for the forks
from spatialstream.connectors.process_memory import few_arenas
from spatialstream.kernels import prepare
from spatialstream.stages import tasks  # noqa: F401 - imported for the forks

if __name__ == "__main__":
    few_arenas()  # for executors that were started without
    prepare()
    # the daemon's processes collect garbage after every task; nothing loaded here is garbage, and scanning it took a
    # tenth of a second each time
    gc.collect()
    gc.freeze()
    daemon.manager()

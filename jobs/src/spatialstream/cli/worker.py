"""``spatialstream worker``: the worker job of a live stream."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spatialstream.cli import live
from spatialstream.cli import options as shared

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "worker",
        help="run the worker job of a live stream",
        description="Reads the blocks that the router sends, keeps the slots' indexes, and sends results to "
        "STREAM.results and rejected queries to STREAM.rejected. Runs until it is interrupted; killed, the same "
        "command goes on without loss.",
    )
    live.add_job(parser)
    add = parser.add_argument_group("the worker").add_argument
    add("--archive", type=Path, metavar="DIR", help="write objects there as Parquet when retention drops them")
    add("--epochs-per-round", type=shared.count, default=64, metavar="N", help="at most (default %(default)s)")
    add("--rows-per-message", type=shared.count, default=500, metavar="N", help="at most (default %(default)s)")
    parser.set_defaults(function=_run)


def _run(options: argparse.Namespace) -> int:
    from spatialstream.pipeline.jobs import WorkerJob
    from spatialstream.pipeline.kafka import Topics
    from spatialstream.pipeline.kernels import compile_kernels
    from spatialstream.pipeline.metrics import WorkerMetrics, serve
    from spatialstream.pipeline.start import locked

    settings = live.settings(options)
    connection, checkpoint = live.connection(options), options.checkpoint.absolute()
    with locked(checkpoint, "worker"), live.store(options) as store:
        settings.claim(checkpoint)
        Topics(options.stream).ensure(connection, settings.slots, create=False)
        compile_kernels()
        metrics = WorkerMetrics(settings, checkpoint, store)
        serve(metrics.registry, options.metrics_address, options.metrics_port)
        session = live.session(options)
        job = WorkerJob(
            session,
            connection,
            settings,
            checkpoint,
            store,
            pause=options.pause,
            observe=metrics.observe,
            report=lambda text: live.say(options, text),
            running=metrics.running.set,
            archive=None if options.archive is None else options.archive.absolute(),
            most_epochs=options.epochs_per_round,
            rows_per_message=options.rows_per_message,
        )
        try:
            with live.stopping(options, job.stop):
                live.say(options, f"{options.command} of {options.stream}: running")
                job.run()
        finally:
            session.stop()
    return 0

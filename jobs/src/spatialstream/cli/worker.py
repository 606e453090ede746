"""``spatialstream worker``: the worker job of a live stream."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError, Unavailable

if TYPE_CHECKING:
    from spatialstream.stages.rows import RowLimits

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
    add(
        "--longest-row",
        type=shared.count,
        default=64 << 20,
        metavar="BYTES",
        help="of a longer result row there is only the reason why it is not given (64 MiB)",
    )
    parser.set_defaults(function=_run)


def _run(options: argparse.Namespace) -> int:
    from spatialstream.cli.metrics import WorkerMetrics, serve
    from spatialstream.kernels import compile_kernels
    from spatialstream.seats.door import Door
    from spatialstream.sources.folder import Folder
    from spatialstream.sources.kafka_stream import KafkaChannel, KafkaSink
    from spatialstream.stages.questions import Directory
    from spatialstream.stream.beginning import check_life
    from spatialstream.stream.job import WorkerJob
    from spatialstream.stream.load_report import known_leaves
    from spatialstream.stream.worker import ROUNDS

    settings = live.settings(options)
    limits = _limits(options.longest_row)
    with live.begin(options, settings) as begun:
        connection, store, storage, life = begun.connection, begun.store, begun.storage, begun.life
        connection.topics(options.stream).ensure(connection, settings.slots, mergers=settings.mergers, create=False)
        check_life(store, storage, options.stream, life, new=not storage.list(ROUNDS))
        compile_kernels()
        metrics = WorkerMetrics(settings.slots, known_leaves(store))
        serve(metrics.registry, options.metrics_address, options.metrics_port)
        world = settings.world(
            storage,
            KafkaChannel(connection, options.stream, settings.slots, life),
            KafkaSink(connection, options.stream, options.rows_per_message, life),
            None if options.archive is None else Folder(options.archive.absolute()),
            limits=limits,
        )
        with live.seats(options, world) as (session, engine):
            _open_door(options, Door.of(engine.door, settings.space, settings.rule), store)
            metrics.questions(engine.asked)
            job = WorkerJob(
                **begun.job(session, engine, metrics),
                most_epochs=options.epochs_per_round,
                publish=lambda turn: engine.publish(Directory.record(turn)),
                foreign=metrics.foreign,
                loads=metrics,
            )
            live.run(options, job)
    return 0


def _open_door(options: argparse.Namespace, door: Any, store: Any) -> None:
    """Let the stream be asked between its rounds; no start fails for it."""
    try:
        door.save(store)
    except Unavailable as error:
        live.say(options, f"nobody can ask the stream between its rounds until it is started again: {error}")


def _limits(longest: int) -> RowLimits:
    from spatialstream.stages.rows import RowLimits

    low, high = 1 << 10, 1 << 30
    if not low <= longest <= high:
        raise SettingError("longest-row", f"{longest} is out of range; give {low} to {high}")
    return RowLimits(longest)

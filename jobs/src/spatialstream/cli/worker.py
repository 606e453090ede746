"""``spatialstream worker``: run the worker job of a live stream."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError

if TYPE_CHECKING:
    from spatialstream.actors.query_endpoint import QueryEndpoint
    from spatialstream.stages.rows import RowLimits
    from spatialstream.store.base import RoutingStore

__all__ = ["add_parser", "opening"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "worker",
        help="run the worker job of a live stream",
        description="Reads the blocks that the router sends, keeps the slots' indexes, and sends results to "
        "STREAM.results and rejected queries to STREAM.rejected. Runs until interrupted; after a kill, the same "
        "command resumes without loss.",
    )
    live.add_job(parser)
    add = parser.add_argument_group("the worker").add_argument
    text = "write objects to this storage as Parquet when retention drops them"
    add("--archive", type=shared.storage("archive"), metavar="DIR|URL", help=text)
    text = "maximum number of epochs in a round (default %(default)s)"
    add("--epochs-per-round", type=shared.count, default=64, metavar="N", help=text)
    text = "maximum number of result rows in a message (default %(default)s)"
    add("--rows-per-message", type=shared.count, default=500, metavar="N", help=text)
    add(
        "--longest-row",
        type=shared.count,
        default=64 << 20,
        metavar="BYTES",
        help="replace longer result rows with an error row (default 64 MiB)",
    )
    parser.set_defaults(function=_run)


def _run(options: argparse.Namespace) -> int:
    from spatialstream.actors.query_endpoint import QueryEndpoint
    from spatialstream.actors.read_point import ReadPoint
    from spatialstream.cli.metrics import WorkerMetrics, serve
    from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink
    from spatialstream.kernels import compile_kernels
    from spatialstream.stream.bootstrap import check_incarnation
    from spatialstream.stream.job import WorkerJob
    from spatialstream.stream.load_report import known_leaves
    from spatialstream.stream.settings import NOT_STORED
    from spatialstream.stream.worker import ROUNDS

    settings = live.settings(options)
    if settings.filtered and options.archive is not None:
        raise SettingError("archive", f"{NOT_STORED}; leave it out, or serve everything")
    limits = _limits(options.longest_row)
    with live.begin(options, settings) as begun:
        connection, store, storage, incarnation = begun.connection, begun.store, begun.storage, begun.incarnation
        connection.topics(options.stream).ensure(connection, settings.slots, mergers=settings.mergers, create=False)
        check_incarnation(store, storage, options.stream, incarnation, new=not storage.list(ROUNDS))
        compile_kernels()
        metrics = WorkerMetrics(settings.slots, known_leaves(store))
        serve(metrics.registry, options.metrics_address, options.metrics_port)
        world = settings.world(
            storage,
            KafkaChannel(connection, options.stream, settings.slots, incarnation),
            KafkaSink(connection, options.stream, options.rows_per_message, incarnation),
            options.archive,
            limits=limits,
        )
        with live.actors(options, begun, world) as (session, engine):
            check_incarnation(store, storage, options.stream, incarnation, new=not storage.list(ROUNDS))
            metrics.queries(engine.asked)
            given = begun.job(session, engine, metrics)
            query_endpoint = QueryEndpoint.of(engine.query_endpoint, settings.space, settings.rule)
            given["follow"] = opening(query_endpoint, store, given["follow"])
            job = WorkerJob(
                **given,
                most_epochs=options.epochs_per_round,
                publish=lambda turn: engine.publish(ReadPoint.record(turn)),
                foreign=metrics.foreign,
                loads=metrics,
            )
            live.run(options, job)
    return 0


def opening(query_endpoint: QueryEndpoint, store: RoutingStore, then: Callable[[], object]) -> Callable[[], object]:
    """Return a function that calls ``then``, and before its first success publishes the query endpoint.

    Errors of the store propagate: without it no client can find the endpoint, but the stream runs all the same.
    """
    published = [query_endpoint]

    def follow() -> None:
        while published:
            published[-1].save(store)
            published.pop()
        then()

    return follow


def _limits(longest: int) -> RowLimits:
    from spatialstream.stages.rows import RowLimits

    low, high = 1 << 10, 1 << 30
    if not low <= longest <= high:
        raise SettingError("longest-row", f"{longest} is out of range; give {low} to {high}")
    return RowLimits(longest)

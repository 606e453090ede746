"""``spatialstream router``: run the router job of a live stream."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.connectors.program import program
from spatialstream.index.kinds import AUTO, DEFAULT
from spatialstream.model.errors import StateError, Unavailable

if TYPE_CHECKING:
    from spatialstream.connectors.kafka import Connection
    from spatialstream.store.base import RoutingStore
    from spatialstream.stream.settings import StreamSettings

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "router",
        help="run the router job of a live stream",
        description="Reads the topics STREAM.objects and STREAM.queries, and sends blocks to the slots of the worker "
        "job (STREAM.blocks). Creates the topics and the first routing version if they are missing. Runs until "
        "interrupted; after a kill, the same command resumes without loss.",
    )
    live.add_job(parser)
    group = parser.add_argument_group("the router")
    add = group.add_argument
    shared.add_index(group, None, f"kind of global index of a new stream (default {DEFAULT}); {AUTO} needs --history")
    add("--leaves", type=shared.count, default=64, metavar="N", help="leaves of the first index (default 64)")
    add("--history", type=Path, metavar="FILE", help="sample of objects for the first index (default: none)")
    add("--history-queries", type=Path, metavar="FILE", help="sample of queries for the first index")
    text = "partitions of STREAM.objects when it is created (default 2)"
    add("--object-partitions", type=shared.count, default=2, metavar="N", help=text)
    text = "replication factor of created topics (default: 3, or the number of brokers if that is less)"
    add("--replicas", type=shared.count, metavar="N", help=text)
    text = "time of silence after which a partition no longer holds back the watermark (default 500ms)"
    add("--idle", type=shared.duration, default=500, metavar="TIME", help=text)
    text = "how far out of order records may be within a partition (default 0)"
    add("--disorder", type=shared.duration, default=0, metavar="TIME", help=text)
    text = "approximate number of records an epoch (default 250000)"
    add("--epoch", type=shared.count, default=250_000, metavar="N", help=text)
    add(
        "--ahead",
        type=shared.duration,
        default=3_600_000,
        metavar="TIME",
        help="reject records and watermarks that are further than this in the future (default 1h)",
    )
    text = "reject longer records (default 1 MiB)"
    add("--longest", type=shared.count, default=1 << 20, metavar="BYTES", help=text)
    live.add_balance(group, "the stream's stored value; for a new stream L is 6, E 0.5, FORM weighted")
    parser.set_defaults(function=_run)


def _run(options: argparse.Namespace) -> int:
    from spatialstream.cli.metrics import RouterMetrics, serve
    from spatialstream.connectors.kafka import CONTINUED, INTERNAL
    from spatialstream.connectors.kafka_stream import KafkaChannel, KafkaSink, KafkaSource
    from spatialstream.kernels import compile_kernels
    from spatialstream.stream.bootstrap import FirstIndex, check_incarnation, ensure_first_version
    from spatialstream.stream.created_topics import record_topics
    from spatialstream.stream.job import RouterJob

    settings = live.settings(
        options,
        idle=options.idle,
        disorder=options.disorder,
        epoch_records=options.epoch,
        longest=options.longest,
        ahead=options.ahead,
    )
    live.balance(options)
    with live.begin(options, settings) as begun:
        connection, store, storage, incarnation = begun.connection, begun.store, begun.storage, begun.incarnation
        check_incarnation(store, storage, options.stream, incarnation, new=True)
        compile_kernels()
        metrics = RouterMetrics()
        serve(metrics.registry, options.metrics_address, options.metrics_port)
        world = settings.world(
            storage,
            KafkaChannel(connection, options.stream, settings.slots, incarnation),
            KafkaSink(connection, options.stream, incarnation=incarnation),
            source=KafkaSource(connection, options.stream),
        )
        with live.actors(options, begun, world) as (session, engine):
            topics = connection.topics(options.stream)
            between = partial(topics.ids, connection, INTERNAL)
            recorder = record_topics(storage, options.stream, incarnation, {topics.blocks, topics.epochs}, between)
            topics.ensure(
                connection,
                settings.slots,
                options.object_partitions,
                options.replicas,
                settings.mergers,
                made=recorder.add,
            )
            recorder.check(topics.ids(connection, CONTINUED))
            first = FirstIndex(options.index, options.leaves, options.history, options.history_queries)
            report = partial(live.say, options)
            ensure_first_version(store, storage, settings, first, incarnation=incarnation, report=report)
            keep_balance(options, store)
            _keep_topics(options, store, connection)
            keep_limits(options, store, settings)
            live.run(
                options, RouterJob(**begun.job(session, engine, metrics), lag=metrics.lag, dropped=metrics.dropped)
            )
    return 0


def keep_balance(options: argparse.Namespace, store: RoutingStore) -> None:
    """Store the balance settings given on the command line; a failure is reported, and does not prevent the start."""
    from spatialstream.store.reports import read_balance, save_balance

    if options.threshold is None and options.epsilon is None and options.similarity is None:
        return
    try:
        save_balance(store, live.balance(options, read_balance(store)))
    except (StateError, Unavailable) as error:
        live.say(options, f"lambda, epsilon and similarity could not be stored for {program()} rebalance: {error}")


def _keep_topics(options: argparse.Namespace, store: RoutingStore, connection: Connection) -> None:
    """Record the stream's topics in the routing store, so that removal of another stream does not delete them."""
    from spatialstream.connectors.kafka import cluster_of
    from spatialstream.store.reports import UsedTopics, read_topics, save_topics

    try:
        used = UsedTopics(cluster_of(connection), connection.topics(options.stream).names)
        if read_topics(store) != used:
            save_topics(store, used)
    except (StateError, Unavailable) as error:
        live.say(options, f"the stream's topics could not be recorded in the routing store: {error}")


def keep_limits(options: argparse.Namespace, store: RoutingStore, settings: StreamSettings) -> None:
    """Tell the routing store which times are taken, so that a gateway refuses the others."""
    from spatialstream.store.reports import TimeLimits, read_limits, save_limits

    limits = TimeLimits(settings.ahead, settings.retention, settings.rule.serves)
    try:
        if read_limits(store) != limits:
            save_limits(store, limits)
    except (StateError, Unavailable) as error:
        live.say(options, f"gateways cannot know which times the stream accepts: {error}")

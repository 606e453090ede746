"""What the commands of a live stream have in common: how to reach it, and its settings.

Where a stream is can also be said by the environment (:data:`VARIABLES`), as it is in the pods of a stream on
Kubernetes: there, every command works without arguments.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from spatialstream.balance.settings import FORMS, BalanceSettings
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError, StateError, Unavailable

if TYPE_CHECKING:
    from spatialstream.actors.engine import ActorEngine
    from spatialstream.cli.metrics import RouterMetrics, WorkerMetrics
    from spatialstream.connectors.contracts import Storage
    from spatialstream.connectors.kafka import Connection
    from spatialstream.spark.session import SparkSession
    from spatialstream.stages.tasks import World
    from spatialstream.store.lease import Lease
    from spatialstream.store.tls import TlsFiles
    from spatialstream.store.zookeeper import ZooKeeperStore
    from spatialstream.stream.job import RouterJob, WorkerJob
    from spatialstream.stream.settings import StreamSettings

__all__ = [
    "BOOTSTRAP",
    "LEASE_PATIENCE",
    "VARIABLES",
    "ZOOKEEPER",
    "Begun",
    "access",
    "actors",
    "add_balance",
    "add_broker",
    "add_job",
    "add_store",
    "add_stream",
    "balance",
    "begin",
    "connection",
    "run",
    "say",
    "settings",
    "stopping",
    "store",
]

VARIABLES = {
    "stream": "SPATIALSTREAM_STREAM",
    "bootstrap": "SPATIALSTREAM_BOOTSTRAP",
    "kafka_security": "SPATIALSTREAM_KAFKA_SECURITY",
    "topics": "SPATIALSTREAM_TOPICS",
    "zookeeper": "SPATIALSTREAM_ZOOKEEPER",
    "zookeeper_credentials": "SPATIALSTREAM_ZOOKEEPER_CREDENTIALS",
    "zookeeper_ca": "SPATIALSTREAM_ZOOKEEPER_CA",
    "zookeeper_certificate": "SPATIALSTREAM_ZOOKEEPER_CERTIFICATE",
    "zookeeper_key": "SPATIALSTREAM_ZOOKEEPER_KEY",
}
"""Environment variables that say where a stream is, where the command line does not."""

_FINISHING = "spatialstream: finishing what is under way; once more to stop at once"
_GRACE = 10.0
"""Seconds for which a job that is to stop finishes its turn. It may wait for a broker that is away, or for actors, much
longer; and whatever is left of a turn is done when the job starts again."""

ZOOKEEPER = "127.0.0.1:2181"
BOOTSTRAP = "127.0.0.1:9092"
"""Where ZooKeeper is unless it is said, as ``cluster up`` starts it."""

LEASE_PATIENCE = 20.0
"""Seconds that a job waits for the one before it: if that has died, ZooKeeper gives it up after 10."""


def _environment(option: str, default: str | None = None) -> str | None:
    return os.environ.get(VARIABLES[option]) or default


def add_stream(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """``--stream``."""
    known = _environment("stream")
    told = "the stream's name; its topics begin with it"
    parser.add_argument("--stream", required=required and known is None, default=known, metavar="NAME", help=told)


def add_broker(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """``--stream``, which may be required, ``--bootstrap``, ``--kafka-security``, ``--topic``."""
    add_stream(parser, required=required)
    add = parser.add_argument
    known = _environment("bootstrap", BOOTSTRAP)
    add("--bootstrap", default=known, metavar="HOST:PORT,...", help="the broker (default %(default)s)")
    told = "lines name=value with librdkafka's names: security.protocol, sasl.mechanism, sasl.username, ..."
    add("--kafka-security", type=Path, default=_environment("kafka_security"), metavar="FILE", help=told)
    topic = shared.value("topic", _topic)
    told = "a topic that is not called STREAM.KIND: objects, queries, results or rejected; may be repeated"
    add("--topic", type=topic, action="append", default=[], metavar="KIND=NAME", help=told)


def _topic(text: str) -> tuple[str, str]:
    from spatialstream.connectors.kafka import read_topic

    return read_topic(text)


def add_store(parser: argparse.ArgumentParser, default: str | None = ZOOKEEPER) -> None:
    """``--zookeeper``, ``--zookeeper-credentials``; ``--zookeeper-ca``, ``-certificate`` and ``-key`` for TLS."""
    add = parser.add_argument
    known = _environment("zookeeper", default)
    add("--zookeeper", default=known, metavar="HOST:PORT,...", help=f"ZooKeeper (default {known or ZOOKEEPER})")
    known, told = _environment("zookeeper_credentials"), "a file with user:password, for digest access"
    add("--zookeeper-credentials", type=Path, default=known, metavar="FILE", help=told)
    told = "encrypt (TLS), and believe servers that these authorities vouch for (PEM)"
    add("--zookeeper-ca", type=Path, default=_environment("zookeeper_ca"), metavar="FILE", help=told)
    known, told = _environment("zookeeper_certificate"), "show servers this certificate (PEM)"
    add("--zookeeper-certificate", type=Path, default=known, metavar="FILE", help=told)
    add("--zookeeper-key", type=Path, default=_environment("zookeeper_key"), metavar="FILE", help="and its key (PEM)")


def add_job(parser: argparse.ArgumentParser) -> None:
    """What the router and the worker are told; both have to be told the same of what is the stream's."""
    add_broker(parser)
    add_store(parser)
    told = "the stream's state, for both jobs: a folder, or s3://bucket/prefix"
    checkpoint = shared.storage("checkpoint")
    parser.add_argument("--checkpoint", type=checkpoint, required=True, metavar="DIR|URL", help=told)
    add = parser.add_argument_group(
        "the stream (the same for router and worker, for its whole incarnation)"
    ).add_argument
    add("--slots", type=shared.count, default=4, metavar="N", help="worker slots (default %(default)s)")
    add("--router-partitions", type=shared.count, default=2, metavar="N", help="tasks of the router (default 2)")
    told = "parts of MERGE by hash of the query's id, each a partition of the results (default 1, at most 64)"
    add("--mergers", type=shared.count, default=1, metavar="N", help=told)
    add("--interval", type=shared.duration, default=300_000, metavar="TIME", help="granularity of retention (5m)")
    add("--retention", type=shared.duration, metavar="TIME", help="how far back snapshot queries see (all)")
    shared.add_space(parser)
    shared.add_terms(parser)
    add = parser.add_argument_group("the job").add_argument
    add("--cores", type=shared.count, metavar="N", help="cores to use (default: all)")
    add("--master", metavar="URL", help="Spark master (default: this process)")
    told = "with --master: have as many executors as the routing store asks for, at any time"
    add("--executors-from-store", action="store_true", help=told)
    conf, told = shared.value("conf", _property), "a setting of Spark; may be repeated"
    add("--conf", type=conf, action="append", default=[], metavar="KEY=VALUE", help=told)
    add("--pause", type=shared.duration, default=0, metavar="TIME", help="at least this between epochs, or rounds (0)")
    told = "from one checkpoint of the job's state to the next, about (default 10s)"
    add("--checkpoint-interval", type=shared.duration, default=10_000, metavar="TIME", help=told)
    add("--metrics-port", type=int, default=0, metavar="PORT", help="serve Prometheus metrics there (default: nowhere)")
    add("--metrics-address", default="127.0.0.1", metavar="ADDRESS", help="and on this address (default %(default)s)")
    add("--quiet", action="store_true", help="say nothing but errors")


def add_balance(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str) -> None:
    """``--lambda``, ``--epsilon``, ``--similarity``; ``default`` is what the help says of those that are not given."""
    add = parser.add_argument
    told = f"imbalance from Lmax/Lmin > L (default: {default})"
    add("--lambda", dest="threshold", type=float, metavar="L", help=told)
    add("--epsilon", type=float, metavar="E", help=f"similarity above which FG splits by text (default: {default})")
    told = f"similarity with types weighted by how probable they are, or as the paper prints it (default: {default})"
    add("--similarity", choices=FORMS, metavar="FORM", help=told)


def balance(options: argparse.Namespace, kept: BalanceSettings | None = None) -> BalanceSettings:
    """What the options of :func:`add_balance` say, and where they say nothing what the stream has kept.

    Raises:
        SettingError: a value makes no sense.
    """
    printed = None if options.similarity is None else options.similarity == "printed"
    given = {"imbalance": options.threshold, "similarity": options.epsilon, "printed": printed}
    return replace(kept or BalanceSettings(), **{name: value for name, value in given.items() if value is not None})


def _property(text: str) -> tuple[str, str]:
    from spatialstream.spark.session import check_conf

    key, equals, value = text.partition("=")
    if not equals:
        raise SettingError("conf", f"{text!r} is not KEY=VALUE")
    check_conf({key: value})
    return key, value


def connection(options: argparse.Namespace) -> Connection:
    """How to reach the broker."""
    from spatialstream.connectors.kafka import Connection
    from spatialstream.connectors.kafka_security import read_properties

    security = {} if options.kafka_security is None else read_properties(options.kafka_security)
    said = dict(_topic(text) for text in (_environment("topics") or "").split(",") if text)
    return Connection(options.bootstrap, security, said | dict(options.topic), options.kafka_security)


def access(options: argparse.Namespace) -> dict[str, Any]:
    """What the routing store asks for, and what encrypts: as :class:`ZooKeeperStore` takes them.

    Raises:
        SettingError: a file cannot be read, or does not hold what it should.
    """
    return {"credentials": _credentials(options), "tls": _tls(options)}


def store(options: argparse.Namespace) -> ZooKeeperStore:
    """The routing store.

    Raises:
        SettingError: an option cannot be used.
    """
    from spatialstream.store.zookeeper import ZooKeeperStore

    return ZooKeeperStore(options.zookeeper, options.stream, **access(options))


def _credentials(options: argparse.Namespace) -> tuple[str, str] | None:
    """User and password; None where they are not given."""
    if options.zookeeper_credentials is None:
        return None
    try:
        text = options.zookeeper_credentials.read_text("utf-8").strip()
    except OSError as error:
        raise SettingError("zookeeper-credentials", f"cannot be read: {error.strerror}") from None
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise SettingError("zookeeper-credentials", "the file has to hold user:password")
    return user, password


def _tls(options: argparse.Namespace) -> TlsFiles | None:
    """The files for TLS, which can be used now; None where none are given."""
    from spatialstream.store.tls import TlsFiles

    authority, certificate, key = options.zookeeper_ca, options.zookeeper_certificate, options.zookeeper_key
    if authority is None:
        if certificate is None and key is None:
            return None
        problem = "is missing: who shows a certificate has to know servers by theirs; give their authority's"
        raise SettingError("zookeeper-ca", problem)
    files = TlsFiles(authority, certificate, key)
    files.context()
    return files


@dataclass(frozen=True, slots=True)
class Begun:
    """A job that has its lease or waits for it, and the stream that it is of.

    Attributes:
        options: what it was told.
        settings: of the stream.
        store: the routing store.
        lease: of the job.
        leased: is done when nobody else has the lease, as far as that can be known.
        storage: of the stream's state.
        incarnation: id of the stream's incarnation.
        connection: how to reach the broker.
    """

    options: argparse.Namespace
    settings: StreamSettings
    store: ZooKeeperStore
    lease: Lease
    leased: Future[None]
    storage: Storage
    incarnation: str
    connection: Connection

    def await_lease(self) -> None:
        """Wait until this process is the one to do the job. Before, nothing may be written that others see.

        Raises:
            SettingError: another one is running.
            StateError: the stream has been removed meanwhile.
        """
        from spatialstream.stream.bootstrap import claimed

        try:
            self.leased.result()
        except Unavailable as error:
            say(self.options, f"{error}; going on as if none were")
        if claimed(self.settings, self.storage) != self.incarnation:
            raise StateError(f"{self.options.stream} has been removed while its {self.options.command} was starting")

    def job(self, session: SparkSession, engine: ActorEngine, metrics: RouterMetrics | WorkerMetrics) -> dict[str, Any]:
        """What both jobs are made with."""
        metrics.actors(engine.held)
        metrics.requests(engine.requests)
        metrics.memory(lambda: _memory(session, engine))
        return {
            "engine": engine,
            "store": self.store,
            "settings": self.settings,
            "incarnation": self.incarnation,
            "pause": self.options.pause,
            "checkpoint_interval": self.options.checkpoint_interval / 1000,
            "report": lambda text: say(self.options, text),
            "running": metrics.running.set,
            "full": metrics.full.set,
            "away": metrics.away.set,
            "checkpointed": metrics.checkpointed,
            "lease": self.lease,
            "observe": metrics.observe,
            "follow": self._executors(session, engine, metrics),
        }

    def _executors(
        self, session: SparkSession, engine: ActorEngine, metrics: RouterMetrics | WorkerMetrics
    ) -> Callable[[], object]:
        """What keeps the number of executors; nothing where the routing store is not asked for it."""
        from spatialstream.spark.executors import Executors

        options = self.options
        if not options.executors_from_store:
            metrics.executors(1, engine.width)
            return lambda: None
        cores = int(session.conf.get("spark.executor.cores", "1") or 1)
        tell = metrics.executors, lambda text: say(options, text)
        return Executors(session, options.command, engine, self.store, cores, *tell).follow


@contextmanager
def begin(options: argparse.Namespace, settings: StreamSettings) -> Iterator[Begun]:
    """The command's job with its lease, for as long as it runs. In a stream that has begun it is yet to be pending.

    The one before may have died a moment ago, and what a job has to start takes as long as that takes to be known.

    Without ZooKeeper the job goes on, for a stream does not need it to; that two do no harm is seen to elsewhere
    (:mod:`spatialstream.store.lease`).

    Raises:
        SettingError: another one is running; or the checkpoint is of another stream, or has other settings.
    """
    from spatialstream.connectors.calls import called
    from spatialstream.stream.bootstrap import claim, claimed

    broker, storage = connection(options), options.checkpoint
    with store(options) as opened, opened.lease(options.command) as held:
        leased = called(lambda: held.acquire(LEASE_PATIENCE))
        incarnation = claimed(settings, storage)
        if incarnation is None:
            wait([leased])
            if not isinstance(leased.exception(), Unavailable):
                leased.result()
            incarnation = claim(settings, storage, opened.lease("claim"), LEASE_PATIENCE)
        yield Begun(options, settings, opened, held, leased, storage, incarnation, broker)


def run(options: argparse.Namespace, job: RouterJob | WorkerJob) -> None:
    """Run a job until it is interrupted."""
    with stopping(options, job.stop, grace=_GRACE):
        say(options, f"{options.command} of {options.stream}: starting")
        job.run()


def settings(options: argparse.Namespace, **more: Any) -> StreamSettings:
    """The stream's settings."""
    from spatialstream.stream.settings import StreamSettings

    result = StreamSettings(
        options.stream,
        slots=options.slots,
        space=options.space,
        partitions=options.router_partitions,
        mergers=options.mergers,
        interval=options.interval,
        retention=options.retention,
        rule=shared.term_rule(options),
        **more,
    )
    result.validate()
    return result


@contextmanager
def actors(options: argparse.Namespace, begun: Begun, world: World) -> Iterator[tuple[SparkSession, ActorEngine]]:
    """Actors in a Spark session of the job, which ends with them; they are given when it has its lease.

    They do nothing by themselves, so they come while it is waited for. On Kubernetes Spark leaves a secret for the pods
    of its executors, which are those of the holder alone: there it starts after.

    In executors there are as many as the job has slots, or partitions, as far as there are cores; in this process' own
    session one for each core.

    Raises:
        SettingError: executors are to follow the routing store, and the master has none; or see
            :meth:`Begun.await_lease`.
        StateError: likewise.
    """
    from spatialstream.actors.engine import ActorEngine
    from spatialstream.spark.actor_launcher import SparkActorLauncher, stop_spark
    from spatialstream.spark.session import embedded_session, while_java_lives

    name = f"spatialstream-{options.command}-{options.stream}"
    given = {"master": options.master, "conf": dict(options.conf)}
    count = None
    if _has_executors(options.master):
        count = options.slots if options.command == "worker" else options.router_partitions
    elif options.executors_from_store:
        raise SettingError("executors-from-store", "needs a --master that gives executors, such as k8s://...")
    with ExitStack() as held:
        if (options.master or "").startswith("k8s:"):
            begun.await_lease()
            given["secret"] = held.enter_context(_spark_secret(options))
        session = embedded_session(name, options.cores, **given, lasting=True)
        held.callback(stop_spark, session)
        with while_java_lives():
            launcher = SparkActorLauncher(session, count, name)
            engine = held.enter_context(ActorEngine(world, launcher, lambda text: say(options, text)))
        begun.await_lease()
        yield session, engine


@contextmanager
def _spark_secret(options: argparse.Namespace) -> Iterator[Path]:
    """A new secret of Spark's processes: the file in which executors on Kubernetes have it too.

    They see it in the checkpoint's folder. Where that is none they bring it from there, before they begin
    (:mod:`spatialstream.connectors.secret_file`), to the path that it has here.
    """
    from spatialstream.connectors.folder import Folder
    from spatialstream.spark.session import new_secret

    name, checkpoint = f"{options.command}.secret", options.checkpoint
    if isinstance(checkpoint, Folder):
        new_secret(checkpoint.path / name)
        yield checkpoint.path / name
        return
    with tempfile.TemporaryDirectory(prefix="spatialstream-") as folder:  # nobody else's, whatever is beside it
        path = Path(folder) / name
        checkpoint.put(name, new_secret(path))
        yield path


def _memory(session: SparkSession, engine: ActorEngine) -> dict[str, int]:
    """Bytes that each process of a job has: the driver, its Java, and the actors, wherever they are."""
    from spatialstream.connectors.process_memory import resident_bytes

    java: Any = getattr(session.sparkContext._gateway, "proc", None)
    known = {"driver": resident_bytes()} | ({} if java is None else {"java": resident_bytes(java.pid)})
    return known | {f"actor-{number}": size for number, size in sorted(engine.memory().items())}


def _has_executors(master: str | None) -> bool:
    """Whether a session with this master has executors, and not the driver's own threads."""
    return master is not None and master.partition("[")[0] != "local"


def say(options: argparse.Namespace, text: str) -> None:
    """Tell a person something, unless they want quiet."""
    if not options.quiet:
        print(f"spatialstream: {text}", file=sys.stderr, flush=True)


@contextmanager
def stopping(
    options: argparse.Namespace,
    then: Callable[[], object] = lambda: None,
    told: str = _FINISHING,
    grace: float | None = None,
) -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether an interrupt or SIGTERM has come; a second one ends at once.

    Args:
        options: whether a person wants quiet.
        then: is called at the first one.
        told: what a person is told then.
        grace: seconds after which the first one counts as two; None: it never does.
    """
    received: list[int] = []
    impatience: list[threading.Timer] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        if grace is not None:
            impatience.append(threading.Timer(grace, os.kill, (os.getpid(), number)))
            impatience[0].daemon = True
            impatience[0].start()
        if not options.quiet:
            print(told, file=sys.stderr, flush=True)
        then()

    def stop() -> bool:
        # Spark installs a handler of its own for SIGINT when it starts
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)
        return bool(received)

    before = {each: signal.signal(each, handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for timer in impatience:
            timer.cancel()
        for each, previous in before.items():
            signal.signal(each, previous)

"""Code shared by the commands of a live stream: the options that locate it, and its settings.

The environment (:data:`VARIABLES`) may locate a stream too, as it does in the pods of a stream on Kubernetes: there,
every command works without arguments.
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

from spatialstream.balance.settings import DKM, EVERYWHERE, FORMS, NEAREST, SETTLE, BalanceSettings
from spatialstream.cli import options as shared
from spatialstream.model.errors import SettingError, StateError, Unavailable

if TYPE_CHECKING:
    from spatialstream.actors.engine import ActorEngine
    from spatialstream.cli.metrics import RouterMetrics, WorkerMetrics
    from spatialstream.client import Stream
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
    "stream",
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
"""Environment variables that locate a stream; options of the command line take precedence."""

_FINISHING = "spatialstream: finishing the turn under way; interrupt again to stop at once"
_GRACE = 10.0
"""Seconds that a stopping job has to finish its turn. The turn could wait much longer for an unavailable broker or for
actors; the rest of it is done when the job starts again."""

ZOOKEEPER = "127.0.0.1:2181"
BOOTSTRAP = "127.0.0.1:9092"
"""Default addresses of ZooKeeper and the broker, which ``cluster up`` uses too."""

LEASE_PATIENCE = 20.0
"""Seconds that a job waits for its predecessor's lease: if that process has died, its session expires after 10."""


def _environment(option: str, default: str | None = None) -> str | None:
    return os.environ.get(VARIABLES[option]) or default


def add_stream(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``--stream``."""
    known = _environment("stream")
    text = "the stream's name; its topics begin with it"
    parser.add_argument("--stream", required=required and known is None, default=known, metavar="NAME", help=text)


def add_broker(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``--stream``, ``--bootstrap``, ``--kafka-security`` and ``--topic``; ``required`` applies to ``--stream``."""
    add_stream(parser, required=required)
    add = parser.add_argument
    known = _environment("bootstrap", BOOTSTRAP)
    add("--bootstrap", default=known, metavar="HOST:PORT,...", help="the broker (default %(default)s)")
    text = "Kafka properties, name=value lines with librdkafka's names: security.protocol, sasl.mechanism, ..."
    add("--kafka-security", type=Path, default=_environment("kafka_security"), metavar="FILE", help=text)
    topic = shared.value("topic", _topic)
    text = "name of a topic, if it is not STREAM.KIND; KIND is objects, queries, results or rejected; may be repeated"
    add("--topic", type=topic, action="append", default=[], metavar="KIND=NAME", help=text)


def _topic(text: str) -> tuple[str, str]:
    from spatialstream.connectors.kafka import read_topic

    return read_topic(text)


def add_store(parser: argparse.ArgumentParser, default: str | None = ZOOKEEPER) -> None:
    """Add ``--zookeeper``, ``--zookeeper-credentials``, and for TLS ``--zookeeper-ca``, ``-certificate``, ``-key``."""
    add = parser.add_argument
    value = _environment("zookeeper", default)
    add("--zookeeper", default=value, metavar="HOST:PORT,...", help=f"ZooKeeper (default {value or ZOOKEEPER})")
    value, text = _environment("zookeeper_credentials"), "a file with user:password, for digest authentication"
    add("--zookeeper-credentials", type=Path, default=value, metavar="FILE", help=text)
    text = "connect by TLS, and trust servers whose certificates these authorities signed (PEM)"
    add("--zookeeper-ca", type=Path, default=_environment("zookeeper_ca"), metavar="FILE", help=text)
    value, text = _environment("zookeeper_certificate"), "client certificate for TLS (PEM)"
    add("--zookeeper-certificate", type=Path, default=value, metavar="FILE", help=text)
    value = _environment("zookeeper_key")
    add("--zookeeper-key", type=Path, default=value, metavar="FILE", help="key of the client certificate (PEM)")


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the options of the router and the worker; those of the stream must be the same for both."""
    add_broker(parser)
    add_store(parser)
    text = "the stream's state, for both jobs: a folder, or s3://bucket/prefix"
    checkpoint = shared.storage("checkpoint")
    parser.add_argument("--checkpoint", type=checkpoint, required=True, metavar="DIR|URL", help=text)
    add = parser.add_argument_group(
        "the stream (the same for router and worker; cannot change while the stream exists)"
    ).add_argument
    add("--slots", type=shared.count, default=4, metavar="N", help="worker slots (default %(default)s)")
    text = "parallel tasks of the router (default 2)"
    add("--router-partitions", type=shared.count, default=2, metavar="N", help=text)
    text = "parts of MERGE, by hash of the query's id, each a partition of the results (default 1, at most 64)"
    add("--mergers", type=shared.count, default=1, metavar="N", help=text)
    text = "granularity of retention (default 5m)"
    add("--interval", type=shared.duration, default=300_000, metavar="TIME", help=text)
    text = "how far back snapshot queries see (default: everything)"
    add("--retention", type=shared.duration, metavar="TIME", help=text)
    shared.add_space(parser)
    shared.add_terms(parser)
    shared.add_serves(parser)
    text = f"where CKQs are: {SETTLE} (default), on every slot until they settle, and then where their circles reach; "
    text += f"{EVERYWHERE}, on every slot, to which the worker may change from start to start; or {DKM}, each on one "
    text += "slot, to which objects with one of its words are copied, as long as the stream exists"
    add("--nearest", choices=NEAREST, default=SETTLE, metavar="WHERE", help=text)
    add = parser.add_argument_group("the job").add_argument
    add("--cores", type=shared.count, metavar="N", help="cores to use (default: all)")
    add("--master", metavar="URL", help="Spark master (default: this process)")
    text = "with --master: keep as many executors as the routing store requests"
    add("--executors-from-store", action="store_true", help=text)
    conf, text = shared.value("conf", _property), "a Spark property; may be repeated"
    add("--conf", type=conf, action="append", default=[], metavar="KEY=VALUE", help=text)
    text = "minimum time between the starts of epochs, or rounds (default 0)"
    add("--pause", type=shared.duration, default=0, metavar="TIME", help=text)
    text = "approximate time between checkpoints of the job's state (default 10s)"
    add("--checkpoint-interval", type=shared.duration, default=10_000, metavar="TIME", help=text)
    text = "serve Prometheus metrics on this port (default: do not)"
    add("--metrics-port", type=int, default=0, metavar="PORT", help=text)
    text = "address of the metrics (default %(default)s)"
    add("--metrics-address", default="127.0.0.1", metavar="ADDRESS", help=text)
    add("--quiet", action="store_true", help="print only errors")


def add_balance(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str) -> None:
    """Add ``--lambda``, ``--epsilon`` and ``--similarity``; ``default`` is the help's text for their defaults."""
    add = parser.add_argument
    text = f"load is imbalanced if Lmax/Lmin > L (default: {default})"
    add("--lambda", dest="threshold", type=float, metavar="L", help=text)
    add("--epsilon", type=float, metavar="E", help=f"similarity above which FG splits by text (default: {default})")
    text = f"similarity with query types weighted by their probability, or as printed in the paper (default: {default})"
    add("--similarity", choices=FORMS, metavar="FORM", help=text)


def balance(options: argparse.Namespace, kept: BalanceSettings | None = None) -> BalanceSettings:
    """Build the settings from the options of :func:`add_balance`; options not given keep the stream's stored values.

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
    """Build the connection to the broker from the options."""
    from spatialstream.connectors.kafka import Connection
    from spatialstream.connectors.kafka_security import read_properties

    security = {} if options.kafka_security is None else read_properties(options.kafka_security)
    said = dict(_topic(text) for text in (_environment("topics") or "").split(",") if text)
    return Connection(options.bootstrap, security, said | dict(options.topic), options.kafka_security)


def access(options: argparse.Namespace) -> dict[str, Any]:
    """Return credentials and TLS files of the routing store, as arguments of :class:`ZooKeeperStore`.

    Raises:
        SettingError: a file cannot be read, or has invalid content.
    """
    return {"credentials": _credentials(options), "tls": _tls(options)}


def store(options: argparse.Namespace, timeout: float | None = None) -> ZooKeeperStore:
    """Build the routing store from the options.

    Args:
        options: those of :func:`add_store`, and ``--stream``.
        timeout: seconds that a call may take; None: the store's default.

    Raises:
        SettingError: an option cannot be used.
    """
    from spatialstream.store.zookeeper import ZooKeeperStore

    more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    return ZooKeeperStore(options.zookeeper, options.stream, **access(options), **more)


def stream(options: argparse.Namespace) -> Stream:
    """Connect to the stream that the options of :func:`add_broker` and :func:`add_store` locate.

    Raises:
        SettingError: an option cannot be used.
        Unavailable: ZooKeeper cannot be reached, or no worker of such a stream has run yet.
    """
    from spatialstream.client import connect

    return connect(options.stream, options.zookeeper, connection(options), **access(options))


def _credentials(options: argparse.Namespace) -> tuple[str, str] | None:
    """User and password; None if they are not given."""
    if options.zookeeper_credentials is None:
        return None
    try:
        text = options.zookeeper_credentials.read_text("utf-8").strip()
    except OSError as error:
        raise SettingError("zookeeper-credentials", f"cannot be read: {error.strerror}") from None
    user, colon, password = text.partition(":")
    if not colon or not user:
        raise SettingError("zookeeper-credentials", "the file must hold user:password")
    return user, password


def _tls(options: argparse.Namespace) -> TlsFiles | None:
    """The files for TLS, checked to be usable; None if none are given."""
    from spatialstream.store.tls import TlsFiles

    authority, certificate, key = options.zookeeper_ca, options.zookeeper_certificate, options.zookeeper_key
    if authority is None:
        if certificate is None and key is None:
            return None
        problem = "is missing: a client certificate requires the authority of the servers' certificates; give its file"
        raise SettingError("zookeeper-ca", problem)
    files = TlsFiles(authority, certificate, key)
    files.context()
    return files


@dataclass(frozen=True, slots=True)
class Begun:
    """A starting job that holds its lease or waits for it, with its stream.

    Attributes:
        options: the command's options.
        settings: the stream's settings.
        store: the routing store.
        lease: the job's lease.
        leased: done once this process holds the lease, or once ZooKeeper turns out to be unavailable.
        storage: storage of the stream's state.
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
        """Wait until this process holds the job's lease. Until then nothing visible to others may be written.

        Raises:
            SettingError: another process runs the job.
            StateError: the stream has been removed meanwhile.
        """
        from spatialstream.stream.bootstrap import claimed

        try:
            self.leased.result()
        except Unavailable as error:
            say(self.options, f"{error}; continuing without it")
        if claimed(self.settings, self.storage) != self.incarnation:
            raise StateError(f"{self.options.stream} has been removed while its {self.options.command} was starting")

    def job(self, session: SparkSession, engine: ActorEngine, metrics: RouterMetrics | WorkerMetrics) -> dict[str, Any]:
        """Return the constructor arguments that both jobs share."""
        from spatialstream.connectors.kafka_stream import TopicWatch

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
            "missing": TopicWatch(self.connection, self.options.stream).missing,
        }

    def _executors(
        self, session: SparkSession, engine: ActorEngine, metrics: RouterMetrics | WorkerMetrics
    ) -> Callable[[], object]:
        """Return a function that keeps the requested number of executors.

        The number comes from the routing store; without ``--executors-from-store`` the function does nothing.
        """
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
    """Yield the command's job and hold its lease while it runs. For an existing stream the lease may still be pending.

    The predecessor may have died a moment ago; starting up takes about as long as its session takes to expire, so both
    happen at once.

    Without ZooKeeper the job continues, since a stream does not need it to run; :mod:`spatialstream.store.lease` makes
    sure that two processes of one job do no harm.

    Raises:
        SettingError: another process runs the job; or the checkpoint belongs to another stream, or has other settings.
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
    """Run a job until it is interrupted or ends."""
    from spatialstream.connectors.process_memory import free_pages_released

    with stopping(options, job.stop, grace=_GRACE), free_pages_released():
        say(options, f"{options.command} of {options.stream}: starting")
        job.run()


def settings(options: argparse.Namespace, **more: Any) -> StreamSettings:
    """Build and validate the stream's settings from the options."""
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
        nearest=options.nearest,
        **more,
    )
    result.validate()
    return result


@contextmanager
def actors(options: argparse.Namespace, begun: Begun, world: World) -> Iterator[tuple[SparkSession, ActorEngine]]:
    """Start the job's Spark session and its actors; yield both once the job holds its lease.

    Actors do nothing by themselves, so they start while the job waits for its lease. On Kubernetes Spark stores a
    secret for the pods of its executors, which only the holder of the lease may do: there Spark starts after the wait.

    With executors there are as many actors as the job has slots (or partitions), limited by the cores; in a local
    session there is one for each core.

    Raises:
        SettingError: ``--executors-from-store`` is given and the master has no executors; or see
            :meth:`Begun.await_lease`.
        StateError: see :meth:`Begun.await_lease`.
    """
    from spatialstream.actors.engine import ActorEngine
    from spatialstream.spark.actor_launcher import SparkActorLauncher, stop_spark
    from spatialstream.spark.session import embedded_session, while_java_lives

    name = f"spatialstream-{options.command}-{options.stream}"
    session_options = {"master": options.master, "conf": dict(options.conf)}
    count = None
    if _has_executors(options.master):
        count = options.slots if options.command == "worker" else options.router_partitions
    elif options.executors_from_store:
        raise SettingError("executors-from-store", "needs a --master that gives executors, such as k8s://...")
    with ExitStack() as held:
        if (options.master or "").startswith("k8s:"):
            begun.await_lease()
            session_options["secret"] = held.enter_context(spark_secret(options))
        session = embedded_session(name, options.cores, **session_options, lasting=True)
        held.callback(stop_spark, session)
        with while_java_lives():
            launcher = SparkActorLauncher(session, count, name)
            engine = held.enter_context(ActorEngine(world, launcher, lambda text: say(options, text)))
        begun.await_lease()
        yield session, engine


@contextmanager
def spark_secret(options: argparse.Namespace) -> Iterator[Path]:
    """Create a new secret for Spark's processes; yield the path of its file, which is the same in executors.

    Executors on Kubernetes read it in the checkpoint's folder. Where the checkpoint is not a folder, they download it
    from there to this path before they start (:mod:`spatialstream.connectors.secret_file`).
    """
    from spatialstream.connectors.folder import Folder
    from spatialstream.spark.session import new_secret

    name, checkpoint = f"{options.command}.secret", options.checkpoint
    if isinstance(checkpoint, Folder):
        new_secret(checkpoint.path / name)
        yield checkpoint.path / name
        return
    with tempfile.TemporaryDirectory(prefix="spatialstream-") as folder:  # readable by this user only
        path = Path(folder) / name
        checkpoint.put(name, new_secret(path))
        yield path


def _memory(session: SparkSession, engine: ActorEngine) -> dict[str, int]:
    """Resident memory in bytes of each process of a job: the driver, its JVM, and the actors, wherever they run."""
    from spatialstream.connectors.process_memory import resident_bytes

    java: Any = getattr(session.sparkContext._gateway, "proc", None)
    known = {"driver": resident_bytes()} | ({} if java is None else {"java": resident_bytes(java.pid)})
    return known | {f"actor-{number}": size for number, size in sorted(engine.memory().items())}


def _has_executors(master: str | None) -> bool:
    """Whether a session with this master has executors, rather than threads of the driver."""
    return master is not None and master.partition("[")[0] != "local"


def say(options: argparse.Namespace, text: str) -> None:
    """Print a message for the user, unless ``--quiet`` is given."""
    if not options.quiet:
        print(f"spatialstream: {text}", file=sys.stderr, flush=True)


@contextmanager
def stopping(
    options: argparse.Namespace,
    then: Callable[[], object] = lambda: None,
    message: str = _FINISHING,
    grace: float | None = None,
) -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether an interrupt or SIGTERM has arrived; a second one raises KeyboardInterrupt.

    Args:
        options: the command's options; with ``quiet`` nothing is printed.
        then: called at the first signal.
        message: printed at the first signal.
        grace: seconds after which the signal is sent a second time; None: never.
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
            print(message, file=sys.stderr, flush=True)
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

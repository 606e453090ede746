"""``spatialstream cluster``: a whole live stream on this machine, without containers, for developers."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from spatialstream.cli import options as shared
from spatialstream.cli.live import BOOTSTRAP, ZOOKEEPER
from spatialstream.connectors.program import program
from spatialstream.model.errors import SettingError

if TYPE_CHECKING:
    from spatialstream.servers.process import Server

__all__ = ["PORTS", "add_parser", "check_port", "serve", "start"]

PORTS = {"zookeeper": 2181, "kafka": 9092, "router": 9101, "worker": 9102}
_GATEWAY = "gateway"
_NAMES = (*PORTS, _GATEWAY)


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "cluster",
        help="start and stop a live stream on this machine",
        description="Starts ZooKeeper, a Kafka broker, the router, the worker and a gateway of one stream on loopback, "
        "and stops them; prints the link of the console. Everything they keep is in one folder; started again, the "
        "stream goes on.",
    )
    parser.add_argument("action", choices=("up", "down", "status"))
    add = parser.add_argument
    add("--folder", type=Path, default=Path(".cluster"), metavar="DIR", help="where everything is (default .cluster)")
    add("--stream", default="dev", metavar="NAME", help="the stream's name (default dev)")
    add("--slots", type=shared.count, default=2, metavar="N", help="worker slots (default 2)")
    shared.add_space(parser)
    add("--retention", type=shared.duration, metavar="TIME", help="how far back snapshot queries see (all)")
    add("--port", type=int, default=8080, metavar="PORT", help="of the console; 0: any (default %(default)s)")
    told = "of zookeeper, kafka, router or worker, such as kafka=19092 (default: the usual ones where they are free)"
    add("--ports", type=shared.value("ports", _ports), default={}, metavar="NAME=PORT,...", help=told)
    add("--no-gateway", dest="gateway", action="store_false", help="start no gateway, so there is no console")
    add("--quiet", action="store_true", help="say nothing but errors")
    parser.set_defaults(function=_cluster)


def _ports(text: str) -> dict[str, int]:
    try:
        ports = {name: int(port) for name, port in (each.split("=") for each in text.split(","))}
    except ValueError:
        raise SettingError("ports", f"{text!r} is not like kafka=19092,zookeeper=12181") from None
    if unknown := sorted(set(ports) - set(PORTS)):
        raise SettingError("ports", f"{unknown[0]!r} is not one of {', '.join(PORTS)}")
    return ports


def _chosen(given: Mapping[str, int]) -> dict[str, int | None]:
    """The ports of a cluster: those that are given, and the usual ones where they are free; None: any.

    Raises:
        SettingError: one that is given cannot be had.
    """
    for name, port in given.items():
        check_port(port, f"ports: {name}")
    return {name: given.get(name) or (port if _is_free(port) else None) for name, port in PORTS.items()}


def _cluster(options: argparse.Namespace) -> int:
    return {"up": _up, "down": _down, "status": _status}[options.action](options)


def start(
    folder: Path,
    arguments: Sequence[str],
    ports: Mapping[str, int | None],
    started: list[Server],
    tell: Callable[[str], object],
) -> tuple[str, str]:
    """Start the servers and the jobs of a stream; where ZooKeeper and the broker are.

    Each is told of before it is waited for, and when it is there.

    Args:
        folder: where everything is that they keep.
        arguments: of both jobs.
        ports: of each of them; None: a free one.
        started: takes those that have been started, also where one cannot be.
        tell: is told what has been started.

    Raises:
        ServerError: one of them does not run.
    """
    from spatialstream.kernels import compile_kernels
    from spatialstream.servers.job import JobServer
    from spatialstream.servers.kafka import KafkaServer
    from spatialstream.servers.zookeeper import ZooKeeperServer

    tell("compiling what is not compiled yet")
    compile_kernels()
    tell("starting ZooKeeper and Kafka")
    zookeeper = ZooKeeperServer(folder / "zookeeper", ports["zookeeper"])
    started.append(zookeeper)
    tell(f"ZooKeeper at {zookeeper.start().hosts}")
    kafka = KafkaServer(folder / "kafka", ports["kafka"])
    started.append(kafka)
    tell(f"Kafka at {kafka.start().bootstrap}")
    where = ["--bootstrap", kafka.bootstrap, "--zookeeper", zookeeper.hosts, "--checkpoint", str(folder / "checkpoint")]
    for job in ("router", "worker"):
        server = JobServer(folder / job, job, [*where, *arguments], ports[job])
        started.append(server)
        tell(f"starting the {job}: waiting until its Spark runs")
        server.start(timeout=300.0)
        tell(f"{job} running, metrics at http://127.0.0.1:{server.port}/metrics, log in {server.log}")
    return zookeeper.hosts, kafka.bootstrap


def _is_free(port: int) -> bool:
    try:
        check_port(port)
    except SettingError:
        return False
    return True


def check_port(port: int, setting: str = "port") -> None:
    """Refuse a port that is none, or that somebody has.

    Raises:
        SettingError: it is one of them.
    """
    if not 0 <= port < 1 << 16:
        raise SettingError(setting, f"{port} is no port; give 1 to 65535, or 0 for any")
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise SettingError(setting, f"{port} cannot be had ({error.strerror}); give another, or 0") from None


def serve(
    folder: Path,
    stream: str,
    where: tuple[str, str],
    port: int,
    started: list[Server],
    who: str,
    shown: Mapping[str, str] | None = None,
) -> str:
    """Start the gateway of a stream that runs; the link of its console, with a token that may everything.

    Args:
        folder: where its token is kept, so that a link is good over restarts.
        stream: the stream's name.
        where: ZooKeeper and the broker.
        port: of the gateway; 0: a free one.
        started: takes the gateway, also where it cannot be started.
        who: bears the token.
        shown: what else the link says to the console.

    Raises:
        ServerError: it does not run.
    """
    from spatialstream.servers.job import GatewayServer

    tokens = folder / "tokens"
    token = json.loads(tokens.read_text())["token"] if tokens.exists() else secrets.token_urlsafe(24)
    tokens.touch(mode=0o600)
    rights = ["ask", "watch", "write"]
    tokens.write_text(json.dumps({"name": who, "token": token, "rights": rights, "streams": [stream]}))
    zookeeper, bootstrap = where
    reached = ["--stream", stream, "--bootstrap", bootstrap, "--zookeeper", zookeeper, "--tokens", str(tokens)]
    gateway = GatewayServer(folder / _GATEWAY, reached, port or None)
    started.append(gateway)
    gateway.start(timeout=300.0)
    said = {"token": token, "stream": stream, **(shown or {})}
    return f"http://127.0.0.1:{gateway.port}/#{urlencode(said)}"


def _up(options: argparse.Namespace) -> int:
    folder = options.folder.absolute()
    state = folder / "cluster.json"
    if state.exists() and _running(folder):
        down = f"{program()} cluster down --folder {shlex.quote(str(options.folder))}"
        raise SettingError("folder", f"a cluster is running in {folder}; stop it first ({down})")
    if options.gateway:
        check_port(options.port)
    ports = _chosen(options.ports)
    for name in (name for name, port in ports.items() if port is None):
        _tell(options, f"port {PORTS[name]} is taken: {name} gets another one")
    arguments = ["--stream", options.stream, "--slots", str(options.slots), "--space", str(options.space)]
    if options.retention is not None:
        arguments += ["--retention", str(options.retention)]
    started: list[Server] = []
    try:
        zookeeper, bootstrap = start(folder, arguments, ports, started, lambda text: _tell(options, text))
        if options.gateway:
            link = serve(folder, options.stream, (zookeeper, bootstrap), options.port, started, "developer")
            _tell(options, f"console at {link}")
    except BaseException:
        for server in reversed(started):
            server.stop()
        raise
    for server in started:
        server.detach()
    state.write_text(json.dumps({"stream": options.stream, "bootstrap": bootstrap, "zookeeper": zookeeper}))
    where = [f"--bootstrap {bootstrap}"] * (bootstrap != BOOTSTRAP) + [f"--zookeeper {zookeeper}"] * (
        zookeeper != ZOOKEEPER
    )
    command = [program(), "load", "--stream", options.stream, *where, "--now --rate 1000 --seconds 20"]
    _tell(options, f"try: {' '.join(command)}")
    return 0


def _down(options: argparse.Namespace) -> int:
    from spatialstream.servers.process import stop_recorded

    folder = options.folder.absolute()
    for name in (_GATEWAY, "worker", "router", "kafka", "zookeeper"):
        if stop_recorded(folder / name, timeout=60.0):
            _tell(options, f"{name} stopped")
    return 0


def _status(options: argparse.Namespace) -> int:
    folder = options.folder.absolute()
    running = _running(folder)
    for name in _NAMES:
        print(f"{name:<10} {'running' if name in running else 'not running'}")
    return 0 if set(PORTS) <= set(running) else 1


def _running(folder: Path) -> list[str]:
    from spatialstream.servers.process import recorded

    return [name for name in _NAMES if recorded(folder / name)]


def _tell(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text, flush=True)

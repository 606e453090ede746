"""``spatialstream cluster``: a complete live stream on this machine, without containers, for developers."""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from spatialstream.cli import options as shared
from spatialstream.cli.live import BOOTSTRAP, ZOOKEEPER
from spatialstream.connectors.program import program
from spatialstream.model.errors import SettingError

if TYPE_CHECKING:
    from spatialstream.servers.process import Server

__all__ = ["PORTS", "add_parser", "check_checkout", "check_port", "serve", "start"]

PORTS = {"zookeeper": 2181, "kafka": 9092, "router": 9101, "worker": 9102}
_GATEWAY = "gateway"
_NAMES = (*PORTS, _GATEWAY)


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "cluster",
        help="start and stop a live stream on this machine",
        description="Starts ZooKeeper, a Kafka broker, the router, the worker and a gateway of one stream on loopback, "
        "or stops them; prints the link of the console. All their files are in one folder; started again, the "
        "stream resumes. Needs a checkout of the repository.",
    )
    parser.add_argument("action", choices=("up", "down", "status"))
    add = parser.add_argument
    add("--folder", type=Path, default=Path(".cluster"), metavar="DIR", help="folder of all files (default .cluster)")
    add("--stream", default="dev", metavar="NAME", help="the stream's name (default dev)")
    add("--slots", type=shared.count, default=2, metavar="N", help="worker slots (default 2)")
    shared.add_space(parser)
    add("--retention", type=shared.duration, metavar="TIME", help="how far back snapshot queries see (default: all)")
    add("--port", type=int, default=8080, metavar="PORT", help="port of the console; 0: any (default %(default)s)")
    text = "ports of zookeeper, kafka, router or worker, such as kafka=19092 (default: the usual ports if free)"
    add("--ports", type=shared.value("ports", _ports), default={}, metavar="NAME=PORT,...", help=text)
    add("--no-gateway", dest="gateway", action="store_false", help="start no gateway, and thus no console")
    add("--quiet", action="store_true", help="print only errors")
    parser.set_defaults(function=_cluster)


def _ports(text: str) -> dict[str, int]:
    try:
        ports = {name: int(port) for name, port in (each.split("=") for each in text.split(","))}
    except ValueError:
        raise SettingError("ports", f"{text!r} is not like kafka=19092,zookeeper=12181") from None
    if unknown := sorted(set(ports) - set(PORTS)):
        raise SettingError("ports", f"{unknown[0]!r} is not one of {', '.join(PORTS)}")
    return ports


def _chosen(ports: Mapping[str, int]) -> dict[str, int | None]:
    """Choose the ports of a cluster: the given ones, else the usual ones if they are free, else None for any port.

    Raises:
        SettingError: a given port is not available.
    """
    for name, port in ports.items():
        check_port(port, f"ports: {name}")
    return {name: ports.get(name) or (port if _is_free(port) else None) for name, port in PORTS.items()}


def check_checkout(command: str) -> None:
    """Refuse a command that starts servers where they are not installed.

    Raises:
        SettingError: the package is the wheel, which has neither the servers for development nor Kafka's jars.
    """
    if find_spec("spatialstream.servers") is None:
        problem = "starts ZooKeeper and Kafka, which are not part of the installed package"
        raise SettingError(command, f"{problem}; use a checkout of the repository (make cluster-up, make demo-live)")


def _cluster(options: argparse.Namespace) -> int:
    check_checkout("cluster")
    return {"up": _up, "down": _down, "status": _status}[options.action](options)


def start(
    folder: Path,
    arguments: Sequence[str],
    ports: Mapping[str, int | None],
    started: list[Server],
    tell: Callable[[str], object],
) -> tuple[str, str]:
    """Start the servers and the jobs of a stream; return the addresses of ZooKeeper and the broker.

    Progress is reported before each wait, and when each process runs.

    Args:
        folder: folder of all their files.
        arguments: command-line arguments of both jobs.
        ports: the port of each process; None: a free one.
        started: the started processes are appended to it, also if a later one fails to start.
        tell: called with each line of progress.

    Raises:
        ServerError: one of them fails to start.
    """
    from spatialstream.kernels import compile_kernels
    from spatialstream.servers.job import JobServer
    from spatialstream.servers.kafka import KafkaServer
    from spatialstream.servers.zookeeper import ZooKeeperServer

    tell("compiling kernels that are not in the cache")
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
        tell(f"starting the {job}: waiting for its Spark session")
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
    """Check that a port is valid and not in use.

    Raises:
        SettingError: it is not.
    """
    if not 0 <= port < 1 << 16:
        raise SettingError(setting, f"{port} is not a port; give 1 to 65535, or 0 for any")
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise SettingError(setting, f"{port} is not available ({error.strerror}); give another, or 0") from None


def serve(
    folder: Path,
    stream: str,
    where: tuple[str, str],
    port: int,
    started: list[Server],
    who: str,
    shown: Mapping[str, str] | None = None,
) -> str:
    """Start the gateway of a running stream; return the link of its console, with a token that has all rights.

    Args:
        folder: folder in which the token is kept, so that a link stays valid over restarts.
        stream: the stream's name.
        where: addresses of ZooKeeper and the broker.
        port: port of the gateway; 0: a free one.
        started: the gateway is appended to it, also if it fails to start.
        who: name of the token's bearer.
        shown: further parameters of the link, read by the console.

    Raises:
        ServerError: it fails to start.
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
        _tell(options, f"port {PORTS[name]} is in use: {name} uses another one")
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

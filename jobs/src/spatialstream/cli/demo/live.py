"""``spatialstream demo-live``: start a live stream with data, continuous queries and the console on this machine.

Two feeds are replayed as if they were happening now, at ``--speed`` times their rate: the week of earthquakes of the
demo, and a generated social stream with a flood, a festival and a blackout. All processes keep their files in one
folder and end with the command, and the folder is deleted.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
import threading
import time
import webbrowser
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from spatialstream.cli import live
from spatialstream.cli import options as shared
from spatialstream.cli.cluster import PORTS, check_checkout, check_port, serve, start
from spatialstream.cli.demo import OBJECTS
from spatialstream.model.errors import ServerError, SettingError, Unavailable

if TYPE_CHECKING:
    from spatialstream.client import Connection
    from spatialstream.model.objects import ObjectBatch
    from spatialstream.servers.process import Server

__all__ = ["QUERIES", "add_parser", "relived"]

QUERIES = Path(__file__).parent / "live.jsonl"
STREAM = "demo"

_CYCLE_MS = 8 * 3_600_000
"""Period of the events of the social stream, in the time of the feeds."""
_PATIENCE = 120.0
"""Seconds to wait for the registration of a query."""
_TAIL = 2_000
"""Characters of a log's end to show when a process has ended."""
_NO_QUAKES = ("explosion", "quarry blast")
_FASTEST, _MOST = 10_000.0, 2_000.0


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "demo-live",
        help="start a live stream with data and continuous queries, and its console",
        description="Starts a live stream on this machine, replays a week of real earthquakes and a generated social "
        "stream with a flood, a festival and a blackout, registers continuous queries about them and prints the link "
        "of the console. The week is replayed again and again until the command is interrupted; then all processes "
        "end, and their files are deleted. Needs a checkout of the repository.",
    )
    add = parser.add_argument
    add("--speed", type=float, default=60.0, metavar="S", help="factor by which time is sped up (default %(default)g)")
    add(
        "--rate",
        type=float,
        default=20.0,
        metavar="R",
        help="posts a second of the social stream (default %(default)g)",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of the social stream (default 0)")
    add("--slots", type=shared.count, default=2, metavar="N", help="worker slots (default 2)")
    add("--port", type=int, default=8080, metavar="PORT", help="port of the console; 0: any (default %(default)s)")
    text = "end after this time (default: run until interrupted)"
    add("--for", dest="lasts", type=shared.duration, metavar="TIME", help=text)
    add("--open", action="store_true", help="open the console in a browser")
    add("--quiet", action="store_true", help="print only errors, the link, and the counts at the end")
    parser.set_defaults(function=_demo_live)


def _check(options: argparse.Namespace) -> None:
    if not 0 < options.speed <= _FASTEST:
        raise SettingError("speed", f"{options.speed:g}: give more than 0 and at most {_FASTEST:g} times")
    if not 0 < options.rate <= _MOST:
        raise SettingError("rate", f"{options.rate:g}: give more than 0 and at most {_MOST:g} posts a second")
    if options.seed < 0:
        raise SettingError("seed", "give at least 0")
    if options.lasts == 0:
        raise SettingError("for", "give a time above 0, such as 10m")
    check_port(options.port)


def relived(speed: float, rate: float, seed: int) -> Iterator[ObjectBatch]:
    """Merge both feeds in the order of time, with the times of the earthquakes.

    Args:
        speed: factor by which the feeds will be sped up.
        rate: posts a second, as sent.
        seed: seed of the social stream.
    """
    import numpy as np

    from spatialstream.generate import GenerateSettings, object_batches
    from spatialstream.model.objects import ObjectBatch

    quakes = _quakes()
    first, last = int(quakes.t[0]), int(quakes.t[-1])
    number = math.ceil((last - first) / 1000 / speed * rate)
    events = max(1, round((last - first) / _CYCLE_MS))
    social = GenerateSettings(objects=number, rate=rate / speed, start=first, events=events, seed=seed)
    sent = 0
    for posts in object_batches(social):
        watermark = int(np.searchsorted(quakes.t, posts.t[-1], side="right"))
        both = ObjectBatch.concat([quakes.take(np.arange(sent, watermark)), posts])
        yield both.take(np.argsort(both.t, kind="stable"))
        sent = watermark
    yield quakes.take(np.arange(sent, len(quakes)))


def _quakes() -> ObjectBatch:
    """Read the demo's feed, and add the word "earthquake" to the texts of earthquakes, to tell them from posts."""
    from spatialstream.model.objects import ObjectBatch, parse_object
    from spatialstream.model.space import WGS84
    from spatialstream.model.terms import TermRule

    found = []
    for record in map(json.loads, OBJECTS.read_text("utf-8").splitlines()):
        kind = "" if record["text"].startswith(_NO_QUAKES) else "earthquake, "
        found.append(parse_object(record | {"text": kind + record["text"]}, WGS84, TermRule(fields=("text",))))
    return ObjectBatch.of(sorted(found, key=lambda each: each.t))


def _demo_live(options: argparse.Namespace) -> int:
    from spatialstream.client import Sender, connect
    from spatialstream.model.space import WGS84

    check_checkout("demo-live")
    _check(options)
    queries = [json.loads(line) for line in QUERIES.read_text("utf-8").splitlines()]
    with ExitStack() as opened:
        folder = Path(tempfile.mkdtemp(prefix="spatialstream-demo-"))
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        servers: list[Server] = []
        opened.callback(_kill, servers)  # no orderly stop: their state is deleted anyway
        live.say(options, "starting a live stream; this takes half a minute, or some minutes on a busy machine")
        zookeeper, connection = _stream(options, folder, servers)
        rows = opened.enter_context(_Rows(connection))
        stream = opened.enter_context(connect(STREAM, zookeeper, connection))
        for query in queries:
            live.say(options, f"registering {query['id']}: waiting for a round of the worker to admit it")
            stream.watch(query, timeout=_PATIENCE).close()
            live.say(options, f"registered: {query['title']}")
        live.say(options, "starting the gateway, which serves the console")
        link = _console(options, folder, zookeeper, connection, servers)
        print(f"\n  {link}\n", flush=True)
        if options.open:
            webbrowser.open(link)
        sender, began = Sender(connection, STREAM, WGS84), time.monotonic()
        with live.stopping(options, message="spatialstream: ending") as interrupted:

            def stop() -> bool:
                for each in servers:
                    if not each.running:
                        raise ServerError(f"{each.name} has ended", each.log.read_text(errors="replace")[-_TAIL:])
                over = options.lasts is not None and time.monotonic() - began > options.lasts / 1000
                return over or interrupted()

            while not stop():
                sender.relive(relived(options.speed, options.rate, options.seed), options.speed, stop)
        print(f"{sender.sent:,} objects in {time.monotonic() - began:.0f} s. Result rows by query:")
        for query in queries:
            print(f"{rows.counts[query['id']]:8,}  {query['title']}")
    return 0


def _kill(servers: list[Server]) -> None:
    for each in reversed(servers):
        each.kill()


def _stream(options: argparse.Namespace, folder: Path, servers: list[Server]) -> tuple[str, Connection]:
    """Start the stream on free ports; return the address of ZooKeeper, and the connection to the broker."""
    from spatialstream.client import Connection

    arguments = ["--stream", STREAM, "--slots", str(options.slots), "--fields", "text"]
    ports = dict.fromkeys(PORTS)
    zookeeper, bootstrap = start(folder, arguments, ports, servers, lambda text: live.say(options, text))
    return zookeeper, Connection(bootstrap)


def _console(
    options: argparse.Namespace,
    folder: Path,
    zookeeper: str,
    connection: Connection,
    servers: list[Server],
) -> str:
    """Start the gateway; return the console's link, which follows all queries and may register others."""
    shown = {"map": "0,30,0.8", "follow": "all"}
    return serve(folder, STREAM, (zookeeper, connection.bootstrap), options.port, servers, "demo", shown)


class _Rows:
    """Counts the rows of each query as they arrive, in a thread.

    Attributes:
        counts: number of rows by query id.
    """

    def __init__(self, connection: Connection) -> None:
        from spatialstream.client import Results

        self.counts = Counter[str]()
        self._results, self._over = Results(connection, STREAM), threading.Event()
        self._thread = threading.Thread(target=self._read, name="rows", daemon=True)

    def _read(self) -> None:
        with closing(self._results), suppress(Unavailable):
            for _, _, _, rows in self._results.messages_with_rows(self._over.is_set):
                self.counts.update(row.query for row in rows)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

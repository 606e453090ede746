"""The gateway: queries per second, and rows to many connections: ``python -m tests.benchmarks.bench_gateway``.

The gateway runs in its own process together with the slots of an idle stream, so the figures cover HTTP and the
answers, not transport to actors; rows come from a topic in memory. Clients use sockets, in another process, on the same
cores. CPU time is that of the gateway's process only; it is more meaningful than wall-clock time on a loaded machine.

Not covered, besides transport and the broker: STQs, concurrent rounds, TLS, tokens and their reviews, reading of older
rows, polls, objects and registrations, the console, and several gateways at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from spatialstream import kernels
from spatialstream.client import SnapshotClient
from spatialstream.client.results import Row
from spatialstream.connectors.delivery import Place
from spatialstream.gateway import logs
from spatialstream.gateway.app import Gateway, Limits
from spatialstream.gateway.feed import Feed
from spatialstream.gateway.rates import RateLimits
from spatialstream.gateway.server import listen, server_of
from spatialstream.gateway.streams import ServedStream
from tests.benchmarks.bench_asked import SPACE, Slots, snapshot_queries
from tests.benchmarks.workload import objects

OBJECTS, ASKS, ASKING = 200_000, 6_000, 16
CONNECTIONS, BLOCKS, SECONDS = 1_000, 20_000, 6.0
"""Number of connections, total rows per second, and duration in seconds."""
_TICK = 0.05
_LINE = b'{"query": "q%d", "type": "CRQ", "t": %d, "object": {"id": "o%d", "t": %d, "lon": 13.4, "lat": 52.5}}'
"""A row as it is in a topic: creating rows is not the gateway's work."""
_ASK, _RESULTS = "POST /streams/s/ask", "GET /streams/s/results"


class Opened(SnapshotClient):
    @property
    def snapshots(self) -> SnapshotClient:
        return self

    def close(self) -> None:
        pass


class Rows:
    """A topic of results in which rows arrive at a fixed rate, each with its time of arrival."""

    start, end, mark = (0,), (0,), ""

    def messages_with_rows(
        self, stop: Callable[[], bool], patience: float | None = None
    ) -> Iterator[tuple[int, int, int, list[Row]]]:
        each = int(BLOCKS * _TICK)
        due = time.monotonic()
        for number in itertools.count():
            while time.monotonic() < due:
                if stop():
                    return
                time.sleep(0.001)
            due += _TICK
            rows, now = list[Row](), time.monotonic_ns()
            for row in range(each):
                query = (number * each + row) % CONNECTIONS
                line = _LINE % (query, now, row, now)
                rows.append(Row(line, Place(number, 0, 0, "a"), row + 1, 0, number + 1, {}))
            yield 0, number, number + 1, rows

    def close(self) -> None:
        pass


def serve() -> None:
    """The gateway's process: prints its port, and ends when its standard input is closed."""
    logs.set_up(quiet=True)
    kernels.prepare()
    everything = objects(OBJECTS, 3)
    slots = Slots(everything)
    slots.round(everything)
    stream = ServedStream(
        "s", lambda: Opened(lambda seconds: slots.directory, slots.ask, SPACE), Feed("s", lambda start: Rows()), None
    )  # type: ignore[arg-type, return-value]
    gateway = Gateway([stream], limits=Limits(client=RateLimits(rate=0, connections=2 * CONNECTIONS)))
    server = server_of(gateway)

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    with listen("127.0.0.1", 0) as sock:
        threading.Thread(target=end, daemon=True).start()
        print(sock.getsockname()[1], flush=True)
        server.run([sock])


@contextmanager
def serving() -> Iterator[tuple[int, int]]:
    """A gateway's port and process."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_gateway", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.stdin.close()


def spent(pid: int) -> float:
    """Seconds of processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def connected(port: int, line: str, body: bytes = b"", headers: str = "") -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    await sent(writer, line, body, headers)
    return reader, writer


async def sent(writer: asyncio.StreamWriter, line: str, body: bytes, headers: str = "") -> None:
    writer.write(f"{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)


async def ask(port: int, asked: list[bytes]) -> list[float]:
    """Ask one after the other over some connections; the seconds of each."""
    took, left = list[float](), iter(asked)

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        for body in left:
            began = time.perf_counter()
            await sent(writer, _ASK, body)
            await answer(reader)
            took.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one() for _ in range(ASKING)))
    return took


async def follow(port: int) -> tuple[int, list[float]]:
    """The number of rows that all connections receive within the duration, and the ages of some of them in seconds."""
    opened = [
        await connected(port, f"{_RESULTS}?query=q{i}", headers="accept: text/event-stream\r\n")
        for i in range(CONNECTIONS)
    ]
    counts, ages, until = [0] * CONNECTIONS, list[float](), time.monotonic() + SECONDS

    async def one(number: int, reader: asyncio.StreamReader) -> None:
        while (left := until - time.monotonic()) > 0:
            try:
                line = await asyncio.wait_for(reader.readline(), left)
            except TimeoutError:
                return
            if line.startswith(b"data: "):
                counts[number] += 1
                if number % 50 == 0:
                    ages.append((time.monotonic_ns() - json.loads(line[6:])["t"]) / 1e9)

    await asyncio.gather(*(one(number, reader) for number, (reader, _) in enumerate(opened)))
    for _, writer in opened:
        writer.close()
    return sum(counts), ages


def run() -> list[dict[str, Any]]:
    """The figures."""
    figures = list[dict[str, Any]]()

    def figure(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> None:
        more = ({} if floor is None else {"floor": floor}) | ({"note": note} if note else {})
        figures.append({"name": name, "value": value, "unit": unit} | more)

    asked = snapshot_queries(objects(2_000, 3))
    with serving() as (port, pid):
        for name, records in asked.items():
            if name.startswith("STQ"):
                continue
            bodies = [json.dumps(record).encode() for record in itertools.islice(itertools.cycle(records), ASKS)]
            asyncio.run(ask(port, bodies[:500]))
            before, began = spent(pid), time.perf_counter()
            took = asyncio.run(ask(port, bodies))
            seconds, used = time.perf_counter() - began, spent(pid) - before
            note = "without transport, rounds, TLS and tokens"
            figure(f"asks over {ASKING} connections, {name}", ASKS / seconds, "asks/s", 2_000, note)
            figure(f"  p50, {name}", float(np.percentile(took, 50)) * 1e3, "ms")
            figure(f"  p95, {name}", float(np.percentile(took, 95)) * 1e3, "ms", 15)
            figure(f"  the gateway's processor time, {name}", used / ASKS * 1e6, "us")
        before = spent(pid)
        rows, ages = asyncio.run(follow(port))
        used = spent(pid) - before
        note = "without a broker, TLS and tokens, from now on"
        figure(f"rows by events to {CONNECTIONS} connections", rows / SECONDS, "rows/s", 0.98 * BLOCKS, note)
        figure("  age of a row, p95", float(np.percentile(ages, 95)) * 1e3, "ms")
        figure("  the gateway's processor time for a row", used / max(1, rows) * 1e6, "us")
    return figures


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        from tests.benchmarks.__main__ import show

        show("gateway", run())

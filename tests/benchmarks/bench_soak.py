"""A live stream for an hour: is the memory of its processes stable once retention drops objects?

``python -m tests.benchmarks.bench_soak [--minutes M] [--retention MINUTES] [--rate R] [--continuous N] [--changes C]
[--output DIR]``. 3,000 objects arrive per second, 20,000 CRQs are registered, and twice a second another one is
registered and an earlier one is cancelled. Every few seconds the memory of each process of both jobs is recorded, from
``spatialstream_process_memory_bytes``, and the size of the slots' state.

The run passes if, after the retention period and a warm-up, no process ends with more than 5 % above its initial
memory: the medians of the first and of the last quarter are compared. Writes ``soak.json`` and ``soak.svg``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from spatialstream.client import Sender
from spatialstream.kernels import compile_kernels
from spatialstream.model.kinds import QueryType
from spatialstream.model.queries import Cancellation, QueryBatch
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.zookeeper import ZooKeeperServer
from tests.benchmarks.bench_live import YEAR, Live, Sample, Scale, asked_for, row, say, scraped, total

MOST = 0.05
"""By so much a process may grow."""

_MEMORY = "spatialstream_process_memory_bytes"
_SETTLED = 1.25
"""Retentions after which memory is to be what it is: state is dropped in units of Δ."""


@dataclass(frozen=True)
class Soak:
    """How long, and how much.

    Attributes:
        minutes: how long objects come.
        retention: minutes.
        rate: objects a second.
        continuous: CRQs.
        changes: registrations, and as many cancellations, a second.
        every: seconds between two looks.
    """

    minutes: float = 60.0
    retention: float = 10.0
    rate: float = 3_000.0
    continuous: int = 20_000
    changes: float = 2.0
    every: float = 5.0

    def __post_init__(self) -> None:
        """Check that there is a time that can be judged.

        Raises:
            ValueError: there is none.
        """
        if not 0 < _SETTLED * self.retention < self.minutes:
            raise ValueError(f"{self.minutes:g} minutes have to be more than {_SETTLED:g} times the retention")


def growth(times: Sequence[float], sizes: Sequence[float], settled: float) -> float:
    """By how much a process has grown from a time on: median of the last quarter over that of the first, less 1.

    Args:
        times: of the looks, ascending.
        sizes: then.
        settled: from when on it counts.
    """
    counted = np.array([size for t, size in zip(times, sizes, strict=True) if t >= settled])
    quarter = max(1, len(counted) // 4)
    return float(np.median(counted[-quarter:]) / np.median(counted[:quarter]) - 1.0)


def _change(live: Live, soak: Soak, ended: threading.Event) -> None:
    """Register and cancel queries until all is over."""
    sender = Sender(live.connection, live.name, live.sender(0.0).space, watermarks=False)
    queries, number, continuous = asked_for(live.source, 1_000, QueryType.CRQ), 0, list[str]()
    while not ended.wait(1.0 / soak.changes):
        now = int(time.time() * 1000)
        given = replace(queries[number % len(queries)], id=f"soak-{number}", t=now)
        continuous.append(f"soak-{number}")
        number += 1
        more: list[Any] = [replace(given, lifetime=replace(given.lifetime, duration=YEAR))]  # type: ignore[union-attr]
        if len(continuous) > 100:
            more.append(Cancellation(continuous.pop(0), now))
        sender.send_queries(QueryBatch.of(more))
    sender.flush()


def _looks(live: Live, soak: Soak, ended: threading.Event) -> list[tuple[float, dict[str, float]]]:
    """Memory of each process, by minute since it began, until all is over."""
    found, began = list[tuple[float, dict[str, float]]](), time.monotonic()
    while not ended.wait(soak.every):
        sizes: Sample = {}
        for job in (live.router, live.worker):
            metrics = scraped(job.port)
            named = {name.partition('"')[2].rstrip('"}'): size for name, size in metrics.items() if _MEMORY in name}
            sizes |= {f"{job.name} {process}": size for process, size in named.items()}
            if job is live.worker:
                sizes["state"] = total(metrics, "slot_state_bytes")
        found.append(((time.monotonic() - began) / 60.0, sizes))
    return found


def run(output: str | Path = "bench-output", soak: Soak | None = None) -> list[dict[str, Any]]:
    """The figures; servers and jobs are stopped in any case."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    soak, output = soak or Soak(), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    compile_kernels()
    scale = Scale(continuous=soak.continuous, slots=4)
    kept = soak.retention * 60_000
    retention = ["--retention", f"{kept:.0f}", "--interval", f"{kept / 10:.0f}"]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(Path(folder) / "zookeeper"))
        kafka = stack.enter_context(KafkaServer(Path(folder) / "kafka"))
        live = stack.enter_context(Live(zookeeper, kafka, "soak", Path(folder) / "soak", scale, more=retention))
        say(f"{scale.continuous:,} CRQs registered in {live.register():.1f} s; {soak.minutes:g} minutes ...")
        ended, looks = threading.Event(), list[tuple[float, dict[str, float]]]()
        threads = [
            threading.Thread(target=_change, args=(live, soak, ended), daemon=True),
            threading.Thread(target=lambda: looks.extend(_looks(live, soak, ended)), daemon=True),
        ]
        for thread in threads:
            thread.start()
        seconds = 60.0 * soak.minutes
        live.sender(soak.rate).live(
            live.objects, QueryBatch.of([]), 0.0, seconds, lambda: False, int(soak.rate * seconds)
        )
        ended.set()
        for thread in threads:
            thread.join(60.0)
    (output / "soak.json").write_text(json.dumps(looks))
    draw(looks, soak, output / "soak.svg")
    return figures(looks, soak)


def figures(looks: Sequence[tuple[float, dict[str, float]]], soak: Soak) -> list[dict[str, Any]]:
    """By how much each process has grown, and what it has in the end, as rows of the table."""
    rows = []
    for name in sorted({name for _, sizes in looks for name in sizes}):
        times, sizes = zip(*[(t, each[name]) for t, each in looks if name in each], strict=True)
        grown = growth(times, sizes, _SETTLED * soak.retention)
        verdict = "flat" if grown <= MOST else f"GROWS by more than {MOST:.0%}"
        rows.append(
            row(f"memory of {name}", sizes[-1] / 1e6, "MB", None, f"{grown:+.1%} from the retention on: {verdict}")
        )
    return rows


def draw(looks: Sequence[tuple[float, dict[str, float]]], soak: Soak, path: Path) -> None:
    """Memory of each process by time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    for name in sorted({name for _, sizes in looks for name in sizes}):
        points = [(t, sizes[name] / 1e6) for t, sizes in looks if name in sizes]
        axes.plot(*zip(*points, strict=True), label=name, linewidth=1)
    axes.axvline(soak.retention, color="#888888", linewidth=0.8)
    axes.set(xlabel="minutes", ylabel="MB")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=7, ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_soak")
    for name in ("minutes", "retention", "rate", "changes"):
        parser.add_argument(f"--{name}", type=float, default=getattr(Soak, name), help="default %(default)s")
    parser.add_argument("--continuous", type=int, default=Soak.continuous, help="default %(default)s")
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="for figures and the picture")
    options = vars(parser.parse_args())
    output = options.pop("output")
    try:
        soak = Soak(**options)
    except ValueError as error:
        parser.error(str(error))
    rows = run(output, soak)
    for each in rows:
        print(f"{each['name']:<40}{each['value']:>12,.1f} {each['unit']}   {each['note']}")
    if any("GROWS" in each["note"] for each in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

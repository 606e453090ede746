"""A live stream for an hour: is the memory of its processes stable once retention drops objects?

``python -m tests.benchmarks.bench_soak [--minutes M] [--retention MINUTES] [--rate R] [--continuous N] [--changes C]
[--cgroup DIR] [--output DIR]``. 3,000 objects arrive per second, 20,000 CRQs are registered, and twice a second another
one is registered and an earlier one is cancelled. Every few seconds the memory of each process of both jobs is
recorded, from ``spatialstream_process_memory_bytes``, and the size of the slots' state.

The run passes if both jobs run until its end, and

- no process grows by more than 5 % after the retention period and a warm-up: the medians of the first and of the last
  quarter are compared;
- the processes of a job never use more together than the limit that ``docs/production.md`` gives its pod: what they use
  one retention after the start, and a quarter more.

What is recorded counts pages that processes share in each of them, and misses peaks between two looks and what the
kernel has for them. With ``--cgroup DIR`` each job runs in a memory cgroup below DIR, which gets the limit as soon as
it is known; then the kernel must not have killed any process either. That takes root. DIR is made if missing, such as
``/sys/fs/cgroup/soak``, or ``/sys/fs/cgroup/memory/soak`` for version 1 of cgroups.

Writes ``soak.json`` and ``soak.svg``; the exit status is 1 if the run does not pass.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
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
from tests.benchmarks.pod import MemoryCgroup

MOST = 0.05
"""By so much a process may grow."""

_MEMORY = "spatialstream_process_memory_bytes"
_SETTLED = 1.25
"""Retentions after which memory is to be what it is: state is dropped in units of Δ."""
JOBS = ("router", "worker")
SPARE = 1.25
"""A pod's limit over what its processes use one retention after the start, by ``docs/production.md``."""

Looks = list[tuple[float, dict[str, float]]]
"""Minute since the start, and bytes by process (``worker actor-0``) and of the state."""


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


def used(sizes: Mapping[str, float], job: str) -> float:
    """Bytes of the processes of a job together, at one look."""
    return sum(size for name, size in sizes.items() if name.startswith(f"{job} "))


def limit(looks: Looks, job: str, retention: float) -> float | None:
    """What the production guide gives the pod of a job, in bytes; None as long as it cannot be said.

    Args:
        looks: so far.
        job: of :data:`JOBS`.
        retention: minutes.
    """
    sizes = next((sizes for t, sizes in looks if t >= retention and used(sizes, job)), None)
    return None if sizes is None else SPARE * used(sizes, job)


def _look(live: Live) -> dict[str, float]:
    """Memory of each process, and the size of the state; nothing of a job that does not answer."""
    sizes: Sample = {}
    for job in (live.router, live.worker):
        try:
            metrics = scraped(job.port)
        except OSError:
            continue
        named = {name.partition('"')[2].rstrip('"}'): size for name, size in metrics.items() if _MEMORY in name}
        sizes |= {f"{job.name} {process}": size for process, size in named.items()}
        if job is live.worker:
            sizes["state"] = total(metrics, "slot_state_bytes")
    return sizes


def _watch(live: Live, soak: Soak, looks: Looks, pods: Mapping[str, MemoryCgroup], ended: threading.Event) -> None:
    """Look at the memory of each process until all is over; limit each pod as soon as its limit is known."""
    began, limited = time.monotonic(), set[str]()
    while not ended.wait(soak.every):
        looks.append(((time.monotonic() - began) / 60.0, _look(live)))
        for job in pods.keys() - limited:
            if (size := limit(looks, job, soak.retention)) is not None:
                say(f"the {job} may have {size / 1e6:,.0f} MB from now on")
                pods[job].limit(int(size))
                limited.add(job)


def _pods(cgroup: Path, stack: ExitStack) -> dict[str, MemoryCgroup]:
    """A cgroup for each job, below one that is made too."""
    stack.enter_context(MemoryCgroup(cgroup))
    return {job: stack.enter_context(MemoryCgroup(cgroup / job)) for job in JOBS}


def run(
    output: str | Path = "bench-output", soak: Soak | None = None, cgroup: Path | None = None
) -> list[dict[str, Any]]:
    """The figures; servers and jobs are stopped in any case.

    Args:
        output: folder for figures and the picture.
        soak: how long, and how much.
        cgroup: folder of a memory cgroup, in which each job gets one of its own; None: no job is limited.
    """
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
        pods = _pods(cgroup, stack) if cgroup else {}
        live = Live(zookeeper, kafka, "soak", Path(folder) / "soak", scale, more=retention)
        for job in (live.router, live.worker):
            job.pod = pods.get(job.name)
        stack.enter_context(live)
        say(f"{scale.continuous:,} CRQs registered in {live.register():.1f} s; {soak.minutes:g} minutes ...")
        ended, looks = threading.Event(), Looks()
        threads = [
            threading.Thread(target=_change, args=(live, soak, ended), daemon=True),
            threading.Thread(target=_watch, args=(live, soak, looks, pods, ended), daemon=True),
        ]
        for thread in threads:
            thread.start()
        seconds = 60.0 * soak.minutes
        live.sender(soak.rate).live(
            live.objects, QueryBatch.of([]), 0.0, seconds, lambda: bool(_ended(live)), int(soak.rate * seconds)
        )
        ended.set()
        for thread in threads:
            thread.join(60.0)
        gone = _ended(live)
        kills = {job: pod.kills() for job, pod in pods.items()}
    (output / "soak.json").write_text(json.dumps(looks))
    draw(looks, soak, output / "soak.svg")
    return figures(looks, soak) + [pod_row(looks, soak, job, job not in gone, kills.get(job)) for job in JOBS]


def _ended(live: Live) -> set[str]:
    """The jobs that do not run."""
    return {job.name for job in (live.router, live.worker) if not job.running}


def pod_row(looks: Looks, soak: Soak, job: str, running: bool, kills: int | None) -> dict[str, Any]:
    """Whether a pod with the limit of the production guide has room for a job, as a row of the table.

    Args:
        looks: all.
        soak: how long, and how much.
        job: of :data:`JOBS`.
        running: it was there until the end.
        kills: processes that the kernel has killed because of the limit; None: the job had none.
    """
    allowed = limit(looks, job, soak.retention)
    peak = max((used(sizes, job) for _, sizes in looks), default=0.0)
    known = "is not known" if allowed is None else f"is {allowed / 1e6:,.0f} MB"
    if not running:
        verdict = "FAILS: the job has ended"
    elif kills:
        verdict = f"FAILS: {kills} killed"
    elif allowed is None or peak > allowed:
        verdict = "FAILS"
    else:
        verdict = "fits" if kills is None else "fits, and survives within it"
    return row(f"peak of the pod of {job}", peak / 1e6, "MB", None, f"the guide's limit {known}: {verdict}")


def figures(looks: Looks, soak: Soak) -> list[dict[str, Any]]:
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


def draw(looks: Looks, soak: Soak, path: Path) -> None:
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
    parser.add_argument(
        "--cgroup", type=Path, metavar="DIR", help="memory cgroup, made if missing, in which jobs are limited; as root"
    )
    parser.add_argument("--output", type=Path, default=Path("bench-output"), help="for figures and the picture")
    options = vars(parser.parse_args())
    output, cgroup = options.pop("output"), options.pop("cgroup")
    try:
        soak = Soak(**options)
    except ValueError as error:
        parser.error(str(error))
    rows = run(output, soak, cgroup)
    for each in rows:
        print(f"{each['name']:<40}{each['value']:>12,.1f} {each['unit']}   {each['note']}")
    if any(bad in each["note"] for each in rows for bad in ("GROWS", "FAILS")):
        sys.exit(1)


if __name__ == "__main__":
    main()

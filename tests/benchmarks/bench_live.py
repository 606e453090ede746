"""The live mode on this machine: a broker, ZooKeeper, both jobs and a sender, all on its cores, 200,000 continuous
CRQs.

``python -m tests.benchmarks.bench_live [latency] [throughput] [killed] [rebalance] [asked] [ranked] [embedded]
[--short] [--no-profile] [--rate R] [--seconds S] [--store MS] [--output DIR]``; all of them without a name.

- *latency*: 5,000 objects/s and 10 snapshot queries/s for a minute, then 40,000 objects/s: age of result rows on
  arrival.
- *throughput*: a burst, sent faster than it can be done, shows the ceiling; then objects for two minutes at the highest
  rate of a few that lasts. The lag is the day's clock minus the timestamp up to which results are out, by the worker's
  metrics, sampled every second; it must not grow.
- *killed*: under 5,000 objects/s an actor of the worker, then the worker with all its processes, are killed; the worker
  is started again at once. How long until results are out of what was sent after that.
- *rebalance*: a stream that began without any history gets 5,000 objects/s; FM and then FG are forced. How long from
  proposal to activation, and the longest time without a round and without an epoch, beside the time before.
- *embedded*: as ``bench_pipeline``.

The first two tell where the time goes: parts of turns, what tasks do, part by part, unless told not to, and the CPU
time of every process.

- *asked*: snapshot queries at once over 5,000,000 objects, idle and while objects come
  (:mod:`tests.benchmarks.live_asked`).
- *ranked*: likewise SBQs, of a stream that counts words and writes a table every 10 s.

Leaves ``live.json`` and ``live-*.svg``. ``bench_live job FOLDER COMMAND...`` is what the jobs' processes run: the
command, with clocks.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from spatialstream.balance.proposal import Proposal, propose
from spatialstream.balance.settings import BalanceSettings
from spatialstream.client import Connection, Latencies, Sender, Watch
from spatialstream.kernels import compile_kernels
from spatialstream.model.errors import Conflict, StateError
from spatialstream.model.geometry import BOX, EVERYWHERE
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermLists
from spatialstream.records.encode import object_lines, query_lines
from spatialstream.servers.job import JobServer
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.process import Server, await_condition
from spatialstream.servers.zookeeper import ZooKeeperServer
from spatialstream.store.reports import read_load, read_statistics
from spatialstream.store.zookeeper import ZooKeeperStore
from tests.benchmarks import clocks, workload
from tests.benchmarks.bench_index import make_queries
from tests.benchmarks.pod import MemoryCgroup
from tests.benchmarks.workload import SPACE
from tests.executors import executors, master, spark_home
from tests.objects import BUCKET, VARIABLES, ObjectServer, Proxy

NAMES = ("latency", "throughput", "killed", "executor", "rebalance", "asked", "ranked", "embedded")
RATES = (200_000.0, 160_000.0, 130_000.0, 100_000.0, 80_000.0, 60_000.0, 40_000.0, 20_000.0)
"""Objects a second, of which the highest is found that lasts."""
_MOST_TRIES = 3
PARTITIONS = 2
YEAR = 365 * 24 * 3_600_000
ROOT = Path(__file__).parents[2]

Sample = dict[str, float]
Steps = list[dict[str, Any]]


@dataclass(frozen=True)
class Scale:
    """How large the benchmarks are.

    Attributes:
        continuous: CRQs.
        slots: worker slots.
        rate: objects a second, of *throughput*; None: the highest of :data:`RATES` that lasts.
        seconds: how long they are sent.
        burst: objects of the burst.
        calm_rate: objects a second, of *latency*, *killed* and *rebalance*.
        busy_rate: objects a second, of *latency* once more.
        calm_seconds: how long they are sent.
        warm_up: seconds at the start of each that do not count.
        held: objects that are there when it is *asked*.
        leaves: of the first tree.
        pause: ms between the starts of a job's micro-batches, at least.
        epoch: records an epoch, about.
        store: ms that each request to the object store takes which has the checkpoint; None: a folder has it.
        busy: cores that something else takes, as the object store does where it is on this machine.
    """

    continuous: int = 200_000
    slots: int = 4
    rate: float | None = None
    seconds: float = 120.0
    burst: int = 2_000_000
    calm_rate: float = 5_000.0
    busy_rate: float = 40_000.0
    calm_seconds: float = 60.0
    warm_up: float = 10.0
    held: int = 5_000_000
    leaves: int = 64
    pause: int = 0
    epoch: int = 250_000
    store: int | None = None
    busy: float = 0.0


SHORT = Scale(continuous=20_000, seconds=12.0, burst=100_000, calm_seconds=12.0, warm_up=4.0, held=200_000)


def say(text: str) -> None:
    """Tell whoever waits; the standard output is for the figures."""
    print(f"  {text}", file=sys.stderr, flush=True)


def row(name: str, value: float, unit: str, floor: float | None = None, note: str = "") -> dict[str, Any]:
    return {"name": name, "value": float(value), "unit": unit, "floor": floor, "note": note}


# ------------------------------------------------------------------------------------------------- in the jobs' process


def log_turns(path: Path) -> None:
    """Have the metrics of both jobs leave a line in a file about each epoch or round: how long each part took."""
    from spatialstream.cli import metrics

    def write(parts: Mapping[str, float], **more: Any) -> None:
        ended = time.time()
        line = {"begun": ended - sum(parts.values()), "ended": ended, "steps": parts, **more}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    class RouterMetrics(metrics.RouterMetrics):
        def observe(self, record: Any, seconds: float, parts: Mapping[str, float]) -> None:
            super().observe(record, seconds, parts)
            objects = sum(run.records for run in record.intakes if run.partition.startswith("objects"))
            epoch = record.epoch
            write(parts, number=epoch.number, silent=record.silent, version=epoch.version, objects=objects)

    class WorkerMetrics(metrics.WorkerMetrics):
        def observe(self, record: Any, summary: Any, seconds: float, parts: Mapping[str, float]) -> None:
            super().observe(record, summary, seconds, parts)
            turn, loads = record.round, summary.loads.values()
            more = {"objects": sum(load["objects"] for load in loads), "slots": [load["seconds"] for load in loads]}
            write(parts, number=turn.number, version=turn.version, epochs=len(turn.epochs), **more)

    metrics.RouterMetrics, metrics.WorkerMetrics = RouterMetrics, WorkerMetrics  # type: ignore[misc]


def run_job(folder: Path, arguments: Sequence[str]) -> int:
    """A job of the command line, with clocks."""
    from spatialstream.cli import main as command_line

    log_turns(folder / "steps.jsonl")
    return command_line(arguments)


class ClockedJob(JobServer):
    """A job whose steps are clocked, and with ``profile`` its tasks too.

    Attributes:
        pod: a cgroup that it is started in; None: that of this process.
    """

    pod: MemoryCgroup | None = None

    def __init__(
        self, folder: Path, job: str, arguments: Sequence[str], environment: dict[str, str], profile: bool
    ) -> None:
        if profile:
            (folder / "tasks").mkdir(parents=True)
            environment = {**environment, clocks.VARIABLE: str(folder / "tasks")}
            arguments = [*arguments, "--conf", f"spark.python.daemon.module={clocks.DAEMON}"]
        super().__init__(folder, job, arguments, None, environment)

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("spatialstream")
        command = [*command[:at], "tests.benchmarks.bench_live", "job", str(self.folder), *command[at + 1 :]]
        return command if self.pod is None else self.pod.entered_by(command)

    def restart_killed(self) -> None:
        """Kill it with all of its processes, and have it started again; do not wait until it is."""
        self.kill()
        threading.Thread(target=self.start, args=(240.0,), daemon=True).start()

    def steps(self) -> Steps:
        """What has been written so far."""
        return _lines(self.folder / "steps.jsonl")

    def tasks(self) -> Steps:
        """Likewise of the tasks."""
        return [line for path in sorted((self.folder / "tasks").glob("*.jsonl")) for line in _lines(path)]


def _lines(path: Path) -> Steps:
    """The lines of a file that is being written: the last may be a part of one."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


# ----------------------------------------------------------------------------------------------------------- the stream


def scraped(port: int) -> Sample:
    """All metrics of a job: series -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2.0) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def total(metrics: Sample, *wanted: str) -> float:
    """The sum of the series with these parts in their names."""
    return sum(value for name, value in metrics.items() if all(part in name for part in wanted))


def cpu_below(pid: int) -> dict[str, float]:
    """CPU seconds so far of a process, and of those below it: ``driver``, ``JVM``, ``Python``."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    spent: dict[str, float] = defaultdict(float)
    for each in found:
        try:
            command = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")[0]
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        kind = "JVM" if b"java" in command else "driver" if each == pid else "Python"
        spent[kind] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def asked_for(source: ObjectBatch, n: int, kind: QueryType, shape: int = BOX) -> QueryBatch:
    """Queries of one type around objects, as they can be written: with k only where it means something."""
    queries = make_queries(source, n, kind, shape)
    return queries if kind in (QueryType.SKQ, QueryType.STQ) else replace(queries, k=np.zeros(n, np.int32))


class Live:
    """A stream with its two jobs.

    Args:
        zookeeper, kafka: running servers.
        name: of the stream.
        folder: for the checkpoint and the jobs' logs.
        scale: of the benchmark.
        store: what is before the object store that has the checkpoint; None: a folder has it.
        history: make the first tree from a sample of the workload.
        profile: clock the tasks too.
        executors: of the worker, each a process of its own with one actor; 0: the actors are below the job itself.
        more: arguments of both jobs.
    """

    def __init__(
        self,
        zookeeper: ZooKeeperServer,
        kafka: KafkaServer,
        name: str,
        folder: Path,
        scale: Scale,
        *,
        store: Proxy | None = None,
        history: bool = True,
        profile: bool = False,
        executors: int = 0,
        more: Sequence[str] = (),
    ) -> None:
        self.name, self.scale, self.folder = name, scale, folder
        self.kafka, self.zookeeper = kafka, zookeeper
        self.connection = Connection(kafka.bootstrap)
        checkpoint = str(folder / "checkpoint") if store is None else f"s3://{BUCKET}/{name}"
        folder.mkdir(parents=True)
        common = [
            *("--stream", name, "--bootstrap", kafka.bootstrap, "--zookeeper", zookeeper.hosts),
            *("--checkpoint", checkpoint, "--slots", str(scale.slots), f"--space={SPACE}"),
            *("--pause", str(scale.pause)),
            *more,
        ]
        routing = ["--leaves", str(scale.leaves), "--object-partitions", str(PARTITIONS), "--epoch", str(scale.epoch)]
        self.source = workload.objects(200_000, seed=1)
        if history:
            routing += self._history()
        known = os.environ.get("PYTHONPATH")
        environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), known] if known else [str(ROOT)])}
        if store is not None:
            environment |= {**VARIABLES, "AWS_ENDPOINT_URL": store.url}
        self.router = ClockedJob(folder / "router", "router", [*common, *routing], environment, profile)
        if executors:
            common += ["--master", master(executors), "--conf", "spark.executor.memory=512m"]
            environment |= spark_home(folder)
        self.worker = ClockedJob(folder / "worker", "worker", common, environment, profile)
        self.store = ZooKeeperStore(zookeeper.hosts, name)

    def _history(self) -> list[str]:
        objects, queries = self.folder / "objects.jsonl", self.folder / "queries.jsonl"
        objects.write_bytes(object_lines(self.source.take(np.arange(0, len(self.source), 4)), SPACE))
        queries.write_bytes(query_lines(asked_for(self.source, 20_000, QueryType.CRQ)))
        return ["--history", str(objects), "--history-queries", str(queries)]

    def __enter__(self) -> Self:
        try:
            self.router.start(timeout=240.0)
            self.worker.start(timeout=240.0)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.worker.stop(60.0)
        self.router.stop(60.0)
        self.store.close()

    @property
    def servers(self) -> dict[str, Server]:
        """Everything that runs, by name."""
        return {"ZooKeeper": self.zookeeper, "broker": self.kafka, "router": self.router, "worker": self.worker}

    def sender(self, rate: float, objects_per_message: int = 200) -> Sender:
        """A sender that stamps records with the day's clock."""
        return Sender(self.connection, self.name, SPACE, rate, objects_per_message)

    @property
    def objects(self) -> ObjectBatch:
        """The default workload, to be sent round and round."""
        return workload.objects(200_000, seed=2)

    def register(self) -> float:
        """Register the continuous CRQs; the seconds until all slots have them."""
        queries = asked_for(self.source, self.scale.continuous, QueryType.CRQ)
        n, began = len(queries), time.monotonic()
        sender = self.sender(0.0)
        sender.register(queries, YEAR)
        sender.send_watermarks(int(time.time() * 1000) + 1)
        sender.flush()
        self.await_worker(lambda m: total(m, "slot_continuous_queries", '"CRQ"') >= n, 240.0, "CRQs are not registered")
        return time.monotonic() - began

    def asked_of_store(self) -> dict[str, Sample]:
        """What both jobs have asked of the object store, by job: requests, and bytes."""
        return {
            job.name: {what: total(scraped(job.port), f"storage_{what}_total") for what in ("requests", "bytes")}
            for job in (self.router, self.worker)
        }

    def await_worker(self, condition: Callable[[Sample], bool], timeout: float, problem: str) -> None:
        """Wait until the worker's metrics meet a condition.

        Raises:
            TimeoutError: they do not.
        """
        if not await_condition(lambda: self.worker.running and condition(self._worker()), timeout):
            raise TimeoutError(f"{problem} after {timeout:.0f} s; log: {self.worker.tail()}")

    def _worker(self) -> Sample:
        """The worker's metrics; none while it does not answer."""
        try:
            return scraped(self.worker.port)
        except OSError:
            return {}


class Sampler:
    """Both jobs' metrics and all processes' CPU time, once a second, in a thread of its own."""

    def __init__(self, live: Live) -> None:
        self.samples: list[Sample] = []
        self._live, self._began = live, time.time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        while not self._ended.wait(1.0 - time.time() % 1.0):
            try:
                self.samples.append(self._sample())
            except OSError:
                continue  # a job does not answer at the moment; the next second may do

    def _sample(self) -> Sample:
        router, worker = scraped(self._live.router.port), scraped(self._live.worker.port)
        now = time.time()
        sample = {
            "now": now,
            "lag": now - max(self._began, worker["spatialstream_worker_watermark_seconds"]),
            "held": router["spatialstream_router_held_seconds"],
            "epochs behind": router["spatialstream_router_epoch"] - worker["spatialstream_worker_epoch"],
            "routed": total(router, "router_records_total", '"objects"'),
            "worked": total(worker, "slot_objects_total"),
            "rows": total(worker, "worker_results_rows", '"CRQ"'),
            "CPU sender": time.process_time(),
        }
        for name, server in self._live.servers.items():
            if server.pid is not None:
                for kind, seconds in cpu_below(server.pid).items():
                    which = name if name in ("broker", "ZooKeeper") else f"{name} {kind}"
                    sample[f"CPU {which}"] = seconds
        return sample

    def between(self, first: float, last: float) -> list[Sample]:
        """The samples of a time."""
        return [sample for sample in self.samples if first <= sample["now"] <= last]


# ----------------------------------------------------------------------------------------------------------- throughput


def throughput(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A burst, then the highest rate of a few that lasts: tried from what the burst has reached downwards."""
    scale = live.scale
    with Sampler(live) as sampler:
        ceiling, burst = _burst(live, scale.burst)
        below = [rate for rate in RATES if rate <= ceiling] or RATES[-1:]
        for rate in (below if scale.rate is None else [scale.rate])[:_MOST_TRIES]:
            say(f"{rate:,.0f} objects/s ...")
            if not drain(live):
                raise TimeoutError("not everything that was sent has had its results in time")
            tried = _sustained(live, sampler, rate)
            if not tried.grows:
                break
        drained = drain(live)
        everything = sampler.between(tried.began - 1.0, time.time())
    steady, span = tried.steady, tried.span
    gained = {name: steady[-1][name] - steady[0].get(name, 0.0) for name in steady[-1]}
    lags, goes = [each["lag"] for each in steady], "LAG GROWS" if tried.grows else "lag does not grow"
    rows = [
        row(
            f"objects in to CRQ results out, {scale.continuous:,} CRQs, all on {os.cpu_count()} cores",
            tried.done,
            "objects/s",
            100_000,
            f"aim 200,000; {goes} in {tried.ended - tried.began:.0f} s at {tried.rate:,.0f}/s",
        ),
        row("   result rows", gained["rows"] / span, "rows/s"),
        row("   lag, median", float(np.median(lags)), "s"),
        row("   lag, longest", max(lags), "s"),
        row("   lag, slope", 60.0 * tried.slope, "s/min"),
        row(f"   a burst of {scale.burst:,}: all results out", ceiling, "objects/s", 140_000, "aim 200,000"),
        row("   a burst: once it is sent", burst, "objects/s"),
    ]
    window = (steady[0]["now"], steady[-1]["now"])
    rows += _steps(live, window, gained["worked"])
    rows += _cpu(steady)
    times = {"began": tried.began, "ended": tried.ended, "rate": tried.rate}
    return rows + _tasks(live, window), {"samples": everything, "drained": drained, **times}


@dataclass(frozen=True)
class Tried:
    """Objects at a rate.

    Attributes:
        rate: objects a second.
        began, ended: of sending, s since 1970.
        steady: the samples after the warm-up.
        slope: of the lag, s/s.
    """

    rate: float
    began: float
    ended: float
    steady: list[Sample]
    slope: float

    @property
    def span(self) -> float:
        return self.steady[-1]["now"] - self.steady[0]["now"]

    @property
    def done(self) -> float:
        """Objects a second that were worked on."""
        return (self.steady[-1]["worked"] - self.steady[0]["worked"]) / self.span

    @property
    def grows(self) -> bool:
        """Whether the lag does, or less was sent."""
        usual = float(np.median([each["lag"] for each in self.steady]))
        return self.slope * self.span > max(1.0, 0.5 * usual) or self.done < 0.95 * self.rate


def _sustained(live: Live, sampler: Sampler, rate: float) -> Tried:
    """Send objects at a rate."""
    scale, sender, began = live.scale, live.sender(rate), time.time()
    count = int(rate * scale.seconds)
    sender.live(live.objects, QueryBatch.of([]), 0.0, scale.seconds, lambda: False, count)
    ended = time.time()
    steady = sampler.between(began + scale.warm_up, ended)
    if len(steady) < 3:
        raise TimeoutError("the jobs' metrics could not be read while objects were sent")
    slope = float(np.polyfit([each["now"] for each in steady], [each["lag"] for each in steady], 1)[0])
    return Tried(rate, began, ended, steady, slope)


def _cpu(samples: list[Sample]) -> list[dict[str, Any]]:
    """CPU of an object by process, between the first and the last of some samples."""
    span = samples[-1]["now"] - samples[0]["now"]
    gained = {name: samples[-1][name] - samples[0].get(name, 0.0) for name in samples[-1]}
    found = {name: seconds for name, seconds in gained.items() if name.startswith("CPU ")}
    found["CPU all of it"] = sum(found.values())
    return [
        row(f"   CPU of {name[4:]}", 1e6 * seconds / gained["worked"], "us/object", None, f"{seconds / span:.2f} cores")
        for name, seconds in sorted(found.items(), key=lambda item: -item[1])
        if seconds / span >= 0.005
    ]


def drain(live: Live, timeout: float = 120.0) -> bool:
    """Wait until everything that was sent has its results; whether it has."""
    upto = time.time()
    sender = live.sender(0.0)
    sender.send_watermarks(int(upto * 1000) + 2)
    sender.flush()
    return await_condition(
        lambda: scraped(live.worker.port).get("spatialstream_worker_watermark_seconds", 0.0) >= upto, timeout
    )


def _burst(live: Live, count: int) -> tuple[float, float]:
    """Objects a second of a burst: from its begin, and after it has been sent, until its results are out."""
    sender = live.sender(400_000.0, 500)
    before, began = total(scraped(live.worker.port), "slot_objects_total"), time.monotonic()

    def done() -> float:
        return total(scraped(live.worker.port), "slot_objects_total") - before

    sender.live(live.objects, QueryBatch.of([]), 0.0, 120.0, lambda: False, count)
    sent_at, half = time.monotonic(), done()
    if not await_condition(lambda: done() >= sender.sent, 240.0):
        return 0.0, 0.0
    ended = time.monotonic()
    return sender.sent / (ended - began), (sender.sent - half) / (ended - sent_at)


def _steps(live: Live, window: tuple[float, float], objects: float) -> list[dict[str, Any]]:
    """Mean time of each part of an epoch and of a round."""
    rows = []
    for job, unit in ((live.router, "epoch"), (live.worker, "round")):
        steps = [each for each in job.steps() if window[0] <= each["ended"] <= window[1] and not each.get("silent")]
        if len(steps) < 2:
            continue
        n, means = len(steps), defaultdict(float)
        for each in steps:
            for name, seconds in each["steps"].items():
                means[name] += seconds / n
        span = steps[-1]["ended"] - steps[0]["begun"]
        more = f"{objects / n:,.0f} objects"
        if unit == "round":
            slowest = float(np.mean([max(each["slots"], default=0.0) for each in steps]))
            means["work: slowest slot"] = slowest
            more += f", {np.mean([each['epochs'] for each in steps]):.1f} epochs"
            share = sum(sum(each["slots"]) for each in steps) / (span * (os.cpu_count() or 1))
            rows.append(
                row(
                    "   utilisation: the slots' share of all cores",
                    100 * share,
                    "%",
                    None,
                    "what the operator scales by",
                )
            )
        rows.append(row(f"   {unit} in all", 1e3 * span / n, "ms", None, f"{n}, of {more}"))
        for name, seconds in means.items():
            if seconds >= 0.0005:
                rows.append(row(f"      {name}", 1e3 * seconds, "ms"))
    return rows


def _tasks(live: Live, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Mean of what each kind of task does, part by part, if tasks are clocked."""
    rows = []
    for name, job in (("router", live.router), ("worker", live.worker)):
        lines = [line for line in job.tasks() if window[0] <= line["begun"] <= window[1]]
        for stage, means in clocks.parts_of(lines).items():
            note = f"{means['calls']} tasks; CPU of its thread {1e3 * means['cpu']:.1f} ms"
            rows.append(row(f"   a task of the {name}: {stage}", 1e3 * means["whole"], "ms", None, note))
            parts = means["parts"].items()
            rows += [row(f"      {part}", 1e3 * seconds, "ms") for part, seconds in parts if seconds >= 0.0002]
    return rows


# -------------------------------------------------------------------------------------------------------------- latency


def snapshots(source: ObjectBatch, n: int) -> QueryBatch:
    """SRQs, SKQs and STQs over the last minute, in turn."""
    parts = [
        asked_for(source, n, QueryType.SRQ),
        asked_for(source, n, QueryType.SKQ, EVERYWHERE),
        replace(asked_for(source, n, QueryType.STQ), keywords=TermLists.empty(n)),
    ]
    mixed = QueryBatch.concat(parts).take(np.arange(3 * n).reshape(3, n).T.reshape(-1))
    ids = pa.array([f"s{i}" for i in range(3 * n)], pa.string())
    return replace(mixed, ids=ids, duration=np.full(3 * n, 60_000, np.int64))


def latency(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Ages of results at a moderate rate, and at a high one."""
    scale = live.scale
    rows, record = _ages(live, scale.calm_rate, {"CRQ": (400, "aim 150"), "": (400, "aim 150")})
    if not drain(live):
        raise TimeoutError("not everything that was sent has had its results in time")
    more, _ = _ages(live, scale.busy_rate, {"CRQ": (800, "aim 300")})
    return rows + more, record


def _ages(
    live: Live, rate: float, floors: Mapping[str, tuple[float, str]]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Ages of results at a rate, and where the time goes; with the floor of p95 by kind of query, or of all others."""
    scale = live.scale
    since = int((time.time() + scale.warm_up) * 1000)
    with Watch(live.connection, live.name, Latencies(since, every=1)) as watch, Sampler(live) as sampler:
        sender = live.sender(rate, 50 if rate <= scale.calm_rate else 200)
        asked = snapshots(live.source, 500)
        seconds = scale.warm_up + scale.calm_seconds
        sender.live(live.objects, asked, 10.0, seconds, lambda: False, int(rate * seconds))
        watch.settle(3.0)
    rows, found = [], watch.latencies.percentiles()
    missing = {"CRQ", "SRQ", "SKQ", "STQ"} - set(found)
    if missing:
        raise TimeoutError(f"no results of {', '.join(sorted(missing))} have come")
    for kind, each in found.items():
        what = "object to CRQ result" if kind == "CRQ" else f"{kind} to complete result"
        what += f", {rate:,.0f} objects/s"
        floor, aim = floors.get(kind, floors.get("", (None, "")))
        rows.append(row(f"{what}, p50", each["p50"], "ms", None, f"{each['measured']:,} measured"))
        rows.append(row(f"{what}, p95", each["p95"], "ms", floor, f"{aim}; p99 {each['p99']:,.0f}".removeprefix("; ")))
    window = (watch.latencies.since / 1000, time.time())
    rows += _steps(live, window, float(sender.sent)) + _tasks(live, window)
    rows += _cpu(sampler.between(window[0], window[0] + scale.calm_seconds))
    return rows, {"percentiles": found, "behind": sender.behind, "rows": watch.latencies.rows}


# --------------------------------------------------------------------------------------------------------------- killed


def actors_below(pid: int) -> list[int]:
    """The processes that are actors of a job: those that Spark's daemon of Python has forked."""
    parents, commands = dict[int, int](), dict[int, bytes]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
            commands[int(path.parent.name)] = (path.parent / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue

    def is_below(each: int) -> bool:
        return each == pid or (each in parents and is_below(parents[each]))

    daemons = {
        each for each, command in commands.items() if b"daemon" in command and b"java" not in command.split(b"\0")[0]
    }
    return [each for each in daemons if parents[each] in daemons and is_below(each)]


def killed(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """An actor, then the worker, killed under load."""
    return _recovered(
        live,
        ("one Python process", lambda: os.kill(actors_below(live.worker.pid or 0)[0], signal.SIGKILL), 4, 2),
        ("the worker", live.worker.restart_killed, 20, 10),
    ), {}


def executor(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """One of two executors of the worker, killed under load."""

    def kill() -> None:
        os.kill(min(executors(live.worker).values()), signal.SIGKILL)

    return _recovered(live, ("one of two executors", kill, 6, 3)), {}


def _recovered(live: Live, *kills: tuple[str, Callable[[], None], float, float]) -> list[dict[str, Any]]:
    """How long it is until what was sent after a kill has its results; each with a name, its floor and its aim."""
    scale, over, rows = live.scale, threading.Event(), []
    sender = live.sender(scale.calm_rate, 50)
    thread = threading.Thread(
        target=sender.live,
        args=(live.objects, QueryBatch.of([]), 0.0, 600.0, over.is_set, int(scale.calm_rate * 600)),
        daemon=True,
    )
    thread.start()
    try:
        over.wait(scale.warm_up)
        for what, kill, floor, aim in kills:
            at, began = time.time(), time.monotonic()
            kill()
            live.await_worker(
                lambda m, at=at: total(m, "worker_watermark_seconds") > at, 120.0, f"no results: {what} killed"
            )
            seconds = time.monotonic() - began
            rows.append(row(f"{what} killed -9, to results again", seconds, "s", floor, f"aim {aim}"))
            over.wait(scale.warm_up)
    finally:
        over.set()
        thread.join(60.0)
    return rows


# ------------------------------------------------------------------------------------------------------------- embedded


def embedded() -> list[dict[str, Any]]:
    """Files to results, and small epochs, without servers."""
    from tests.benchmarks import bench_pipeline

    return [
        row(each["name"], each["value"], each["unit"], each["floor"], each.get("note", ""))
        for each in bench_pipeline.run()
    ]


# ------------------------------------------------------------------------------------------------------------ rebalance


def published(live: Live, strategy: str) -> tuple[Proposal, float] | None:
    """Publish a version by a strategy, if a few seconds of the stream have been counted; when it was done."""
    store = live.store
    state = store.state()
    if state.pending is not None:
        return None
    try:
        load, known = read_load(store), read_statistics(store)
        few = load.counts.arrivals.sum() < 5.0 * live.scale.calm_rate
        if known is None or load.version != state.active.number or few:
            return None
        version = store.load(load.version)
        proposal = propose(version, load.counts, known, BalanceSettings(), strategy, number=state.last + 1)
        if proposal is None:
            return None
        store.publish(proposal.version, load.version, proposal.id, proposal.to_record())
    except (StateError, Conflict):
        return None
    return proposal, time.time()


def rebalance(live: Live) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """FM, then FG, forced under load."""
    scale, over, rows, moves = live.scale, threading.Event(), [], []
    sender = live.sender(scale.calm_rate, 50)
    thread = threading.Thread(
        target=sender.live,
        args=(live.objects, QueryBatch.of([]), 0.0, 600.0, over.is_set, int(scale.calm_rate * 600)),
        daemon=True,
    )
    thread.start()
    try:
        over.wait(scale.warm_up)
        for strategy in ("FM", "FG"):
            since = time.time()
            over.wait(scale.calm_seconds / 3)
            proposal, at = _proposed(live, strategy)
            more, move = _adoption(live, proposal, at, since)
            rows += more
            moves.append(move)
    finally:
        over.set()
        thread.join(60.0)
    return rows, {"moves": moves, "epochs": live.router.steps(), "rounds": live.worker.steps()}


def _proposed(live: Live, strategy: str, timeout: float = 90.0) -> tuple[Proposal, float]:
    """Publish a version by a strategy as soon as there can be one."""
    until = time.monotonic() + timeout
    while (done := published(live, strategy)) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"{strategy} could not be proposed within {timeout:.0f} s")
        time.sleep(0.5)
    return done


def _adoption(live: Live, proposal: Proposal, at: float, since: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Wait until a version is active and has had a round; what that took."""
    number = proposal.version.number

    def active() -> bool:
        return any(each["version"] == number for each in live.worker.steps())

    if not await_condition(active, 120.0):
        raise TimeoutError(f"version {number} did not become active")
    time.sleep(3.0)  # the rounds after it belong to the picture
    first = live.store.state().active.epoch
    activated = next(each["begun"] for each in live.router.steps() if each["number"] == first)
    answered = next(each["ended"] for each in live.worker.steps() if each["version"] == number)
    rows = [
        row(f"{proposal.strategy}: proposal to activation", activated - at, "s"),
        row("   first round under the new version", answered - at, "s"),
        row("   queries that move, by the proposal", proposal.queries_moved, "queries", None, "in each leaf"),
        row("   Lmax/Lmin expected", proposal.imbalance_after, "", None, f"before {proposal.imbalance_before:.1f}"),
    ]
    for what, steps in (("rounds", live.worker.steps()), ("epochs", live.router.steps())):
        ends = np.array([each["ended"] for each in steps if not each.get("silent")])
        gaps = np.diff(ends)
        before = gaps[(ends[1:] >= since) & (ends[1:] < at)]
        during = gaps[(ends[1:] >= at) & (ends[:-1] <= answered)]
        if len(before) and len(during):
            usual, longest = float(np.median(before)), float(before.max())
            note = f"before: median {usual:.2f}, longest {longest:.2f}"
            rows.append(
                row(
                    f"   {proposal.strategy}: longest time between two {what}",
                    float(during.max()),
                    "s",
                    usual + longest,
                    note,
                )
            )
    move = {"strategy": proposal.strategy, "published": at, "activated": activated, "answered": answered}
    return rows, move | {"moved": round(proposal.queries_moved), "leaves": len(proposal.version.index.leaves)}


# ------------------------------------------------------------------------------------------------------------- pictures


def draw_throughput(record: dict[str, Any], scale: Scale, path: Path) -> None:
    """The lag, what is done, and the cores that each process uses."""
    pyplot = _pyplot()
    samples = record["samples"]
    t = np.array([each["now"] - record["began"] for each in samples])
    figure, (lag, done, cores) = pyplot.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
    lag.plot(t, [each["lag"] for each in samples], color="#2a5f8f", linewidth=1.2, label="day's clock minus results'")
    lag.plot(t, [each["held"] for each in samples], color="#b5482a", linewidth=1, label="held by the router")
    lag.set(title=f"{record['rate']:,.0f} objects/s, {scale.continuous:,} CRQs", ylabel="s")
    for name, colour in (("routed", "#b5482a"), ("worked", "#2a5f8f")):
        speed = np.diff([each[name] for each in samples]) / np.maximum(np.diff(t), 1e-3)
        done.plot(t[1:], speed, color=colour, linewidth=0.8, label=name)
    done.axhline(100_000, color="#555555", linewidth=1, linestyle="--", label="floor")
    done.set(ylabel="objects/s")
    names = sorted({name for each in samples for name in each if name.startswith("CPU ")})
    shares = [np.diff([each.get(name, 0.0) for each in samples]) / np.maximum(np.diff(t), 1e-3) for name in names]
    cores.stackplot(t[1:], np.maximum(shares, 0.0), labels=[name[4:] for name in names])
    cores.set(ylabel="cores", xlabel="s")
    for axes in (lag, done, cores):
        axes.legend(frameon=False, fontsize=7, ncols=4)
        axes.axvline(record["ended"] - record["began"], color="#999999", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_latency(record: dict[str, Any], scale: Scale, path: Path) -> None:
    """Percentiles by type of query."""
    pyplot = _pyplot()
    found = record["percentiles"]
    figure, axes = pyplot.subplots(figsize=(6, 3.2), layout="constrained")
    for i, (name, colour) in enumerate((("p50", "#9ec5e8"), ("p95", "#2a5f8f"), ("p99", "#b5482a"))):
        axes.bar(np.arange(len(found)) + 0.25 * (i - 1), [each[name] for each in found.values()], 0.22, color=colour)
        axes.plot([], [], color=colour, linewidth=6, label=name)
    axes.axhline(400, color="#555555", linewidth=1, linestyle="--", label="floor of p95")
    axes.axhline(150, color="#999999", linewidth=1, linestyle=":", label="aim")
    axes.set_xticks(range(len(found)), list(found))
    axes.set(title=f"{scale.calm_rate:,.0f} objects/s, {scale.continuous:,} CRQs, 10 snapshots/s", ylabel="ms")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def draw_rebalance(record: dict[str, Any], scale: Scale, path: Path) -> None:
    """The time from each epoch and round to the next, and when versions were proposed and became active."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    began = record["epochs"][0]["ended"]
    for name, colour in (("epochs", "#b5482a"), ("rounds", "#2a5f8f")):
        ends = np.array([each["ended"] for each in record[name] if not each.get("silent")])
        axes.plot(ends[1:] - began, np.diff(ends), ".-", color=colour, linewidth=0.8, markersize=3, label=name)
    for move in record["moves"]:
        axes.axvspan(move["published"] - began, move["answered"] - began, color="#2a7f62", alpha=0.2)
        axes.text(move["published"] - began, axes.get_ylim()[1], f"{move['strategy']}: {move['moved']:,} moved", size=8)
    axes.set(xlabel="s", ylabel="s since the one before", yscale="log")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spatialstream", "font.size": 9})
    from matplotlib import pyplot

    return pyplot


# -------------------------------------------------------------------------------------------------------------- running


def _asked(live: Live) -> Any:
    from tests.benchmarks.live_asked import asked

    return asked(live)


def _ranked(live: Live) -> Any:
    from tests.benchmarks.live_asked import ranked_asked

    return ranked_asked(live)


_MEASURES: dict[str, tuple[Callable[[Live], Any], Callable[[Any, Scale, Path], None] | None]] = {
    "latency": (latency, draw_latency),
    "throughput": (throughput, draw_throughput),
    "killed": (killed, None),
    "executor": (executor, None),
    "rebalance": (rebalance, draw_rebalance),
    "asked": (_asked, None),
    "ranked": (_ranked, None),
}


def _of_store(live: Live, before: Mapping[str, Sample], minutes: float) -> list[dict[str, Any]]:
    """What the jobs have asked of the object store since."""
    rows = []
    for job, found in live.asked_of_store().items() if live.scale.store is not None else ():
        gained = {what: (value - before[job][what]) / minutes for what, value in found.items()}
        rows += [
            row(f"   {job}: requests to the store", gained["requests"], "/min", None, f"{live.scale.slots} slots"),
            row(f"   {job}: bytes to and from the store", gained["bytes"] / 1e6, "MB/min"),
        ]
    return rows


def run(
    output: str | Path = "bench-output",
    names: Sequence[str] = NAMES,
    scale: Scale | None = None,
    profile: bool = True,
) -> list[dict[str, Any]]:
    """The figures; leaves ``live.json`` and a picture of each benchmark. Servers and jobs are stopped in any case.

    *latency*, *throughput* and *killed* share a stream; *executor* has one of its own, whose worker has two,
    and so have *rebalance*, which begins without history, *asked*, and *ranked*.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and jobs are stopped then too
    scale, output = scale or Scale(), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    compile_kernels()
    rows: list[dict[str, Any]] = []
    records: dict[str, Any] = {}

    def write() -> None:
        (output / "live.json").write_text(json.dumps({"figures": rows, "records": records}, indent=1))

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(Path(folder) / "zookeeper"))
        kafka = stack.enter_context(KafkaServer(Path(folder) / "kafka"))
        store = None
        if scale.store is not None:
            objects = ObjectServer(Path(folder) / "objects").start()
            stack.callback(objects.kill)
            store = Proxy(objects.port, scale.store / 1000)
            stack.callback(store.close)
        for share in _shares(scale.busy):
            busy = subprocess.Popen([sys.executable, "-c", _BUSY, str(share)])
            stack.callback(busy.kill)
        groups = (
            (("latency", "throughput", "killed"), {}),
            (("executor",), {"executors": 2}),
            (("rebalance",), {"history": False}),
            (("asked",), {}),
            (("ranked",), {"more": ("--ranking", "--interval", "10s")}),
        )
        for group, how in groups:
            wanted = [name for name in group if name in names]
            if not wanted:
                continue
            where = Path(folder) / wanted[0]
            with Live(zookeeper, kafka, wanted[0], where, scale, store=store, profile=profile, **how) as live:
                say(f"{scale.continuous:,} CRQs registered in {live.register():.1f} s")
                for name in wanted:
                    measure, draw = _MEASURES[name]
                    say(f"{name} ...")
                    before, began = live.asked_of_store(), time.monotonic()
                    more, records[name] = measure(live)
                    rows += more + _of_store(live, before, (time.monotonic() - began) / 60.0)
                    if draw is not None:
                        draw(records[name], scale, output / f"live-{name}.svg")
                    write()
    if "embedded" in names:
        say("embedded ...")
        rows += embedded()
        write()
    return rows


_BUSY = """
import sys, time
share = float(sys.argv[1])
while True:
    until = time.perf_counter() + share / 100
    while time.perf_counter() < until:
        pass
    time.sleep((1 - share) / 100)
"""
"""Takes a share of a core, in slices of 10 ms."""


def _shares(cores: float) -> list[float]:
    """What each core gives of so many cores' time."""
    count = os.cpu_count() or 1
    return [cores / count] * count if cores else []


def main() -> None:
    if sys.argv[1:2] == ["job"]:
        sys.exit(run_job(Path(sys.argv[2]), sys.argv[3:]))
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bench_live")
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    add("--short", action="store_true", help="a few seconds each, to try")
    add("--profile", action=argparse.BooleanOptionalAction, default=True, help="clock what tasks do")
    add("--output", type=Path, default=Path("bench-output"), help="for figures and pictures")
    floats, integers = ("rate", "seconds", "busy"), ("continuous", "slots", "pause", "store")
    kinds = dict.fromkeys(floats, float) | dict.fromkeys(integers, int)
    for name, kind in kinds.items():
        add(f"--{name}", type=kind, help=f"default {getattr(Scale, name)}")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(NAMES)}")
    given = {name: getattr(options, name) for name in kinds}
    chosen = replace(SHORT if options.short else Scale(), **{k: v for k, v in given.items() if v is not None})
    for each in run(options.output, options.names or NAMES, chosen, options.profile):
        note = f"   {each['note']}" if each["note"] else ""
        floor = f"   (floor {each['floor']:,.4g})" if each["floor"] else ""
        print(f"{each['name']:<78}{each['value']:>14,.2f} {each['unit']}{floor}{note}")


if __name__ == "__main__":
    main()

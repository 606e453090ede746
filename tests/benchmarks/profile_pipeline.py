"""Where the time of an epoch goes in the embedded pipeline: by stage, by part of a stage, in the JVM and in Python.

``python -m tests.benchmarks.profile_pipeline [--objects N] [--queries N] [--epoch-records N]``. The stages of a run
over generated files are wrapped in clocks; each call leaves a line in a file, and the averages of the epochs after the
first two are printed. Wall-clock seconds, unless CPU is said.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa

_WARM_UP = 2
_parts: dict[str, float] = defaultdict(float)
_patched = False

Batches = Iterator[pa.RecordBatch]


def _clocked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            _parts[name] += time.perf_counter() - started

    return timed


def _clock_parts() -> None:
    """Put clocks around the parts of the stages, once in each process."""
    global _patched
    if _patched:
        return
    _patched = True
    from spatialstream.local.ckq import ContinuousNearestIndex
    from spatialstream.local.crq import ContinuousRangeIndex
    from spatialstream.local.ctq import ContinuousTermsIndex
    from spatialstream.local.segments import SegmentStore
    from spatialstream.sources import result_files
    from spatialstream.stages import merge, messages, route, work
    from spatialstream.stages.state import OwnerState

    for owner, attribute, name in (
        (ContinuousRangeIndex, "_match", "CRQ match"),
        (ContinuousRangeIndex, "observe", "CRQ frequencies"),
        (ContinuousRangeIndex, "register", "CRQ register"),
        (ContinuousRangeIndex, "ids_of", "CRQ ids of matches"),
        (ContinuousNearestIndex, "_offer", "CKQ update"),
        (ContinuousTermsIndex, "match", "CTQ update"),
        (SegmentStore, "append", "segment append"),
        (OwnerState, "write", "state files written"),
        (OwnerState, "commit", "state manifest"),
        (OwnerState, "previous", "state manifest"),
        (OwnerState, "read", "state files read"),
        (work, "object_texts", "result text"),
        (work, "match_lines", "result text"),
        (work, "columns", "blocks made"),
        (work.SlotIndexes, "restore", "slot restored"),
        (result_files, "_write", "result file, merged on the way"),
        (merge, "row_lines", "result text"),
        (route, "route_share", "run files read and sorted"),
        (route, "queries_of_epoch", "run files read and sorted"),
        (messages, "message", "blocks encoded"),
        (messages, "blocks", "blocks decoded"),
        (route, "_object_rows", "objects routed"),
    ):
        if function := getattr(owner, attribute, None):
            setattr(owner, attribute, _clocked(name, function))


@dataclass(frozen=True, slots=True)
class Clocked:
    """A stage that leaves a line about each of its calls in a file."""

    name: str
    stage: Callable[[Batches], Batches]
    folder: Path

    def __call__(self, batches: Batches) -> Batches:
        _clock_parts()
        _parts.clear()
        record = defaultdict(float, begun=time.time())
        cpu = time.process_time()

        def counted() -> Batches:
            while True:
                started = time.perf_counter()
                batch = next(batches, None)
                record["input"] += time.perf_counter() - started
                if batch is None:
                    return
                record["bytes in"] += batch.nbytes
                yield batch

        started = time.perf_counter()
        for batch in self.stage(counted()):
            record["bytes out"] += batch.nbytes
            given = time.perf_counter()
            yield batch
            record["output"] += time.perf_counter() - given
        whole = time.perf_counter() - started
        record["own"] = whole - record["input"] - record["output"]
        record["cpu"] = time.process_time() - cpu
        line = {"stage": self.name, "pid": os.getpid(), "whole": whole, **record, "parts": dict(_parts)}
        with (self.folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _processes() -> dict[str, float]:
    """CPU seconds so far of this process, of the JVM, and of the Python processes below it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except FileNotFoundError:
            continue
    below, found = {"driver": 0.0, "JVM": 0.0, "Python": 0.0}, {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    for pid in found:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            kind = "driver" if pid == os.getpid() else "JVM" if b"java" in command.split(b"\0")[0] else "Python"
            below[kind] += _cpu_of(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return below


def clock_tasks(folder: Path) -> None:
    """Have every function that Spark's tasks run leave a line about each of its calls."""
    from pyspark.sql.classic.dataframe import DataFrame

    original = DataFrame.mapInArrow

    def clocked(self: Any, task: Any, *rest: Any, **options: Any) -> Any:
        function = getattr(task, "do", None) or getattr(task, "merge", task)
        name = getattr(getattr(function, "func", function), "__name__", type(task).__name__)
        return original(self, Clocked(name, task, folder), *rest, **options)

    DataFrame.mapInArrow = clocked  # type: ignore[method-assign]


def profile(objects: int, standing: int, epoch_records: int) -> None:
    """Run and print."""
    from spatialstream.kernels import compile_kernels
    from spatialstream.spark.session import embedded_session
    from tests.benchmarks import bench_pipeline

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    compile_kernels()
    spark = embedded_session("profile")
    before: dict[str, float] = {}
    ends: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clock_tasks(folder)
        report = bench_pipeline.Clock.report

        def watch(self: Any, progress: Any) -> None:
            report(self, progress)
            if progress.phase == "answering":
                ends.setdefault(progress.done, time.monotonic())
                if not before:
                    before.update(_processes())

        bench_pipeline.Clock.report = watch
        rows = bench_pipeline.throughput(spark, folder, objects, standing, epoch_records)
        after = _processes()
        lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.open() if '"stage"' in line]
    for row in rows:
        print(f"{row['name']:<44}{row['value']:>14,.1f} {row['unit']}")
    _print_epochs(lines, len(ends) - 1, (ends[max(ends)] - ends[_WARM_UP]) / (max(ends) - _WARM_UP))
    print("\nCPU seconds while answering: " + ", ".join(f"{k} {after[k] - before[k]:.1f}" for k in after))
    spark.stop()


def _print_epochs(lines: list[dict[str, Any]], epochs: int, seconds: float) -> None:
    print(f"\naverage of an epoch after the first {_WARM_UP}: {seconds:.3f} s")
    for stage in ("route", "work", "merge"):
        calls = sorted((line for line in lines if line["stage"] == stage), key=lambda line: line["begun"])
        tasks = max(1, round(len(calls) / epochs))
        calls = calls[_WARM_UP * tasks :]

        def mean(key: str, calls: list[dict[str, Any]] = calls) -> float:
            return sum(each.get(key, 0.0) for each in calls) / max(1, len(calls))

        print(
            f"  {stage}: {tasks} tasks; each {mean('whole'):.3f} s: waits for input {mean('input'):.3f}, own work"
            f" {mean('own'):.3f}, waits for the JVM to take output {mean('output'):.3f}; CPU {mean('cpu'):.3f};"
            f" MB in {mean('bytes in') / 1e6:.1f}, out {mean('bytes out') / 1e6:.1f}"
        )
        parts: dict[str, float] = defaultdict(float)
        for each in calls:
            for name, taken in each["parts"].items():
                parts[name] += taken / max(1, len(calls))
        for name, taken in sorted(parts.items(), key=lambda item: -item[1]):
            if taken >= 0.0005:
                print(f"      {name:<30}{taken:8.3f} s")


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.profile_pipeline")
    parser.add_argument("--objects", type=int, default=2_000_000)
    parser.add_argument("--queries", type=int, default=200_000)
    parser.add_argument("--epoch-records", type=int, default=250_000)
    options = parser.parse_args()
    profile(options.objects, options.queries, options.epoch_records)


if __name__ == "__main__":
    main()

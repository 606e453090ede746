"""Time profile of an epoch in the embedded pipeline: by stage, by part of a stage, by process.

``python -m tests.benchmarks.profile_pipeline [--objects N] [--queries N] [--epoch-records N]``. The tasks of a run
over generated files are timed in the processes that run them (:mod:`tests.benchmarks.clocks`), and the averages of the
epochs after the first two are printed. Times are wall-clock seconds unless marked as CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.clocks import DAEMON, VARIABLE, parts_of

_WARM_UP = 2


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processes() -> dict[str, float]:
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


def profile(objects: int, continuous: int, epoch_records: int) -> None:
    """Run and print."""
    from spatialstream.kernels import compile_kernels
    from spatialstream.spark.session import embedded_session
    from tests.benchmarks import bench_pipeline

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    compile_kernels()
    before: dict[str, float] = {}
    ends: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ[VARIABLE] = name
        spark = embedded_session("profile", conf={"spark.python.daemon.module": DAEMON})
        report = bench_pipeline.Clock.report

        def watch(self: Any, progress: Any) -> None:
            report(self, progress)
            if progress.phase == "answering":
                ends.setdefault(progress.done, time.monotonic())
                if not before:
                    before.update(processes())

        bench_pipeline.Clock.report = watch
        rows = bench_pipeline.throughput(spark, folder, objects, continuous, epoch_records)
        after = processes()
        lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.open() if '"stage"' in line]
    for row in rows:
        print(f"{row['name']:<44}{row['value']:>14,.1f} {row['unit']}")
    _print_epochs(lines, len(ends) - 1, (ends[max(ends)] - ends[_WARM_UP]) / (max(ends) - _WARM_UP))
    print("\nCPU seconds while answering: " + ", ".join(f"{k} {after[k] - before[k]:.1f}" for k in after))
    spark.stop()


def _print_epochs(lines: list[dict[str, Any]], epochs: int, seconds: float) -> None:
    print(f"\naverage of an epoch after the first {_WARM_UP}: {seconds:.3f} s")
    for stage in ("route", "work", "merge", "ask", "merge_answers"):
        calls = sorted((line for line in lines if line["stage"] == stage), key=lambda line: float(line["begun"]))
        tasks = max(1, round(len(calls) / epochs))
        for means in parts_of(calls[_WARM_UP * tasks :]).values():
            print(
                f"  {stage}: {tasks} tasks; each {means['whole']:.3f} s: waits for input {means['input']:.3f}, for who"
                f" takes its output {means['output']:.3f}; CPU of its thread {means['cpu']:.3f}"
            )
            for name, taken in means["parts"].items():
                if taken >= 0.0005:
                    print(f"      {name:<36}{taken:8.3f} s")


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

"""The memory use of an epoch with many result rows: the total of all processes of a run, including the JVM.

Usage: python -m tests.benchmarks.profile_memory [--objects N] [--queries N] [--type TYPE] [--folder DIR]

Generates objects and queries that match all of them, runs ``spatialstream run`` over them as one epoch, and prints the
largest sum of the processes' proportional set sizes (shared pages are counted once), sampled four times a second.
Compare with a run of one query. Results take 126 bytes per row of a CRQ; the folder is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BEGIN = 1_000_000
TEMPLATES = {
    "CRQ": {"t": BEGIN, "region": {"box": [-180, -90, 180, 90]}, "duration": "1d"},
    "SRQ": {"t": BEGIN + 86_400_000, "region": {"box": [-180, -90, 180, 90]}, "duration": "1d"},
    "CKQ": {"t": BEGIN, "at": [0, 0], "k": 10, "window": "1s", "duration": "1d"},
    "CTQ": {"t": BEGIN, "region": {"box": [-180, -90, 180, 90]}, "k": 10, "window": "1s", "step": 10, "duration": "1d"},
}


def write_input(folder: Path, objects: int, queries: int, kind: str) -> None:
    """An object a millisecond, anywhere, of 6 of 500 words; and queries of one type."""
    chance = random.Random(1)
    words = [f"w{i}" for i in range(500)]
    with (folder / "objects.jsonl").open("w") as file:
        for i in range(objects):
            place = {"lon": round(chance.uniform(-180, 180), 4), "lat": round(chance.uniform(-90, 90), 4)}
            record = {"id": f"o{i:07d}", "t": BEGIN + i, **place, "text": " ".join(chance.choices(words, k=6))}
            file.write(json.dumps(record) + "\n")
    with (folder / "queries.jsonl").open("w") as file:
        for i in range(queries):
            file.write(json.dumps({"id": f"q{i:05d}", "type": kind, **TEMPLATES[kind]}) + "\n")


def memory_of_tree(pid: int) -> int:
    """PSS of a process and all under it, bytes."""
    total, waiting = 0, [pid]
    while waiting:
        folder = Path("/proc") / str(waiting.pop())
        try:
            waiting += [int(child) for each in folder.glob("task/*/children") for child in each.read_text().split()]
            rollup = (folder / "smaps_rollup").read_text()
        except (OSError, ValueError):  # it has ended
            continue
        total += sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def main() -> int:
    """Run once; the exit status is that of the run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--type", choices=sorted(TEMPLATES), default="CRQ", dest="kind")
    parser.add_argument("--folder", type=Path, help="where input and results are; default: a temporary one")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="memory-", dir=options.folder))
    try:
        write_input(folder, options.objects, options.queries, options.kind)
        files = ["--objects", folder / "objects.jsonl", "--queries", folder / "queries.jsonl"]
        settings = ["--output", folder / "output", "--epoch", options.objects + options.queries]
        began, most = time.monotonic(), 0
        command = [sys.executable, "-m", "spatialstream", "run", *map(str, [*files, *settings])]
        with subprocess.Popen(command) as process:
            while process.poll() is None:
                most = max(most, memory_of_tree(process.pid))
                time.sleep(0.25)
        size = sum(path.stat().st_size for path in (folder / "output" / "results").glob("*.jsonl"))
        print(
            f"{size / 1e6:,.0f} MB of results, {time.monotonic() - began:,.0f} s, {most >> 20:,} MiB of memory at most"
        )
        return process.returncode
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())

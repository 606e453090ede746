"""Runs everything in full length, in parts: ``python -m tests.gate.complete [PART...]`` (``make test-all PARTS=...``).

Each part ends within 30 minutes on two cores, and runs separately, so a complete run may take several evenings. A
failed part does not stop the others. The minutes and the outcome of each part are kept in
``bench-output/complete.json``, with the commit, until the part is run again; the table at the end shows all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT = Path("bench-output/complete.json")
MINUTES = 30.0
"""So long a part may take."""

TIMEOUT = 1_500
"""Seconds that one test may take: a property of a whole stream is tried a hundred times."""

LENGTH = {
    "HYPOTHESIS_PROFILE": "explore",
    "SPATIALSTREAM_LOAD_SECONDS": "600",
    "SPATIALSTREAM_FUZZ_MESSAGES": "100000",
}
"""Environment of tests in full length."""


@dataclass(frozen=True)
class Part:
    """A part of the complete run.

    Attributes:
        targets: targets of make, run first.
        paths: tests to run.
        without: tests below ``paths`` that belong to other parts.
        workers: files of tests that run at a time.
        split: whether tests of one file also run at a time, where a few files take most of the part's time.
        arguments: ``ARGS`` of the targets.
    """

    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    workers: int = 1
    split: bool = False
    arguments: str = ""

    def run(self, name: str) -> int:
        """Run the part with its output on the screen; the first exit status that is not 0, or 0."""
        runs = [["make", "--no-print-directory", target, f"ARGS={self.arguments}"] for target in self.targets]
        if self.paths:
            spread = ["worksteal"] if self.split else ["loadfile", "--no-loadscope-reorder"]
            parallel = ["-n", str(self.workers), "--dist", *spread]
            left = [f"--ignore={path}" for path in self.without]
            suite = [sys.executable, "-m", "tests.gate.suite", f"complete-{name}", *self.paths, *left]
            runs.append([*suite, *(parallel if self.workers > 1 else []), "--durations=25", f"--timeout={TIMEOUT}"])
        statuses = [subprocess.run(run, check=False, env=os.environ | LENGTH).returncode for run in runs]
        return next((status for status in statuses if status), 0)


_KERNELS = ("tests/unit/index", "tests/unit/local", "tests/unit/model", "tests/unit/records")
_IN = "--output bench-output/complete-"
_STREAMS = ("tests/unit/stream",)
_STAGES = ("tests/unit/stages",)
_EXACT = tuple(f"tests/unit/stream/test_{name}.py" for name in ("stream", "kinds_of_index", "changing_kinds", "copies"))
_LONG = tuple(f"tests/unit/stream/test_{name}.py" for name in ("leadership", "placed_queries", "row_counts"))
_FAULTS = tuple(
    f"tests/cluster/test_{name}.py"
    for name in ("executors", "faults", "in_transit", "many_followers", "restart", "topics")
)
_QUORUMS = ("tests/cluster/test_quorums.py",)
_ROWS = tuple(
    f"tests/cluster/test_{name}.py"
    for name in ("declared", "exact", "object_storage", "object_streams", "placed_queries", "security")
)

PARTS: dict[str, Part] = {
    "checks": Part(targets=("lint", "docs", "demo")),
    "kernels": Part(paths=_KERNELS, workers=2),
    "exactness": Part(paths=_EXACT[:1], workers=2, split=True),
    "exactness-kinds": Part(paths=_EXACT[1:2], workers=2, split=True),
    "exactness-changing": Part(paths=_EXACT[2:3], workers=2, split=True),
    "exactness-copies": Part(paths=_EXACT[3:], workers=2, split=True),
    "exactness-others": Part(paths=_LONG, workers=2, split=True),
    "streams": Part(paths=_STREAMS, without=(*_EXACT, *_LONG), workers=2),
    "stages": Part(paths=_STAGES, workers=2, split=True),
    "unit": Part(paths=("tests/unit",), without=(*_KERNELS, *_STREAMS, *_STAGES), workers=2),
    "integration": Part(paths=("tests/contracts", "tests/integration"), workers=2),
    "cluster": Part(paths=("tests/cluster",), without=(*_FAULTS, *_QUORUMS, *_ROWS), workers=2),
    "cluster-faults": Part(paths=_FAULTS, workers=2),
    "cluster-quorums": Part(paths=_QUORUMS),
    "cluster-rows": Part(paths=_ROWS, workers=2),
    "browser": Part(targets=("test-browser",)),
    "charts": Part(targets=("test-charts",)),
    "api": Part(targets=("test-api",)),
    "e2e": Part(targets=("e2e",)),
    "bench": Part(
        targets=("bench",),
        arguments=f"decode index crq polygons where pairs ckq_ctq settling segment best fields --no-growth {_IN}bench",
    ),
    "bench-streams": Part(
        targets=("bench",),
        arguments="pipeline actors words limits scale rebalance asked signatures gateway --no-growth "
        f"{_IN}bench-streams",
    ),
    "bench-live": Part(targets=("bench",), arguments=f"live {_IN}bench-live"),
    "bench-growth": Part(targets=("bench",), arguments=f"--no-figures {_IN}bench-growth"),
}
"""All parts, in the order in which they run."""


def outcome(began: float, status: int, commit: str) -> dict[str, Any]:
    """What is kept of a part that has just ended."""
    return {"minutes": round((time.monotonic() - began) / 60, 1), "status": status, "commit": commit}


def table(outcomes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The lines of the table of all parts that have been run, with those that have not."""
    lines = [f"{'part':20}{'min':>6}  outcome"]
    for name in PARTS:
        if (found := outcomes.get(name)) is None:
            lines.append(f"{name:20}{'-':>6}  not run")
            continue
        verdict = "passed" if found["status"] == 0 else f"FAILED with status {found['status']}"
        late = f", more than {MINUTES:g} minutes" if found["minutes"] > MINUTES else ""
        lines.append(f"{name:20}{found['minutes']:6.1f}  {verdict}{late} ({found['commit'][:10]})")
    return lines


def main(words: Sequence[str] | None = None) -> int:
    """Run parts as the command line says; 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.complete", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    options = parser.parse_args(words)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(PARTS)}")
    outcomes: dict[str, Any] = json.loads(OUTPUT.read_text("utf-8")) if OUTPUT.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    ran = options.parts or list(PARTS)
    for name in ran:
        print(f"\n######## {name}", flush=True)
        began = time.monotonic()
        outcomes[name] = outcome(began, PARTS[name].run(name), commit)
        OUTPUT.parent.mkdir(parents=True, exist_ok=True)
        OUTPUT.write_text(json.dumps(outcomes, indent=1) + "\n", "utf-8")
    print("", *table(outcomes), sep="\n")
    return 1 if any(outcomes[name]["status"] for name in ran) else 0


if __name__ == "__main__":
    sys.exit(main())

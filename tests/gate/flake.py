"""Runs one test many times under load, to find out why it is flaky: ``make flake NAME=... TIMES=50``."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from pathlib import Path

from tests.gate.load import load
from tests.gate.outcomes import SUMMARIES
from tests.gate.suite import run_pytest

ROOT = Path("tests")


def node_ids(name: str) -> list[str]:
    """The arguments of pytest for a name: a test id unchanged, or each file with a test function of that name."""
    if "::" in name or name.endswith(".py"):
        return [name]
    function = name.partition("[")[0]
    files = [path for path in sorted(ROOT.rglob("test_*.py")) if f"def {function}(" in path.read_text("utf-8")]
    return [str(path) for path in files]


def main() -> int:
    """Run the test repeatedly; the exit status is 1 if it failed at least once."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.flake", description=__doc__)
    parser.add_argument("name", help="a test's id (tests/unit/cli/test_cli.py::test_help) or the name of its function")
    parser.add_argument("--times", type=int, default=20, help="how often it is run (%(default)s)")
    parser.add_argument("--load", type=int, default=2, help="busy processes beside it (%(default)s)")
    options = parser.parse_args()
    ids = node_ids(options.name)
    if not ids:
        parser.error(f"no test of that name below {ROOT}/")
    only = [] if "::" in options.name or options.name.endswith(".py") else ["-k", options.name]
    reasons, seconds = Counter[str](), list[float]()
    with load(options.load):
        for number in range(1, options.times + 1):
            began = time.monotonic()
            record = run_pytest(SUMMARIES / "flake.tests.json", [*ids, *only])
            seconds.append(time.monotonic() - began)
            if record.status:
                failed = [reason for test in record.of("failed").values() for reason in test.reason]
                reasons.update(failed or [f"pytest ended with status {record.status}"])
            print(f"======== {number} of {options.times}: {'failed' if record.status else 'passed'}", flush=True)
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    print(f"{options.times} runs beside {options.load} processes: {low:.1f} to {high:.1f} s, median {middle:.1f} s")
    for reason, times in reasons.most_common():
        print(f"{times:4} x {reason}")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())

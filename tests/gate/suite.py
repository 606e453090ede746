"""Runs one suite: ``python -m tests.gate.suite NAME [--gate] [--rerun] PYTEST-ARGUMENTS``.

With ``--rerun`` each test that failed is run again by itself once the suite is over, in a process of its own. Where all
of them pass the suite has passed, and its summary names the flaky tests with the reasons. More than :data:`MOST`
failures, or a test that fails twice, fail the suite. The summary is written to ``bench-output/suites/NAME.json``
(:class:`~tests.gate.outcomes.Summary`).
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.gate.outcomes import SUMMARIES, Record, Summary

MOST = 5
"""As many failures of a suite are run again; more are no accident."""

_FAILED = 1  # pytest's exit status when tests failed; any other but 0 says that it could not run them


Run = Callable[[str, Sequence[str]], Record]
"""Runs pytest with arguments; the first word says which run it is."""


def run_pytest(record: Path, arguments: Sequence[str]) -> Record:
    """Run pytest in a process of its own, which prints as it does."""
    record.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.gate.record", "--record", str(record), *arguments]
    status = subprocess.run(command, check=False).returncode
    made = Record.read(record) if record.exists() else Record()
    made.status = status  # also when it was killed, or has failed after it had written
    return made


def judged(suite: str, run: Run, arguments: Sequence[str], again: Sequence[str] | None) -> Summary:
    """Run a suite, and again what failed.

    Args:
        suite: its name.
        run: runs pytest.
        arguments: of the whole suite.
        again: arguments beside the name of what failed when it is run again; without them nothing is.
    """
    first = run("tests", arguments)
    failed = first.of("failed")
    summary = Summary(suite, first.status, 0.0, 0.0, len(first.of("passed")), len(failed), len(first.of("skipped")))
    summary.failures = {name: list(test.reason) for name, test in failed.items()}
    if again is None or first.status != _FAILED or not 0 < len(failed) <= MOST:
        return summary
    for unit in dict.fromkeys(test.again for test in failed.values()):
        print(f"\n======== {unit} failed; once more, by itself", flush=True)
        second = run("again", [*again, unit])
        for name in [name for name, test in failed.items() if test.again == unit]:
            then = second.tests.get(name)
            reasons = [*summary.failures.pop(name), *(then.reason if then else [])]
            if second.status == 0 and then is not None and then.result == "passed":
                summary.flaky[name] = [*reasons, "run again by itself it passed"]
            else:
                summary.failures[name] = [*reasons, "run again by itself it failed too"]
    summary.failed = len(summary.failures)
    summary.passed += len(summary.flaky)
    summary.status = _FAILED if summary.failures else 0
    return summary


def main(words: Sequence[str] | None = None) -> int:
    """Run a suite as the command line says; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.gate.suite", description="Run one suite of tests.")
    parser.add_argument("--gate", action="store_true", help="only the tests that are marked 'gate'")
    parser.add_argument("--rerun", action="store_true", help="run again by itself what failed")
    parser.add_argument("suite", help="its name")
    options, arguments = parser.parse_known_args(words)
    part = ["-m", "gate"] if options.gate else []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it; tests send it
    began = time.monotonic()
    summary = judged(
        options.suite,
        lambda which, given: run_pytest(SUMMARIES / f"{options.suite}.{which}.json", given),
        [*part, *arguments],
        part if options.rerun else None,
    )
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary.seconds, summary.processor = time.monotonic() - began, spent.ru_utime + spent.ru_stime
    summary.write(SUMMARIES)
    for name, reasons in summary.flaky.items():
        print(f"flaky: {name}", *(f"    {reason}" for reason in reasons), sep="\n")
    return summary.status


if __name__ == "__main__":
    sys.exit(main())

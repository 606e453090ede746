"""Report of a run of the gate: ``python -m tests.gate.report STATUS SECTIONS SECONDS``.

Reads the summaries of the suites and the times of the sections, writes ``bench-output/gate.json`` and
``bench-output/flaky.txt``, and prints a table, the flaky tests and the number of passed tests. It depends only on
Python, so it also reports a run whose setup failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gate.outcomes import SUMMARIES, Summary

OUTPUT = Path("bench-output")


@dataclass(frozen=True)
class Section:
    """A section of the gate: name, start and duration in seconds, and exit status."""

    name: str
    began: int
    seconds: int
    status: int

    @classmethod
    def read(cls, path: Path) -> list[Section]:
        """Read the sections of a file with one line each: status, start, seconds and name, separated by tabs."""
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        fields = [line.split("\t", 3) for line in lines]
        return [cls(name, int(began), int(seconds), int(status)) for status, began, seconds, name in fields]


def verdict(
    commit: str, changed: bool, status: int, seconds: int, sections: Iterable[Section], suites: Iterable[Summary]
) -> dict[str, Any]:
    """The content of ``gate.json``.

    Args:
        commit: the commit that was checked out.
        changed: whether files differ from it.
        status: exit status of the run.
        seconds: time that it took, parts included that a signal has ended.
        sections: the sections of the run.
        suites: the suites that have run.
    """
    ran = list(suites)
    return {
        "commit": commit,
        "changed": changed,
        "verdict": "passed" if status == 0 else "failed",
        "minutes": _minutes(seconds),
        "sections": {each.name: {"minutes": _minutes(each.seconds), "status": each.status} for each in sections},
        "suites": {
            each.suite: {
                "minutes": _minutes(each.seconds),
                "processorMinutes": _minutes(each.processor),
                "passed": each.passed,
                "failed": each.failed,
                "skipped": each.skipped,
            }
            for each in ran
        },
        "flaky": {name: reasons for each in ran for name, reasons in each.flaky.items()},
        "failures": {name: reasons for each in ran for name, reasons in each.failures.items()},
    }


def told(found: Mapping[str, Any]) -> list[str]:
    """The last lines of the output of a run; the very last one has the format of test runners."""
    lines = [f"{'':44}{'min':>6}{'cpu min':>9}{'passed':>8}{'failed':>8}{'skipped':>9}"]
    lines += [f"{name:44}{each['minutes']:6.1f}" for name, each in found["sections"].items()]
    for name, each in found["suites"].items():
        numbers = f"{each['passed']:8}{each['failed']:8}{each['skipped']:9}"
        lines.append(f"  {name:42}{each['minutes']:6.1f}{each['processorMinutes']:9.1f}{numbers}")
    for kind, tests in (("flaky", found["flaky"]), ("failed", found["failures"])):
        for name, reasons in tests.items():
            lines += [f"{kind}: {name}", *(f"    {reason}" for reason in reasons)]
    state = f"{found['commit'][:10]}{' with changes' if found['changed'] else ''}"
    lines.append(f"gate: {found['verdict']} in {found['minutes']:.1f} min, {state}")
    passed, failed = (sum(each[what] for each in found["suites"].values()) for what in ("passed", "failed"))
    return [*lines, f"{passed} passed, {failed} failed"]


def main(words: Sequence[str]) -> None:
    """Write and print the outcome of the run."""
    status, seconds, sections = int(words[0]), int(words[2]), Section.read(Path(words[1]))
    suites = [Summary.read(path) for path in sorted(SUMMARIES.glob("*.json")) if path.name.count(".") == 1]
    found = verdict(_git("rev-parse", "HEAD"), bool(_git("status", "--porcelain")), status, seconds, sections, suites)
    OUTPUT.mkdir(exist_ok=True)
    (OUTPUT / "gate.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    flaky = [line for name, reasons in found["flaky"].items() for line in (name, *(f"    {each}" for each in reasons))]
    (OUTPUT / "flaky.txt").write_text("".join(f"{line}\n" for line in flaky), "utf-8")
    print(*told(found), sep="\n")


def _minutes(seconds: float) -> float:
    return round(seconds / 60, 1)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])

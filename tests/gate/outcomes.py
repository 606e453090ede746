"""Outcomes of tests, of a run of pytest and of a suite, exchanged between the modules of this package as JSON.

It depends only on Python, so that a run whose setup failed can be reported too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

SUMMARIES = Path("bench-output/suites")
"""Folder of the suites' summaries, relative to the root of the repository."""


@dataclass
class Outcome:
    """The outcome of one test.

    Attributes:
        result: ``passed``, ``failed`` or ``skipped``; an error during setup or teardown is a failure.
        seconds: duration, including its own fixtures, and shared fixtures that it is the first or last one to use.
        processor: CPU time of the worker during the test in seconds, including child processes that have ended.
        again: what to run in order to rerun the test: itself, or the file of a story.
        reason: the last line of each failure.
    """

    result: str = "passed"
    seconds: float = 0.0
    processor: float = 0.0
    again: str = ""
    reason: list[str] = field(default_factory=list)


@dataclass
class Record:
    """The outcome of a run of pytest.

    Attributes:
        status: its exit status.
        tests: outcomes by node id; collection errors are listed by the id of the collector.
    """

    status: int = 0
    tests: dict[str, Outcome] = field(default_factory=dict)

    def of(self, result: str) -> dict[str, Outcome]:
        """The tests with one result."""
        return {name: test for name, test in self.tests.items() if test.result == result}

    def write(self, path: Path) -> None:
        """Write the record to a file, creating its folder."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read what :meth:`write` wrote."""
        content = json.loads(path.read_text("utf-8"))
        return cls(content["status"], {name: Outcome(**test) for name, test in content["tests"].items()})


@dataclass
class Summary:
    """The outcome of a suite.

    Attributes:
        suite: its name.
        status: its exit status, 0 if it passed.
        seconds: its duration, including reruns.
        processor: CPU time of all its processes in seconds.
        passed, failed, skipped: numbers of tests; flaky tests count as passed.
        flaky: by test, the reasons of its first failure and the outcome of the rerun.
        failures: the same for tests that fail the suite.
    """

    suite: str
    status: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    flaky: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the summary into a folder, which is created if missing."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.suite}.json").write_text(json.dumps(asdict(self), indent=1), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Read what :meth:`write` wrote."""
        return cls(**json.loads(path.read_text("utf-8")))

"""What became of tests, of a run of pytest and of a suite, as the parts of this package hand it on, in JSON.

It needs nothing but Python, so that a run which could not set up can be reported, too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

SUMMARIES = Path("bench-output/suites")
"""Where the suites' summaries are, below the root of the repository."""


@dataclass
class Outcome:
    """What became of one test.

    Attributes:
        result: ``passed``, ``failed`` or ``skipped``; an error while it is set up or torn down is a failure.
        seconds: with its own fixtures, and those that it is the first or last one to use.
        processor: seconds of processor time of the worker meanwhile, with processes that it has ended.
        again: what is run to run it again: itself, or the file of a story.
        reason: the last line of each failure.
    """

    result: str = "passed"
    seconds: float = 0.0
    processor: float = 0.0
    again: str = ""
    reason: list[str] = field(default_factory=list)


@dataclass
class Record:
    """What became of a run of pytest.

    Attributes:
        status: its exit status.
        tests: by node id; what could not be collected is there by the id of what was collected.
    """

    status: int = 0
    tests: dict[str, Outcome] = field(default_factory=dict)

    def of(self, result: str) -> dict[str, Outcome]:
        """The tests with one result."""
        return {name: test for name, test in self.tests.items() if test.result == result}

    def write(self, path: Path) -> None:
        """Write it to a file, whose folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read what :meth:`write` wrote."""
        content = json.loads(path.read_text("utf-8"))
        return cls(content["status"], {name: Outcome(**test) for name, test in content["tests"].items()})


@dataclass
class Summary:
    """What became of a suite.

    Attributes:
        suite: its name.
        status: its exit status, 0 when it passed.
        seconds: how long it took, with what was run again.
        processor: seconds of processor time of all its processes.
        passed, failed, skipped: numbers of tests; a flaky one has passed.
        flaky: by test, what it failed by at first and what became of it then.
        failures: the same of those that fail the suite.
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
        """Write it into the folder of summaries, which is made."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.suite}.json").write_text(json.dumps(asdict(self), indent=1), "utf-8")

    @classmethod
    def read(cls, path: Path) -> Summary:
        """Read what :meth:`write` wrote."""
        return cls(**json.loads(path.read_text("utf-8")))

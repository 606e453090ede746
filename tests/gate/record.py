"""A pytest plugin that records the outcome of each test: ``pytest -p tests.gate.record --record FILE``.

The file is a :class:`~tests.gate.outcomes.Record` as JSON. It works with pytest-xdist, whose workers add properties to
each report.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gate.outcomes import Outcome, Record

_AGAIN = "again"
_PROCESSOR = "processor"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--record``."""
    parser.addoption("--record", metavar="FILE", type=Path, help="write the outcome of each test to a file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder in the process that receives the reports of all tests."""
    path = config.getoption("--record")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record the CPU time at the beginning of a test."""
    item.stash[_BEGAN] = _processor_time()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add properties that are known only to the process that runs the test."""
    report = yield
    story = item.get_closest_marker("story") is not None
    report.user_properties.append((_AGAIN, item.nodeid.partition("::")[0] if story else item.nodeid))
    report.user_properties.append((_PROCESSOR, _processor_time() - item.stash[_BEGAN]))
    return report


class _Recorder:
    """Collects reports, and writes them at the end."""

    def __init__(self, path: Path) -> None:
        self._path, self._record = path, Record()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Process the report of a phase of a test."""
        test = self._record.tests.setdefault(report.nodeid, Outcome(again=report.nodeid))
        known = dict(report.user_properties)
        test.seconds += report.duration
        test.processor = known.get(_PROCESSOR, test.processor)
        test.again = known.get(_AGAIN, test.again)
        self._judge(test, report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Process a collection error."""
        if report.failed:
            self._judge(self._record.tests.setdefault(report.nodeid, Outcome(again=report.nodeid)), report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record."""
        self._record.status = int(exitstatus)
        self._record.write(self._path)

    @staticmethod
    def _judge(test: Outcome, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            test.result = "failed"
            test.reason += list(_reason(report))
        elif report.skipped and test.result == "passed":
            test.result = "skipped"


_BEGAN = pytest.StashKey[float]()


def _processor_time() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _reason(report: pytest.TestReport | pytest.CollectReport) -> Iterator[str]:
    """Phase, location and message of a failure, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = f"{crash.path}:{crash.lineno}: {crash.message}" if crash else str(report.longrepr or "no reason is known")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    yield f"{getattr(report, 'when', None) or 'collect'}: {' | '.join(lines)[:600]}"

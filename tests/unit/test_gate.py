"""What runs the suites: a failure is run again by itself, flaky tests are named, and what is broken fails."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.benchmarks.__main__ import NAMES
from tests.gate import complete, flake, report
from tests.gate.complete import PARTS
from tests.gate.outcomes import SUMMARIES, Outcome, Record, Summary
from tests.gate.suite import MOST, judged, main

ROOT = Path(__file__).parents[2]


class Runs:
    """Plays pytest: gives one record after the other, and keeps the arguments."""

    def __init__(self, *records: Record) -> None:
        self._records, self.calls = list(records), list[Sequence[str]]()

    def __call__(self, which: str, arguments: Sequence[str]) -> Record:
        self.calls.append(arguments)
        assert which == ("again" if len(self.calls) > 1 else "tests")
        return self._records.pop(0)


def record(status: int, **results: str) -> Record:
    """A run of tests with one result each, where a failure's reason is the test's name."""
    tests = {
        name: Outcome(result, again=f"file::{name}", reason=[f"{name} said"] if result == "failed" else [])
        for name, result in results.items()
    }
    return Record(status, tests)


def test_what_passes_is_run_once():
    runs = Runs(record(0, a="passed", b="skipped"))

    summary = judged("s", runs, ["x"], [])

    assert (summary.status, summary.passed, summary.failed, summary.skipped) == (0, 1, 0, 1)
    assert runs.calls == [["x"]]


def test_a_failure_that_passes_by_itself_is_named_as_flaky():
    runs = Runs(record(1, a="failed", b="passed"), record(0, a="passed"))

    summary = judged("s", runs, ["x"], ["-m", "gate"])

    assert (summary.status, summary.passed, summary.failed) == (0, 2, 0)
    assert summary.flaky == {"a": ["a said", "run again by itself it passed"]}
    assert runs.calls == [["x"], ["-m", "gate", "file::a"]]


def test_what_fails_twice_fails_beside_what_is_flaky():
    runs = Runs(record(1, a="failed", b="failed"), record(1, a="failed"), record(0, b="passed"))

    summary = judged("s", runs, [], [])

    assert (summary.status, summary.failed) == (1, 1)
    assert summary.failures == {"a": ["a said", "a said", "run again by itself it failed too"]}
    assert list(summary.flaky) == ["b"]


def test_without_reruns_what_fails_fails():
    assert judged("s", Runs(record(1, a="failed")), [], None).status == 1


@pytest.mark.parametrize(("failures", "runs_again"), [(MOST, MOST), (MOST + 1, 0)])
def test_many_failures_are_no_accident(failures, runs_again):
    names = [f"t{number}" for number in range(failures)]
    runs = Runs(record(1, **dict.fromkeys(names, "failed")), *(record(0, **{name: "passed"}) for name in names))

    assert (judged("s", runs, [], []).status == 0) == (runs_again > 0)
    assert len(runs.calls) == 1 + runs_again


@pytest.mark.parametrize("status", [2, 3, 4, 5, -9])
def test_a_run_that_could_not_run_its_tests_is_not_mended_by_a_rerun(status):
    runs = Runs(record(status, a="failed"))

    assert judged("s", runs, [], []).status == status
    assert len(runs.calls) == 1


def test_a_rerun_that_is_killed_or_skips_the_test_is_no_pass():
    for again in (Record(-9), record(0, a="skipped"), record(5)):
        assert judged("s", Runs(record(1, a="failed"), again), [], []).status == 1


def test_of_a_story_the_whole_file_is_run_again():
    tests = {"f::a": Outcome("failed", again="f", reason=["no"]), "f::b": Outcome("failed", again="f", reason=["no"])}
    again = {name: Outcome("passed", again="f") for name in tests}
    runs = Runs(Record(1, tests), Record(0, again))

    assert judged("s", runs, [], []).status == 0
    assert runs.calls == [[], ["f"]]


INI = """
[pytest]
addopts = -p no:schemathesis -p no:hypothesispytest
markers =
    gate
    story
"""
TESTS = """
import pathlib
import pytest

def test_passes():
    pass

def test_fails_at_first():
    mark = pathlib.Path("mark")
    if not mark.exists():
        mark.touch()
        assert 1 == 2, "only the first time"

@pytest.fixture
def broken():
    yield
    raise OSError("in the teardown")

@pytest.mark.skipif(not pathlib.Path("break").exists(), reason="nothing is broken")
def test_breaks(broken):
    raise ValueError("always")

@pytest.mark.gate
@pytest.mark.story
def test_in_the_gate():
    assert pathlib.Path("mark").exists(), "it comes later"
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a file of tests, in which suites are run for real."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(INI)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_real_run_names_flaky_tests(place, capfd, workers):
    assert main(["unit", "--rerun", *workers, "-k", "passes or first or breaks", "test_it.py"]) == 0

    summary = Summary.read(SUMMARIES / "unit.json")
    (name,) = summary.flaky
    assert name == "test_it.py::test_fails_at_first"
    assert "test_it.py:" in summary.flaky[name][0]
    assert "only the first time" in summary.flaky[name][0]
    assert (summary.passed, summary.failed, summary.skipped) == (2, 0, 1)
    assert summary.seconds > 0
    assert summary.processor > 0
    assert f"flaky: {name}" in capfd.readouterr().out


def test_a_real_run_with_a_broken_test_fails_with_both_reasons(place):
    (place / "break").touch()

    assert main(["unit", "--rerun", "-k", "breaks", "test_it.py"]) == 1

    (reasons,) = Summary.read(SUMMARIES / "unit.json").failures.values()
    assert ["ValueError: always" in reasons[0], "OSError: in the teardown" in reasons[1]] == [True, True]
    assert len(reasons) == 5


def test_the_part_in_the_gate_is_said_by_the_marker(place):
    assert main(["unit", "--gate", "--rerun", "test_it.py"]) == 1

    summary = Summary.read(SUMMARIES / "unit.json")
    assert list(summary.failures) == ["test_it.py::test_in_the_gate"]
    again = Record.read(SUMMARIES / "unit.again.json")
    assert [each.again for each in again.tests.values()] == ["test_it.py"], "of a story the file, of it the gate's part"


def test_a_file_that_cannot_be_read_fails(place):
    (place / "test_it.py").write_text("import nothing_of_that_name\n")

    assert main(["unit", "--rerun", "test_it.py"]) != 0


def test_the_report_says_what_became_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Summary("tests", 0, 600.0, 900.0, 5000, 0, 3, flaky={"a::b": ["call: x.py:1: boom", "it passed"]}).write(SUMMARIES)
    Summary("cluster", 1, 60.0, 90.0, 20, 1, 0, failures={"c::d": ["call: y.py:2: no"]}).write(SUMMARIES)
    Record(0, {}).write(SUMMARIES / "tests.tests.json")
    (tmp_path / "sections").write_text("0\t0\t30\tlint\n1\t30\t690\tall tests\n")

    report.main(["1", str(tmp_path / "sections"), "725"])

    found = json.loads((tmp_path / "bench-output/gate.json").read_text())
    assert (found["verdict"], found["minutes"]) == ("failed", 12.1)
    assert found["suites"]["tests"] == {
        "minutes": 10.0,
        "processorMinutes": 15.0,
        "passed": 5000,
        "failed": 0,
        "skipped": 3,
    }
    assert found["sections"]["all tests"] == {"minutes": 11.5, "status": 1}
    assert (tmp_path / "bench-output/flaky.txt").read_text() == "a::b\n    call: x.py:1: boom\n    it passed\n"
    printed = capsys.readouterr().out.splitlines()
    assert "flaky: a::b" in printed
    assert "failed: c::d" in printed
    assert printed[-1] == "5020 passed, 1 failed"


def test_the_report_of_a_run_that_could_not_begin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    report.main(["1", str(tmp_path / "sections"), "3"])

    assert json.loads((tmp_path / "bench-output/gate.json").read_text())["verdict"] == "failed"


def test_a_test_is_found_by_its_name(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert flake.node_ids("tests/unit/test_gate.py::test_x") == ["tests/unit/test_gate.py::test_x"]
    assert flake.node_ids("test_a_test_is_found_by_its_name[x]") == ["tests/unit/test_gate.py"]
    assert flake.node_ids("test_of_no_such_name") == []


def test_every_test_is_in_one_part_of_the_complete_run():
    targets = {
        "test-browser": "tests/browser",
        "test-charts": "tests/charts",
        "test-api": "tests/api",
        "e2e": "tests/e2e",
    }
    seen: list[Path] = []
    for part in PARTS.values():
        for place in [*part.paths, *(targets[target] for target in part.targets if target in targets)]:
            files = [ROOT / place] if (ROOT / place).is_file() else list((ROOT / place).rglob("test_*.py"))
            seen += [path for path in files if not any(path.is_relative_to(ROOT / left) for left in part.without)]
    assert sorted(seen) == sorted((ROOT / "tests").rglob("test_*.py"))


def test_every_benchmark_is_in_one_part_of_the_complete_run():
    words = [word for part in PARTS.values() if "bench" in part.targets for word in part.arguments.split()]
    assert sorted(word for word in words if word in NAMES) == sorted(NAMES)


def test_the_complete_run_keeps_the_outcome_of_each_part(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").write_text("good:\n\t@echo profile $$HYPOTHESIS_PROFILE\nbad:\n\t@exit 3\n")
    monkeypatch.setattr(complete, "PARTS", {name: complete.Part(targets=(name,)) for name in ("bad", "good")})
    assert complete.main(["bad"]) == 1
    assert complete.main(["good"]) == 0  # what failed before is in the table, and is no failure of this run
    bad, good = capsys.readouterr().out.splitlines()[-2:]
    assert bad.startswith("bad ")
    assert "FAILED with status 2" in bad
    assert good.startswith("good ")
    assert "passed" in good
    assert json.loads((tmp_path / complete.OUTPUT).read_text())["good"]["status"] == 0


def test_a_part_that_nobody_knows_is_refused(capsys):
    with pytest.raises(SystemExit):
        complete.main(["clusters"])
    assert "clusters: not one of checks, kernels" in capsys.readouterr().err

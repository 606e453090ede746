"""Benchmarks of two commits in turn: what is compared, and which commit's code runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.compare import main, ratios

_BENCHMARKS = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*")
parser.add_argument("--no-growth", action="store_true")
parser.add_argument("--output", type=pathlib.Path)
options = parser.parse_args()
if "slow" in options.names:
    parser.error("slow: not a benchmark")
rows = [{"name": "search", "value": VALUE, "unit": "ms"}, {"name": "build", "value": 10, "unit": "objects/s"}]
(options.output / "figures.json").write_text(json.dumps({name: rows for name in options.names}))
"""


def figures(**values: float) -> dict[str, list[dict[str, object]]]:
    units = {"rate": "objects/s", "time": "ms"}
    return {"some": [{"name": name, "value": value, "unit": units[name]} for name, value in values.items()]}


def test_the_best_of_each_commit_is_compared() -> None:
    before, now = [figures(rate=100, time=2.0), figures(rate=80, time=4.0)], [figures(rate=50, time=1.0)]
    found = ratios(before, now)
    assert [(each.name, each.before, each.now, each.ratio) for each in found] == [
        ("some: rate", 100, 50, 0.5),
        ("some: time", 2.0, 1.0, 2.0),
    ]


def test_what_only_one_commit_has_is_left_out() -> None:
    assert [each.name for each in ratios([figures(rate=1)], [figures(rate=1, time=1.0)])] == ["some: rate"]
    assert ratios([figures(time=0.0)], [figures(time=1.0)]) == []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits: with the second one a search takes twice as long."""
    module = tmp_path / "tests" / "benchmarks" / "__main__.py"
    module.parent.mkdir(parents=True)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for value in (1.0, 2.0):
        module.write_text(_BENCHMARKS.replace("VALUE", json.dumps(value)))
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", f"It takes {value}"], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_both_commits_run_and_nothing_is_left(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["HEAD~1", "fast", "--rounds", "2"]) == 1
    search, build = capsys.readouterr().out.splitlines()
    assert search.split() == ["fast:", "search", "1.0", "2.0", "ms", "0.50", "worse"]
    assert build.split() == ["fast:", "build", "10.0", "10.0", "objects/s", "1.00"]
    trees = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(trees.splitlines()) == 1
    assert main(["HEAD", "fast", "--rounds", "1"]) == 0
    assert main(["HEAD~1", "fast", "--rounds", "1", "--least", "0.5"]) == 0


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["", "fast"], "'' is no commit of this repository"),
        (["HEAD~7", "fast"], "'HEAD~7' is no commit of this repository"),
        (["HEAD~1", "slow"], "the benchmarks of HEAD~1 failed"),
    ],
)
def test_what_cannot_be_compared_is_said(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err
    trees = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True).stdout
    assert len(trees.splitlines()) == 1

"""Benchmarks follow the code that they measure: `make bench` runs rarely, so here each of their modules is imported.

Those with options show them.
"""

import importlib
import sys
from pathlib import Path

import pytest

from tests.benchmarks import bench_limits

ROOT = Path(__file__).parents[2]

APART = {"json_by_msgspec"}
"""Those that need a package which nothing else here needs, and say so."""

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "tests" / "benchmarks").rglob("*.py")
    if path.stem not in APART and path.stem != "__main__"
)


def test_there_are_some() -> None:
    assert "tests.benchmarks.bench_live" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_imported(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.parametrize("name", ["live", "loads", "rebalance", "soak"])
def test_it_shows_its_options(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"tests.benchmarks.bench_{name}")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


def test_drivers_do_turns_without_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_limits, "TURNS", 1)
    assert [figure["value"] > 0 for figure in bench_limits.turns(4, 2)] == [True, True]

"""The layers of the package, as pyproject.toml draws them."""

from pathlib import Path

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[2]


def test_no_layer_imports_a_higher_one(monkeypatch):
    monkeypatch.chdir(ROOT)

    assert lint_imports(config_filename="pyproject.toml", cache_dir=None) == EXIT_STATUS_SUCCESS

"""A fake kubectl, and an environment that names no stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.cli.live import VARIABLES
from tests.unit.cli.kubectl import Kubectl


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    return Kubectl.install(tmp_path / "kubectl", monkeypatch)

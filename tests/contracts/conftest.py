"""Implementations of each contract that need no server; ``tests/cluster/test_contracts.py`` adds the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.harness import Channels, FileSinks, MemoryChannels, MemorySinks, MemorySources, Sinks, Sources


@pytest.fixture(params=[MemorySources])
def sources(request: pytest.FixtureRequest) -> Sources:
    made: Sources = request.param()
    return made


@pytest.fixture(params=[MemoryChannels])
def channels(request: pytest.FixtureRequest) -> Channels:
    made: Channels = request.param()
    return made


@pytest.fixture(params=[MemorySinks, FileSinks])
def sinks(request: pytest.FixtureRequest, tmp_path: Path) -> Sinks:
    made: Sinks = FileSinks(tmp_path) if request.param is FileSinks else request.param()
    return made

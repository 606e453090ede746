"""The contract of every engine: inline, and actors in threads, in processes, and behind TLS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spatialstream.stream.engine import Engine, Inline
from tests.contracts.engine_contract import EngineContract
from tests.contracts.engines import Processes, Threads, engine_of, own_address, world


@pytest.fixture(scope="module", params=["inline", "one thread", "threads", "IPv6", "TLS", "one process", "processes"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "inline":
        yield Inline(world())
        return
    launchers = {
        "one thread": Threads(1),
        "threads": Threads(3),
        "IPv6": Threads(2, "::1"),
        "TLS": Threads(2, own_address()),
        "one process": Processes(1),
        "processes": Processes(3),
    }
    with engine_of(launchers[request.param]) as made:
        yield made


class TestEngine(EngineContract):
    pass

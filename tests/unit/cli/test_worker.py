"""A worker that is started while ZooKeeper is away can be asked as soon as it is back."""

from __future__ import annotations

from typing import Any

import pytest

from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.cli.worker import opening
from spatialstream.index.version import build
from spatialstream.model.errors import Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.model.terms import DEFAULT_RULE
from spatialstream.store.memory import MemoryStore


class Away(MemoryStore):
    """A store that cannot be reached at first."""

    away = True
    saved = 0

    def save_statistics(self, *given: Any) -> None:
        if self.away:
            raise Unavailable("nobody is there")
        self.saved += 1
        super().save_statistics(*given)


def test_the_query_endpoint_is_published_once_as_soon_as_the_store_is_there() -> None:
    store, called = Away(), list[int]()
    store.create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 1, 2))
    query_endpoint = QueryEndpoint.of(
        {"address": "127.0.0.1:1", "secret": "s", "certificate": None}, WGS84, DEFAULT_RULE
    )
    follow = opening(query_endpoint, store, lambda: called.append(1))
    for _ in range(2):
        with pytest.raises(Unavailable):
            follow()
    store.away = False
    for _ in range(3):
        follow()
    assert (store.saved, len(called)) == (1, 3)
    assert QueryEndpoint.read(store) == query_endpoint

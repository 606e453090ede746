"""A worker that is started while ZooKeeper is away can be asked as soon as it is back; settings that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spatialstream.actors.query_endpoint import QueryEndpoint
from spatialstream.cli import main
from spatialstream.cli.worker import opening
from spatialstream.index.version import build
from spatialstream.model.errors import Unavailable
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.model.terms import DEFAULT_RULE, SUBSCRIPTIONS, TermRule
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


@pytest.mark.parametrize("name", ["retention", "archive"])
def test_a_stream_of_subscriptions_keeps_nothing(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    value = {"retention": "1h", "archive": str(tmp_path / "archive")}[name]
    command = ["worker", "--stream", "s", "--checkpoint", str(tmp_path / "state"), "--serves", SUBSCRIPTIONS]
    assert main([*command, f"--{name}", value]) == 2
    told = f"{name}: a stream that serves subscriptions stores no objects; leave it out, or serve everything"
    assert told in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


def test_clients_are_told_what_a_stream_serves() -> None:
    rule = TermRule(serves=SUBSCRIPTIONS)
    store = MemoryStore()
    store.create(build(WGS84, ObjectBatch.of([]), QueryBatch.of([]), 1, 2))
    QueryEndpoint.of({"address": "127.0.0.1:1", "secret": "s", "certificate": None}, WGS84, rule).save(store)
    assert QueryEndpoint.read(store).rule == rule

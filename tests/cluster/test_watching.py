"""Continuous queries of a live stream, watched from Python while what answers is killed: every row once."""

from __future__ import annotations

import asyncio
import json
import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import spatialstream
from spatialstream.client import connect
from spatialstream.client.stream import Stream
from spatialstream.model.errors import SettingError
from spatialstream.model.objects import SpatialObject
from spatialstream.model.space import WGS84
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE, LiveStream, Servers

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
EACH = {"id": "each", "type": "CRQ", "region": {"box": [-180, -90, 180, 90]}, "keywords": ["news"]}
NEAREST = {"id": "nearest", "type": "CKQ", "at": [13.4, 52.5], "k": 3, "window": "10s"}


def example() -> str:
    """The one of the documentation."""
    text = PAGE.read_text("utf-8").partition("## A running stream, watched")[2]
    found = re.search(r"```py\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def opened(stream: LiveStream) -> Stream:
    return connect(stream.name, stream.servers.zookeeper.hosts, stream.connection)


def rows_of(stream: LiveStream, name: str) -> list[dict[str, Any]]:
    """All that the topic has of a query, in its order."""
    return [row for row in map(json.loads, list(stream.lines)) if row["query"] == name]


@pytest.mark.timeout(1800)
def test_what_is_watched_has_every_row_once(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [
        SpatialObject(f"o{i}", 20 * i, 13 + i % 100 / 100, 52 + i % 17 / 17, ("news", f"w{i % 9}"))
        for i in range(50_000)
    ]
    with LiveStream(servers, "watched", tmp_path, WGS84) as live, opened(live) as stream:
        sending = live.send(objects, [], rate=100.0, lasting=True)
        assert await_condition(lambda: stream.as_of() is not None, PATIENCE)

        names: dict[str, Any] = {"asyncio": asyncio}
        with monkeypatch.context() as patched:
            patched.setattr(spatialstream, "connect", lambda *given: opened(live))
            exec(example(), names)
        assert names["position"]

        found = list[dict[str, Any]]()
        with stream.watch(EACH, timeout=PATIENCE) as rows:
            found += islice(rows, 20)
            live.worker.kill()  # it does the last rounds again
            live.worker.start(timeout=PATIENCE)
            found += islice(rows, 40)
            position = rows.position
        with opened(live) as another, pytest.raises(SettingError, match="another query"):
            another.watch(EACH | {"keywords": ["w1"]}, timeout=PATIENCE)

        async def both() -> tuple[list[Any], list[Any]]:
            async with (
                stream.watch("each", after=position) as each,
                stream.watch(NEAREST, cancel=True, timeout=PATIENCE) as nearest,
            ):

                async def some() -> list[Any]:
                    return [await anext(nearest) for _ in range(10)]

                async def rest() -> list[Any]:
                    several = [await anext(each) for _ in range(10)]
                    await asyncio.to_thread(each.cancel)
                    return several + [row async for row in each]

                return await asyncio.gather(rest(), some())

        more, nearest = asyncio.run(both())
        found += more
        assert len(nearest) == 10
        live.sending.rate = 0.0
        sending.join()
        assert await_condition(lambda: len(rows_of(live, "each")) >= len(found), PATIENCE)
        assert found == rows_of(live, "each")
        assert nearest == rows_of(live, "nearest")[:10]
        assert await_condition(lambda: not stream.query("nearest").queries, PATIENCE)

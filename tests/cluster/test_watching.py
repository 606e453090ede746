"""Continuous queries of a live stream, watched from Python while what answers is killed: every row once."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import spatialstream
from spatialstream import CRQ, SRQ, WGS84, Box, SettingError, Stream, connect
from spatialstream.model.errors import Unavailable
from spatialstream.model.objects import SpatialObject
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


def has_begun(stream: Stream) -> bool:
    """Whether a stream has done a round; a moment before, its worker cannot say so."""
    with suppress(Unavailable):
        return stream.as_of() is not None
    return False


@pytest.mark.timeout(1800)
def test_what_is_watched_has_every_row_once(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [
        SpatialObject(f"o{i}", 20 * i, 13 + i % 100 / 100, 52 + i % 17 / 17, ("news", f"w{i % 9}"))
        for i in range(50_000)
    ]
    with LiveStream(servers, "watched", tmp_path, WGS84) as live, opened(live) as stream:
        sending = live.send(objects, [], rate=100.0, lasting=True)
        assert await_condition(lambda: has_begun(stream), PATIENCE)

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
        with opened(live) as another, pytest.raises(SettingError, match="id of another registered query"):
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


@pytest.mark.timeout(900)
def test_a_program_sends_registers_asks_and_cancels(servers: Servers, tmp_path: Path) -> None:
    with LiveStream(servers, "programmed", tmp_path, WGS84, idle="500ms") as live, opened(live) as stream:
        now = time.time_ns() // 1_000_000
        objects = [{"id": f"o{i}", "t": now + i, "lon": 13.4, "lat": 52.5, "text": "news"} for i in range(10)]
        with pytest.raises(SettingError, match=r"^object 1: lat: 99 is out of range"):
            stream.send([objects[0], objects[1] | {"lat": 99}])
        with pytest.raises(SettingError, match=r"^objects: t: .*they look like seconds; .*, or sure=True"):
            stream.send(objects[0] | {"t": now // 1000})

        assert stream.send(objects) == 10
        assert await_condition(lambda: has_begun(stream), PATIENCE)
        berlin = Box(13, 52, 14, 53)
        row = stream.ask(SRQ(region=berlin, duration="1h"), at_least=now + 9, timeout=PATIENCE)
        assert [each["id"] for each in row["objects"]] == [each["id"] for each in objects]
        several = stream.ask(
            [SRQ(region=berlin, duration="1h"), {"type": "SKQ", "at": [0, 0], "k": 1, "duration": "1h"}]
        )
        assert [len(each["objects"]) for each in several] == [10, 1]

        query = CRQ(id="news", region=berlin, keywords=["news"])
        record = stream.register(query, timeout=PATIENCE)
        assert stream.query("news").queries == [record]
        assert stream.register(query, timeout=PATIENCE) == record  # an identical one is no error
        with pytest.raises(SettingError, match="another registered query"):
            stream.register(CRQ(id="news", region=berlin), timeout=PATIENCE)
        unnamed = stream.register(CRQ(region=berlin), timeout=PATIENCE)
        assert [each["id"] for each in stream.queries().queries] == ["news", unnamed["id"]]

        stream.cancel("news", timeout=PATIENCE)
        assert [each["id"] for each in stream.queries().queries] == [unnamed["id"]]
        with pytest.raises(SettingError, match="no query with the id 'news' is registered"):
            stream.cancel("news", timeout=PATIENCE)

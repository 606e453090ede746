"""The operator's client of the gateway, with a real gateway over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spatialstream.client.areas import Areas
from spatialstream.client.stream import RegisteredQueries as Listed
from spatialstream.connectors.kafka import Connection
from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway as Server
from spatialstream.model.errors import Unavailable
from spatialstream_operator.gateway import Gateway, Refusal
from tests.unit.client.area_log import AreaLog
from tests.unit.gateway.http import served, serving
from tests.unit.gateway.results import opener
from tests.unit.gateway.test_openapi import Answering
from tests.unit.gateway.test_writing import CRQ, Stream
from tests.unit.operator.garbled import garbled

TOKEN = "everything-0123456789"


class Registering(Answering):
    """Queries registered with a stream that takes in what it is sent."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.areas = Areas(Connection("nowhere:1"), "geo.quakes")

    def query(self, name: str) -> Listed:
        known = self.stream.registered
        found = [{**CRQ, "id": name, "t": known[name]}] if name in known else []
        return Listed(found, 0, {}, [{"rows": 3, "last_row": 900} for _ in found])


@pytest.fixture
def stream() -> Stream:
    made = Stream()
    made.room.set()
    return made


@pytest.fixture
def gateway(stream: Stream, tmp_path: Path) -> Iterator[Gateway]:
    rights = {"name": "operator", "token": TOKEN, "rights": ["watch", "write"], "streams": ["geo.quakes", "gone"]}
    (tmp_path / "tokens").write_text(json.dumps(rights))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    behind = served("geo.quakes", lambda: Registering(stream), opener(stream.results), stream)
    with serving(Server([behind], Access(tmp_path / "tokens"), registrars=["operator"])) as client:
        yield Gateway(f"http://127.0.0.1:{client.port}/", str(tmp_path / "token"))


def test_a_query_is_registered_found_and_cancelled(gateway: Gateway, stream: Stream) -> None:
    name = "geo.floods.0123456789ab"

    async def main() -> None:
        assert await gateway.clock("geo.quakes") == 1_000
        assert await gateway.find("geo.quakes", name) is None
        assert await gateway.register("geo.quakes", {**CRQ, "id": name, "t": 7, "by": "sq/geo/floods"})
        assert stream.sent[0][0]["by"] == "sq/geo/floods"
        found = await gateway.find("geo.quakes", name)
        assert found is not None
        assert (found["query"]["id"], found["query"]["t"]) == (name, 7)
        assert found["so_far"] == {"rows": 3, "last_row": 900}
        with pytest.raises(Refusal) as refusal:
            await gateway.register("geo.quakes", {**CRQ, "id": name, "t": 8})
        assert refusal.value.status == 409
        assert await gateway.cancel("geo.quakes", name)
        assert await gateway.cancel("geo.quakes", name)  # none is registered: that is what was wanted
        assert await gateway.find("geo.quakes", name) is None

    asyncio.run(main())


def test_an_area_is_kept_and_deleted_in_the_name_of_its_owner(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AreaLog("geo.quakes")
    log.stand_for_the_broker(monkeypatch)
    square, other = ({"type": "Polygon", "coordinates": [[[0, 0], [x, 0], [x, x], [0, 0]]]} for x in (8, 9))
    name, owner = "a/b ?", "sa/geo/mitte"

    async def main() -> None:
        for geometry, revision, changed in ((square, 0, []), (square, 0, []), (other, 1, [name])):
            kept = await gateway.keep_area("geo.quakes", name, owner, geometry)
            assert kept["changed"] == changed
            wanted = {"name": name, "revision": revision, "vertices": 3, "by": owner}
            assert kept["area"].items() >= wanted.items()
        with pytest.raises(Refusal) as refusal:
            await gateway.keep_area("geo.quakes", name, "sa/geo/other", square)
        assert refusal.value.status == 409
        await gateway.delete_area("geo.quakes", name, "sa/geo/other")  # it has nothing there: that is what was wanted
        assert len(log.messages) == 2
        await gateway.delete_area("geo.quakes", name, owner)
        await gateway.delete_area("geo.quakes", name, owner)
        assert log.messages[2:] == [(name.encode(), None)]
        with pytest.raises(Unavailable, match="serves no stream gone"):
            await gateway.delete_area("gone", name, owner)

    asyncio.run(main())


def test_what_is_refused_is_told_in_the_gateways_words(gateway: Gateway, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(Refusal) as refusal:
            await gateway.register("geo.quakes", {**CRQ, "id": "q", "t": 7, "k": 3})
        assert (refusal.value.status, refusal.value.detail) == (400, "k: CRQ takes no k; remove it")
        with pytest.raises(Refusal) as refusal:
            await gateway.find("geo.other", "q")
        assert refusal.value.status == 403
        (tmp_path / "token").write_text("of-somebody-who-is-not-known")
        with pytest.raises(Refusal) as refusal:
            await gateway.find("geo.quakes", "q")
        assert refusal.value.status == 401

    asyncio.run(main())


def test_a_stream_that_is_not_served_is_no_answer(gateway: Gateway) -> None:
    """Nothing is known of its queries: to take it for none would leave them registered."""

    async def main() -> None:
        for asked in (gateway.find("gone", "q"), gateway.cancel("gone", "q"), gateway.clock("gone")):
            with pytest.raises(Unavailable, match="serves no stream gone"):
                await asked

    asyncio.run(main())


def test_no_gateway_and_no_token_are_no_answer(gateway: Gateway, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(Unavailable, match="cannot query the gateway"):
            await Gateway("http://127.0.0.1:1", str(tmp_path / "token")).clock("geo.quakes")
        (tmp_path / "token").unlink()
        with pytest.raises(Unavailable, match="cannot query the gateway"):
            await gateway.clock("geo.quakes")

    asyncio.run(main())


def test_a_token_is_not_told_with_an_answer_that_is_none(gateway: Gateway, tmp_path: Path) -> None:
    """What a gateway that cannot be queried says comes into the status of a SpatialQuery."""

    async def main() -> str:
        async with garbled() as url:
            with pytest.raises(
                Unavailable, match=r"cannot query the gateway at .*: ClientResponseError: 400, Bad status line"
            ) as caught:
                await Gateway(url, str(tmp_path / "token")).clock("geo.quakes")
        return str(caught.value)

    assert TOKEN not in asyncio.run(main())


def test_a_file_that_holds_no_text_is_not_told(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(TOKEN.encode() + b"\xff")
    with pytest.raises(Unavailable, match=r"cannot query the gateway at .*: UnicodeDecodeError") as caught:
        asyncio.run(gateway.clock("geo.quakes"))
    assert TOKEN not in str(caught.value)

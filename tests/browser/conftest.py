"""A live stream that objects come to all the time, its gateway, and a browser."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.servers.kafka import KafkaServer
from spatialstream.servers.process import await_condition
from spatialstream.servers.zookeeper import ZooKeeperServer
from tests.cluster.stream import PATIENCE, LiveStream, Servers
from tests.cluster.test_gateway import TOKEN, GatewayServer
from tests.unit.gateway.http import Client

RATE = 40.0
ELSEWHERE = "console.test"
"""A name of this machine in the browser, to which it is not this machine: pages are not served safely from there."""
_DRAWING = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
"""Tests run as root, and draw without a graphics card."""
_KEEPING = ["--property=country:keyword", "--property=priority:number", "--fields=text,priority,country", "--ranking"]
_NAMES = [f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1"]


@pytest.fixture(scope="session")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStream]:
    """A stream ``gateway``: a flood in the Netherlands, a festival in Rio, and a word everywhere.

    Its objects have a country and a priority; it keeps what they say, and counts words.
    """
    folder: Path = tmp_path_factory.mktemp("browser")
    told = [
        SpatialObject(
            f"{word}-{i}",
            0,
            x + 0.01 * (i % 37),
            y + 0.01 * (i % 23),
            (*text, "news"),
            (("country", country), ("priority", 1.0 + i % 5)),
        )
        for i in range(2_000)
        for word, x, y, text, country in (
            ("flood", 4.5, 52.0, ("flood", "river", "rising"), "nl"),
            ("festival", -43.3, -22.9, ("festival", "music"), "br"),
        )
    ]
    over = threading.Event()
    with (
        ZooKeeperServer(folder / "zookeeper") as zookeeper,
        KafkaServer(folder / "kafka") as kafka,
        LiveStream(Servers(zookeeper, kafka), "gateway", folder, WGS84, 3, *_KEEPING) as live,
    ):
        given = ObjectBatch.of(told), QueryBatch.of([]), 0.0, 1e9, over.is_set, 10**12
        sending = threading.Thread(target=live.sender(RATE).live, args=given, daemon=True)
        sending.start()
        yield live
        over.set()
        sending.join(60.0)


@pytest.fixture(scope="session")
def gateway(stream: LiveStream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """Its gateway, when the stream can be asked."""
    with GatewayServer(tmp_path_factory.mktemp("gateway"), stream) as server:
        ask = Client(server.port, TOKEN)
        asked = {"type": "SRQ", "region": {"box": [4, 51, 5, 53]}, "duration": "1h"}
        assert await_condition(lambda: ask("POST", "/streams/gateway/ask", asked).status == 200, PATIENCE)
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, as CHROMIUM names it."""
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=[*_DRAWING, *_NAMES]
        )
        yield made
        made.close()

"""The live demo as a person uses it: a link under which queries are being answered, and an end with nothing left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from spatialstream.cli.demo.live import QUERIES
from spatialstream.servers.process import await_condition
from tests.cluster.stream import PATIENCE
from tests.unit.gateway.http import Client

ASKED = [json.loads(line) for line in QUERIES.read_text("utf-8").splitlines()]
SPEED = 3_000.0
"""Each event happens every ten seconds, and an earthquake every eighth of one."""


def children(folder: Path) -> list[str]:
    """Command lines of the processes that have their files in a folder."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if str(folder).encode() in line:
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.timeout(1200)
def test_a_link_queries_that_are_answered_and_an_end(tmp_path: Path) -> None:
    words = ["demo-live", "--port", "0", "--speed", str(SPEED), "--rate", "40", "--slots", "2"]
    said = tmp_path / "said"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with said.open("wb") as out:
        demo = subprocess.Popen(
            [sys.executable, "-m", "spatialstream", *words], stdout=out, stderr=subprocess.STDOUT, env=environment
        )
    try:
        link = re.compile(r"http://127\.0\.0\.1:[0-9]+/#\S+")
        assert await_condition(lambda: bool(link.search(said.read_text())) or demo.poll() is not None, PATIENCE)
        found = link.search(said.read_text())
        assert found is not None, said.read_text()
        parts = urlsplit(found[0])
        given = {name: value for name, (value,) in parse_qs(parts.fragment).items()}
        assert given["follow"] == "all"
        assert len(found[0]) < 160, "it is typed, or sent to somebody"
        client = Client(parts.port or 0, given["token"])
        assert Client(parts.port or 0)("GET", "/streams/demo/queries").status == 401

        registered = client("GET", "/streams/demo/queries").json["queries"]
        assert {each["id"] for each in registered} >= {each["id"] for each in ASKED}

        def answered() -> bool:
            missing = [each["id"] for each in ASKED if not rows(client, each["id"])]
            return not missing or demo.poll() is not None

        assert await_condition(answered, PATIENCE), said.read_text()
        (flood,) = rows(client, "flood-on-the-coast")[:1]
        assert 50 < flood["object"]["lat"] < 56
    finally:
        demo.send_signal(signal.SIGINT)
        status = demo.wait(PATIENCE)
    told = said.read_text()
    assert status == 0, told
    for each in ASKED:
        assert re.search(rf"^ *[1-9][0-9,]*  {re.escape(each['title'])}$", told, re.MULTILINE), told
    assert re.search(r"^[0-9,]+ objects in [0-9]+ s", told, re.MULTILINE)
    assert not list(tmp_path.glob("spatialstream-demo-*"))
    assert await_condition(lambda: not children(tmp_path), PATIENCE), children(tmp_path)


def rows(client: Client, name: str) -> list[dict[str, Any]]:
    """Those that a query has had, as far as one poll gives them."""
    answer = client("GET", f"/streams/demo/results?query={name}&position=oldest&wait=1", accept="application/jsonl")
    assert answer.status == 200, answer
    return [json.loads(line) for line in answer.body.splitlines()]

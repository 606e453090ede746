"""What `helm test` runs for the gateway, with a gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from spatialstream.gateway.access import Access
from spatialstream.gateway.app import Gateway
from tests.unit.gateway.http import serving

SCRIPT = Path(__file__).parents[3] / "charts/spatialstream/files/gatewaytest.py"
TOKEN = "operator-0123456789"


def run(url: str, folder: Path, reviewed: str = "yes") -> tuple[int, list[str]]:
    """Its exit status, and what it says of each query."""
    more = {"URL": url, "ACCESS": str(folder), "REVIEWED": reviewed, "NO_PROXY": "*"}
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, env={**os.environ, **more})
    assert not done.stderr
    return done.returncode, [line.partition(" ")[0] for line in done.stdout.splitlines()]


def test_it_finds_a_gateway_well_that_knows_the_operator_and_nobody_else(tmp_path: Path) -> None:
    rights = {"name": "operator", "token": TOKEN, "rights": ["watch", "write"], "streams": ["*"]}
    (tmp_path / "tokens").write_text(json.dumps(rights))
    (tmp_path / "token").write_text(TOKEN)
    with serving(Gateway([], Access(tmp_path / "tokens"))) as client:
        url = f"http://127.0.0.1:{client.port}"
        assert run(url, tmp_path) == (0, ["ok"] * 4)
        (tmp_path / "token").write_text("somebody-0123456789")
        assert run(url, tmp_path) == (1, [*["ok"] * 3, "WRONG"])
        assert run(url, tmp_path, reviewed="") == (0, ["ok"] * 3)
    assert run(url, tmp_path) == (1, ["WRONG"] * 4)


def test_it_finds_one_that_lets_everybody_in(tmp_path: Path) -> None:
    with serving(Gateway([])) as client:
        assert run(f"http://127.0.0.1:{client.port}", tmp_path, reviewed="") == (1, ["ok", "WRONG", "WRONG"])

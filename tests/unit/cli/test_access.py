"""What every command is told of ZooKeeper's credentials and certificates; what is wrong is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.cli import main
from spatialstream.gateway import logs
from tests.certificates import Authority

COMMANDS = {
    "router": ["--checkpoint", "checkpoint"],
    "worker": ["--checkpoint", "checkpoint"],
    "remove": ["--checkpoint", "checkpoint", "--yes"],
    "query": ['{"type": "SRQ", "id": "a", "region": {"box": [0, 0, 1, 1]}, "duration": "1h", "keywords": ["a"]}'],
    "tree": [],
    "rebalance": [],
    "status": [],
    "gateway": ["--port", "0"],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "set_up", lambda quiet: None)  # other tests listen to the gateway's log, too
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPATIALSTREAM_STREAM", "quakes")
    monkeypatch.setenv("SPATIALSTREAM_ZOOKEEPER", "127.0.0.1:1")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_is_wrong(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, *COMMANDS[command], "--zookeeper-ca", "nowhere.crt"]) == 2
    assert "zookeeper-ca: nowhere.crt cannot be read: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--zookeeper-ca", "tls.key"], "zookeeper-ca: holds no certificate; give the authority's as PEM"),
        (["--zookeeper-certificate", "tls.crt"], "zookeeper-ca: is missing: a client certificate requires"),
        (["--zookeeper-key", "tls.key"], "zookeeper-ca: is missing"),
        (["--zookeeper-ca", "ca.crt", "--zookeeper-key", "tls.key"], "zookeeper-certificate: is missing"),
        (["--zookeeper-credentials", "nowhere"], "zookeeper-credentials: cannot be read"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    Authority().issue(Path())
    assert main(["tree", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_the_environment_says_it_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = Authority().issue(tmp_path)
    other = Authority().issue(tmp_path / "other")
    monkeypatch.setenv("SPATIALSTREAM_ZOOKEEPER_CA", str(files.authority))
    monkeypatch.setenv("SPATIALSTREAM_ZOOKEEPER_CERTIFICATE", str(files.certificate))
    monkeypatch.setenv("SPATIALSTREAM_ZOOKEEPER_KEY", str(other.key))
    assert main(["tree"]) == 2
    assert "zookeeper-key: is the key of another certificate" in capsys.readouterr().err

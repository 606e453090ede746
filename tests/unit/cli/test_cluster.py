"""The cluster of a developer: which ports it refuses, and the gateway that it starts with the others, or not."""

from __future__ import annotations

import ast
import json
import re
import socket
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from spatialstream.cli import cluster, main
from spatialstream.connectors.program import program
from spatialstream.servers import job

PACKAGE = Path(cluster.__file__).parents[1]
TITLES = {"spatialstream run", "spatialstream results", "spatialstream gateway"}
"""Of a program's process or of a document, which nobody types."""


class Gateway:
    """One that is only noted."""

    made: list[Gateway]

    def __init__(self, folder: Path, arguments: Sequence[str], port: int | None) -> None:
        self.arguments, self.port, self.told = list(arguments), port or 4321, list[str]()
        self.made.append(self)

    def start(self, timeout: float) -> None:
        self.told.append("start")

    def detach(self) -> None:
        self.told.append("detach")


@pytest.fixture
def gateways(monkeypatch: pytest.MonkeyPatch) -> list[Gateway]:
    """Those of clusters that are started, of which there is nothing else."""

    def start(folder: Path, _: Any, ports: dict[str, int | None], *__: Any) -> tuple[str, str]:
        folder.mkdir(exist_ok=True)
        return f"127.0.0.1:{ports['zookeeper'] or 4444}", f"127.0.0.1:{ports['kafka'] or 5555}"

    monkeypatch.setattr(cluster, "_is_free", lambda _: True)

    monkeypatch.setattr(cluster, "start", start)
    monkeypatch.setattr(job, "GatewayServer", Gateway)
    made = list[Gateway]()
    monkeypatch.setattr(Gateway, "made", made, raising=False)
    return made


def up(folder: Path, *words: str) -> int:
    return main(["cluster", "up", "--folder", str(folder / "cluster"), *words])


def link(told: str) -> dict[str, str]:
    """What the link of the console says, and its port."""
    found = re.search(r"^console at (http\S+)$", told, re.MULTILINE)
    assert found is not None, told
    parts = urlsplit(found[1])
    return {name: value for name, (value,) in parse_qs(parts.fragment).items()} | {"port": str(parts.port)}


def test_it_prints_the_link_of_a_console_which_is_good_over_restarts(
    gateways: list[Gateway], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert up(tmp_path, "--stream", "quakes", "--port", "0") == 0
    said = link(capsys.readouterr().out)
    assert (said["stream"], said["port"]) == ("quakes", "4321")
    (gateway,) = gateways
    assert gateway.told == ["start", "detach"]
    tokens = Path(gateway.arguments[gateway.arguments.index("--tokens") + 1])
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    record = json.loads(tokens.read_text())
    assert (record["token"], record["streams"]) == (said["token"], ["quakes"])
    assert record["rights"] == ["ask", "watch", "write"]
    assert up(tmp_path, "--stream", "other", "--port", "0") == 0
    assert link(capsys.readouterr().out)["token"] == said["token"]
    assert json.loads(tokens.read_text())["streams"] == ["other"]


def test_it_may_be_without_a_gateway(
    gateways: list[Gateway], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert up(tmp_path, "--no-gateway", "--port", str(taken.getsockname()[1])) == 0
    assert "console" not in capsys.readouterr().out
    assert gateways == []


def test_a_port_that_is_taken_is_told_before_anything_is_started(
    gateways: list[Gateway], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert up(tmp_path, "--port", str(taken.getsockname()[1])) == 2
    assert "is not available" in capsys.readouterr().err
    assert up(tmp_path, "--port", "65536") == 2
    assert "65536 is not a port" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_ports_are_the_usual_ones_or_those_that_are_given_or_free_ones(
    gateways: list[Gateway], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = f"try: {program()} load --stream dev"
    assert up(tmp_path, "--port", "0") == 0
    assert f"{load} --now --rate" in capsys.readouterr().out
    monkeypatch.setattr(cluster, "_is_free", lambda port: port != 9092)
    with socket.create_server(("127.0.0.1", 0)) as freed:
        port = freed.getsockname()[1]
    assert up(tmp_path, "--port", "0", "--ports", f"zookeeper={port}") == 0
    told = capsys.readouterr().out
    assert "port 9092 is in use: kafka uses another one\n" in told
    assert f"{load} --bootstrap 127.0.0.1:5555 --zookeeper 127.0.0.1:{port} --now" in told


@pytest.mark.parametrize(
    ("ports", "told"),
    [
        ("kafka", "'kafka' is not like kafka=19092"),
        ("kafka=x", "is not like"),
        ("gateway=1", "'gateway' is not one of zookeeper, kafka, router, worker"),
        ("kafka=65536", "65536 is not a port"),
    ],
)
def test_ports_that_are_none_are_refused(
    ports: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert ended(lambda: up(tmp_path, "--port", "0", "--ports", ports)) == 2
    assert told in capfd.readouterr().err


def test_a_given_port_that_is_taken_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert up(tmp_path, "--port", "0", "--ports", f"kafka={port}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"spatialstream: ports: kafka: {port} is not available")


def ended(command: Callable[[], int]) -> int:
    """The status of a command, also where the parser ends it."""
    try:
        return command()
    except SystemExit as error:
        return int(error.code or 0)


def test_hints_say_what_may_be_typed_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed = tmp_path / "some folder" / "spatialstream"
    installed.parent.mkdir()
    installed.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(installed), "cluster"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == f"'{installed}'"
    monkeypatch.setenv("PATH", str(installed.parent))
    assert program() == "spatialstream"
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    assert program() == f"{sys.executable} -m spatialstream"


def test_no_hint_takes_it_that_the_shell_finds_the_program() -> None:
    commands = ["demo", *(path.stem for path in (PACKAGE / "cli").glob("[a-z]*.py"))]  # and some that are none
    typed = re.compile(rf"\bspatialstream ({'|'.join(commands)})\b")
    found = list[str]()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
        for each in ast.walk(tree):
            text = each.value if isinstance(each, ast.Constant) and id(each) not in docstrings else None
            if isinstance(text, str) and text not in TITLES and typed.search(text):
                found.append(f"{path.relative_to(PACKAGE)}: {text}")
    assert typed.search("see spatialstream areas load")
    assert not found

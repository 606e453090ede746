"""Who may do what, by tokens of a file, and that no token is ever shown."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from spatialstream.cli import main
from spatialstream.gateway import logs
from spatialstream.gateway.access import Access, read_tokens
from spatialstream.gateway.app import Gateway
from spatialstream.gateway.problems import Problem
from spatialstream.gateway.server import check_address
from spatialstream.model.errors import SettingError, Unavailable
from tests.unit.gateway.http import Client, served, serving

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
ASKER, WRITER, ELSEWHERE = "ask-0123456789abcdef", "write-0123456789abcdef", "else-0123456789abcdef"
LINES: list[dict[str, Any]] = [
    {"name": "session", "token": ASKER, "rights": ["ask", "watch"], "streams": ["s"]},
    {"name": "writer", "sha256": hashlib.sha256(WRITER.encode()).hexdigest(), "rights": ["write"], "streams": ["*"]},
    {"name": "elsewhere", "token": ELSEWHERE, "rights": ["ask"], "streams": ["other"]},
]


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_token_allows_what_its_line_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def opener() -> Any:
        raise Unavailable("nobody")

    access = Access(write(tmp_path / "tokens", LINES))
    with serving(Gateway([served("s", opener)], access)) as nobody, caplog.at_level(logging.DEBUG):
        statuses = [
            Client(nobody.port, token)("POST", f"/streams/{stream}/ask?t={quote(token)}", {}, host="elsewhere").status
            for stream in ("s", "unknown")
            for token in (ASKER, WRITER, ELSEWHERE, "wrong", ASKER + "x", "é")
        ]
        assert statuses == [400, 403, 403, 401, 401, 401, 403, 403, 403, 401, 401, 401]
        answer = nobody("POST", "/streams/s/ask", {})
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="spatialstream"')
        assert nobody("POST", "/streams/s/ask", {}, authorization=f"Basic {ASKER}").status == 401
        assert nobody("GET", "/ready").status == 503
    assert "session" in caplog.text + str([each.__dict__ for each in caplog.records])
    for token in (ASKER, WRITER, ELSEWHERE):
        assert token not in caplog.text + str([each.__dict__ for each in caplog.records])
        assert token not in repr(access.__dict__)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    told: list[str] = []
    path = write(tmp_path / "tokens", LINES[:1])
    access = Access(path, told.append)

    def changed(content: str) -> None:
        path.with_suffix(".new").write_text(content)
        path.with_suffix(".new").replace(path)
        time.sleep(1.1)

    def name(token: str) -> str:
        return asyncio.run(access.caller(token)).name

    assert name(f"Bearer {ASKER}") == "session"
    session = asyncio.run(access.caller(f"Bearer {ASKER}"))
    assert [asyncio.run(session.rights_on(each)) for each in ("s", "other")] == [{"ask", "watch"}, set()]
    changed("{")
    assert name(f"bearer {ASKER}") == "session"
    assert "line 1: is not JSON" in told[0]
    changed(json.dumps(LINES[1]))
    assert name(f"Bearer {WRITER}") == "writer"
    with pytest.raises(Problem):
        name(f"Bearer {ASKER}")
    path.unlink()
    time.sleep(1.1)
    assert name(f"Bearer {WRITER}") == "writer"
    assert "cannot be read" in told[1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": ""}, "name: give a name"),
        ({"token": "short"}, "at least 16 characters"),
        ({"token": None}, "give either token, or sha256"),
        ({"sha256": "ab"}, "give either token, or sha256"),
        ({"token": None, "sha256": "ab"}, "64 hexadecimal digits"),
        ({"rights": ["ask", "own"]}, "rights: must be among ask, watch, write"),
        ({"rights": []}, "rights: give a list of strings"),
        ({"streams": "s"}, "streams: give a list of strings"),
        ({"role": "x"}, "must be an object with only the fields"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_not_shown(tmp_path: Path, change: Any, problem: str) -> None:
    path = write(tmp_path / "tokens", [LINES[1], LINES[0] | change])
    with pytest.raises(SettingError, match=f"line 2: .*{problem}") as caught:
        read_tokens(path)
    assert ASKER not in str(caught.value)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has no token"):
        read_tokens(write(tmp_path / "none", []))
    with pytest.raises(SettingError, match="a name twice"):
        read_tokens(write(tmp_path / "twice", [LINES[0], LINES[0]]))
    with pytest.raises(SettingError, match="cannot be read"):
        read_tokens(tmp_path / "nowhere")


def test_what_needs_no_token_is_what_the_guide_says() -> None:
    gateway = Gateway([])
    served = {(each.path, each.right) for each in gateway.endpoints}
    served |= {(path, right) for _, path, right, _ in gateway.console.endpoints}
    told = next(part for part in PAGE.read_text().split("\n- ") if "need no token" in part)
    named = {each.removeprefix("GET ") for each in re.findall("`([^`]+)`", told)}
    assert named == {path for path, right in served if right is None and not path.startswith("/console")}
    assert "the pages of the console" in told


def test_without_tokens_it_is_for_this_machine_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "set_up", lambda quiet: None)  # other tests listen to the log, too
    for host in ("127.0.0.1", "::1", "localhost", "127.3.2.1"):
        check_address(host, local=True)
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        check_address(host, local=False)
        with pytest.raises(SettingError, match="give --tokens"):
            check_address(host, local=True)
    assert main(["gateway", "--stream", "s", "--host", "0.0.0.0"]) == 2
    assert "give --tokens" in capsys.readouterr().err
    assert main(["gateway", "--stream", "s", "--key", "k"]) == 2
    assert main(["gateway", "--stream", "s", "--key", "nokey", "--certificate", "nocertificate", "--port", "0"]) == 2
    assert "certificate: nocertificate and nokey cannot be used" in capsys.readouterr().err

"""The gateway as a process: what it writes, and which settings it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

AWAY = ("--stream", "s", "--zookeeper", "127.0.0.1:1", "--bootstrap", "127.0.0.1:1", "--port", "0")


def command(*options: str) -> Sequence[str]:
    return [sys.executable, "-m", "spatialstream", "gateway", *AWAY, *options]


def test_all_that_it_writes_is_its_log_line_by_line() -> None:
    with subprocess.Popen(command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.terminate()
        out, rest = process.communicate(timeout=120)
    lines = [json.loads(line) for line in (first + rest).splitlines()]
    assert [each["event"] for each in lines] == ["serving", "ending"]
    assert process.returncode == 0
    assert lines[0]["address"].startswith("http://127.0.0.1:")
    assert out == b""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--memory", "1000000"),
            "memory: 1000000 bytes are too few for bodies of 8388608 and answers of 33554432; give",
        ),
        (("--largest-answer", "1000000000"), "memory: 268435456 bytes are too few"),
        (("--largest-answer", "0"), "--largest-answer"),
        (("--largest-body", "100000000"), "is more than a message can hold"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused_at_the_start(options: Sequence[str], told: str) -> None:
    done = subprocess.run(command(*options), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert told in done.stderr

"""Rows on standard output: what is not taken is told, and nothing of it is tried again."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spatialstream.cli.results import hand_over, print_row
from spatialstream.model.errors import RunError


def test_a_full_disk_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(RunError, match="cannot write to standard output: No space left on device"):
            print_row({"query": "q"})
        full.flush()  # what was left has gone


def test_a_reader_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        print_row({"query": "q"})
        assert os.read(read, 100) == b'{"query": "q"}\n'
        os.close(read)
        with pytest.raises(BrokenPipeError):
            print_row({"query": "q"})
        pipe.flush()


def test_a_row_is_handed_over_when_it_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        print_row({"query": "q"})
        asked: list[bool] = []
        hand_over(lambda: len(asked) > 100 or asked.append(False) is not None)  # nobody reads, until it is to stop
        assert len(asked) == 101
        reader = threading.Timer(0.05, os.read, (read, 100))
        reader.start()
        hand_over(lambda: False)
        reader.join()
        hand_over(lambda: False)
        print_row({"query": "q"})
        os.close(read)
        with pytest.raises(BrokenPipeError):
            hand_over(lambda: False)
        pipe.flush()


def test_what_is_no_pipe_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        for each in (file, io.StringIO()):
            monkeypatch.setattr(sys, "stdout", each)
            print_row({"query": "q"})
            hand_over(lambda: False)


def test_head_takes_the_rows_that_it_prints() -> None:
    program = """
from spatialstream.cli.results import hand_over, print_row
import sys
given = 0
try:
    for row in range(100):
        print_row({"query": row})
        hand_over(lambda: False)
        given = row + 1
finally:
    print(given, file=sys.stderr)
"""
    words = ["sh", "-c", '"$@" | head -n 7', "sh", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == 7
    assert done.stderr.splitlines()[0] == "7"

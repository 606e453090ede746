"""Rows on standard output: what is not taken is told, and nothing of it is tried again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from spatialstream.cli.results import print_row
from spatialstream.model.errors import RunError


def test_a_full_disk_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(RunError, match="standard output takes no more rows: No space left on device"):
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

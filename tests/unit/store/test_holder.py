"""A holder is dead only if that is certain."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from spatialstream.store import holder
from spatialstream.store.holder import began, in_words, is_dead, this_process

SAY = [
    sys.executable,
    "-c",
    "from spatialstream.store.holder import this_process as t; print(t(), flush=True); input()",
]


def test_a_process_lives_until_it_has_ended() -> None:
    with subprocess.Popen(SAY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline().rstrip()
        assert not is_dead(said)
        assert in_words(said).endswith(f"(process {process.pid})")
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(said), "though nobody has awaited it"
    assert is_dead(said)
    assert not is_dead(this_process())


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    words, _, world = this_process().partition("\n")
    place, pid, since = world.split()
    assert is_dead(f"{words}\n{place} {pid} {int(since) - 1}")
    assert began(2**22 + 1) == -1


@pytest.mark.parametrize(
    "said", ["", "a host (process 7)", "a\n", "a\nb", "a\nb c d", "a\n another-boot/pid:[1] 4194305 7"]
)
def test_what_cannot_be_told_from_here_is_not_dead(said: str) -> None:
    assert not is_dead(said)


def test_where_nothing_is_known_of_processes_nobody_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "_world", lambda: "")
    said = this_process()
    monkeypatch.setattr(holder, "began", lambda pid: -1)
    assert not is_dead(said)

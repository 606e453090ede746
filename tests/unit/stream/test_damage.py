"""A damaged record of a turn is reported in one sentence, whatever its file contains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spatialstream.connectors.folder import Folder
from spatialstream.connectors.memory import MemoryChannel, MemoryLog
from spatialstream.model.errors import StateError
from spatialstream.stream.leadership import Alone, Leadership
from spatialstream.stream.router import EpochRecord
from spatialstream.stream.worker import ROUNDS, RoundRecord


@pytest.mark.parametrize("record", [EpochRecord, RoundRecord])
@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b"null", b'{"round": 5}', b"\xff", b"[" * 100_000])
def test_a_damaged_record_is_told_with_its_file(record: Any, content: bytes, tmp_path: Path) -> None:
    storage, name = Folder(tmp_path), "rounds/000000004.json"
    storage.put(name, content)
    with pytest.raises(StateError, match=rf"/{name} is damaged; the checkpoint cannot be used; start again"):
        Alone(storage, "rounds/").value(name, record)


def test_a_damaged_record_of_the_log_is_told_likewise(tmp_path: Path) -> None:
    storage, log = Folder(tmp_path), MemoryLog()
    channel = MemoryChannel([], log)
    leadership = Leadership(channel, storage, "worker", ROUNDS, 1)
    leadership.begin()
    names = [leadership.decide(turn, json.dumps({"round": turn})) for turn in range(2)]
    for name in names:
        with pytest.raises(StateError, match="is damaged; the checkpoint cannot be used; start again"):
            leadership.value(name, RoundRecord)

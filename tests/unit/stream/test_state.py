"""The files that a stream puts into its storage: known ones, and the same ones however often its jobs die."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from spatialstream.connectors.memory_storage import MemoryStorage
from spatialstream.connectors.owned import STREAM
from spatialstream.model.arrays import unpack_arrays
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84
from spatialstream.stages.corpus import Tally
from spatialstream.stream.settings import StreamSettings
from tests.simulation import IDLE, Simulation
from tests.streams import random_stream

MEASURED = re.compile(r"(epochs|rounds)/done")
"""Files that are overwritten: the progress of a job."""


class Recording(MemoryStorage):
    """A storage that records all that was ever put.

    Attributes:
        versions: for each name the contents, and how often each was put, see :func:`_content`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, Counter[bytes]] = {}

    def put(self, name: str, *parts: bytes | memoryview | pa.Buffer) -> None:
        super().put(name, *parts)
        self.versions.setdefault(name, Counter())[_content(name, self.get(name))] += 1


def _content(name: str, file: pa.Buffer) -> bytes:
    """The bytes of a file; of a part of a corpus table, whose words are in no particular order, with these sorted."""
    if not name.endswith(".part"):
        return file.to_pybytes()
    tally = Tally.from_arrays(*unpack_arrays(file, name))
    words, counts = tally.sum()
    return repr((tally.objects, sorted(zip(words.to_pylist(), counts.tolist(), strict=True)))).encode()


@pytest.mark.parametrize("seed", [1, 4])
def test_whoever_writes_a_file_again_writes_the_same(tmp_path: Path, seed: int) -> None:
    stream = random_stream(seed, 120, 20, WGS84, types=TYPES)
    objects, queries = (sorted(each, key=lambda one: one.t) for each in (stream.objects, stream.queries))
    setup = StreamSettings("s", slots=3, space=WGS84, idle=IDLE, epoch_records=10, retention=600_000, rule=stream.rule)
    storage = Recording()
    simulation = Simulation(
        tmp_path, WGS84, objects, queries, setup, seed, chaos=0.05, checkpoints=0.6, storage=storage
    )
    simulation.run(rebalances=0.5, disturbances=0.05)

    assert [name for name in storage.versions if not any(re.fullmatch(known, name) for known in STREAM.files)] == []
    written = {name: contents for name, contents in storage.versions.items() if not MEASURED.fullmatch(name)}
    assert [name for name, contents in written.items() if len(contents) > 1] == []
    again = {name.split("/")[0] for name, contents in written.items() if contents.total() > 1}
    assert "state" in again, "else nobody has died at the right moment"
    kinds = {name.split("/")[0] for name in storage.versions}
    assert kinds == {"corpus", "epochs", "input", "radii", "rounds", "samples", "state", "transfers", "versions"}

"""Only what the project has written is deleted, and nothing before all of a folder has been looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spatialstream.connectors.disk import disk_errors, write_whole
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.owned import REJECTED, RESULTS, RUN, STREAM, Owned
from spatialstream.model.errors import RunError, SettingError, StateError
from spatialstream.model.space import WGS84
from spatialstream.spark.failures import explained
from spatialstream.spark.run import RunSettings, open_run
from spatialstream.stages.state import OwnerState, Progress
from spatialstream.stream.settings import StreamSettings
from tests import streams
from tests.simulation import Simulation


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text("x")


OURS = {
    RESULTS: [".spatialstream", "epoch-000000001.jsonl", ".epoch-000000002.jsonl.4711"],
    REJECTED: [".spatialstream", "epoch-000000001.jsonl", "input-000000001.jsonl"],
    RUN: [
        *("run.json", "epochs/done", "versions/000000.arrays", "error.log", "run.lock", ".run.json.99"),
        *(
            "input/000000000-objects-0000-0000-a.arrow",
            "blocks/000000003-0001.ipc",
            "announced/000000003.json",
            "frames/objects-0123456789abcdef.jsonl",
            "frames/.aside-x/parts/_SUCCESS",
        ),
        *("state/slot-0001/epoch-000000003.json", "state/merger-0000/000000003-000-nearest.arrays"),
        *(
            "spark/metadata",
            "spark/.metadata.crc",
            "spark/commits/0",
            "spark/offsets/..1.d4b2-4d.tmp.crc",
            "spark/sources/0/0",
        ),
    ],
    STREAM: [
        *("stream.json", "router.lock", "worker.lock", "epochs/done", "rounds/000000001.summary"),
        *("rounds/000000001-0001.second", "rounds/000000001-rev2-0001.second"),
        *("input/000000003-objects-0-1.arrow", "input/000000003-objects-0-1.rejected", "versions/000000.arrays"),
        *("transfers/000001/from-0000-to-0001.arrow", "samples/000000003-queries-0000.arrow", "lost+found/"),
        *("output/results/epoch-000000001.jsonl", "output/results/.spatialstream"),
    ],
}


@pytest.mark.parametrize("owned", OURS, ids=lambda owned: owned.what)
def test_what_is_ours_is_deleted_and_the_folder_stays(owned: Owned, tmp_path: Path) -> None:
    put(tmp_path, *OURS[owned])
    owned.check(tmp_path, "overwrite")
    owned.empty(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"lost+found", "run.lock", "router.lock", "worker.lock"}
    owned.check(tmp_path, "overwrite")
    owned.check(tmp_path / "missing", "overwrite")


@pytest.mark.parametrize("owned", OURS, ids=lambda owned: owned.what)
@pytest.mark.parametrize(
    "name",
    ["thesis.txt", "epoch-1.jsonl", "state/thesis.txt", "input/data.csv", "input/link", "photos/", "spark/x.txt"],
)
def test_what_is_not_ours_refuses_the_whole_and_is_named(owned: Owned, name: str, tmp_path: Path) -> None:
    put(tmp_path / "mine", *OURS[owned])
    if name.endswith("link"):
        (tmp_path / "mine" / "input").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).symlink_to(tmp_path)
    else:
        put(tmp_path / "mine", name)
    before = tree(tmp_path)
    with pytest.raises(SettingError, match=f"{name.rstrip('/')} does not belong to"):
        owned.check(tmp_path / "mine", "overwrite")
    assert tree(tmp_path) == before


@pytest.mark.parametrize("owned", OURS, ids=lambda owned: owned.what)
def test_without_a_marker_nothing_is_ours(owned: Owned, tmp_path: Path) -> None:
    put(tmp_path, *OURS[owned])
    (tmp_path / owned.marker).unlink()
    with pytest.raises(SettingError, match=f"holds no {owned.marker}"):
        owned.check(tmp_path, "overwrite")


def test_all_that_a_live_stream_writes_is_known(tmp_path: Path) -> None:
    stream = streams.random_stream(3, 120, 20)
    setup = StreamSettings("s", slots=2, partitions=2)
    Simulation(tmp_path, WGS84, stream.objects, stream.queries, setup, 1, chaos=0.0).run()
    others = [name for name in STREAM.foreign(tmp_path) if not name.startswith("archive/")]
    assert others == []


def test_a_checkpoint_in_whose_way_somebodys_files_are_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "data", "samples/photo.jpg")
    with pytest.raises(StateError, match="samples already exists"):
        StreamSettings("s").claim(Folder(tmp_path / "data"))
    objects, queries = streams.write_stream(tmp_path, streams.random_stream(1, 10, 2))
    put(tmp_path / "data", "input/data.csv")
    with pytest.raises(StateError, match="input already exists"):
        open_run(RunSettings((objects,), (queries,), tmp_path / "out", checkpoint=tmp_path / "data"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 10_000])
def test_a_damaged_checkpoint_is_told(content: bytes, tmp_path: Path) -> None:
    objects, queries = streams.write_stream(tmp_path, streams.random_stream(1, 10, 2))
    setup = RunSettings((objects,), (queries,), tmp_path / "out")
    open_run(setup)
    put(setup.paths.local, "epochs/000000003.json")
    (setup.paths.local / "epochs" / "000000003.json").write_bytes(content)
    with pytest.raises(StateError, match=r"epochs/000000003\.json is damaged; the checkpoint cannot be used"):
        open_run(setup)
    (setup.paths.local / "epochs" / "000000003.json").unlink()
    (setup.paths.local / "run.json").write_bytes(content)
    with pytest.raises(StateError, match=r"run\.json is damaged; give another output"):
        open_run(setup)
    (tmp_path / "stream.json").write_bytes(content)
    with pytest.raises(StateError, match=r"stream\.json is damaged"):
        StreamSettings("s").claim(Folder(tmp_path))
    (tmp_path / "done").write_bytes(content)
    with pytest.raises(StateError, match="done is damaged"):
        Progress(Folder(tmp_path), "done").load()
    put(tmp_path, "state/registry-0000/epoch-000000000.json")
    with pytest.raises(StateError, match=r"epoch-000000000\.json is damaged"):
        OwnerState(Folder(tmp_path), "registry-0000", (1, 0), (0, 0), (0, 0)).previous()


def test_what_a_disk_does_not_do_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    beneath = r"^output: cannot be used, .*/file/more/x: Not a directory; give a folder that can be written$"
    with pytest.raises(SettingError, match=beneath), disk_errors("output"):
        write_whole(tmp_path / "file" / "more" / "x", b"")
    full = r"^cannot continue: No space left on device; after solving this, the same run continues from here$"
    with pytest.raises(RunError, match=full), disk_errors(), Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    (tmp_path / "y" / "x.json").mkdir(parents=True)
    with pytest.raises(RunError, match=r"^cannot continue: .*/y/x\.json: Is a directory; "), disk_errors():
        write_whole(tmp_path / "y" / "x.json", b"{}")
    assert [path.name for path in (tmp_path / "y").iterdir()] == ["x.json"]


def test_a_failed_task_is_told_as_what_it_was() -> None:
    ours = explained("Traceback\nspatialstream.model.errors.SettingError: a.gz: cannot be read: bad\n SQLSTATE: 0 x")
    assert (type(ours), str(ours)) == (SettingError, "a.gz: cannot be read: bad")
    assert isinstance(explained("x\nspatialstream.model.errors.StateError: run 5 is missing"), StateError)
    assert str(explained("ValueError: no luck\nSQLSTATE: 38000 at ...")) == "ValueError: no luck"
    for again in ("OSError: [Errno 28] No space left on device: 'x'", "Python worker exited unexpectedly (crashed)"):
        told = explained(again)
        assert isinstance(told, RunError)
        assert str(told).endswith("continues from here")
    other = explained("ModuleNotFoundError: No module named 'spatialstream'\n")
    assert str(other).startswith("PYSPARK_PYTHON: ")


def test_records_of_processes_that_hold_a_lease_are_a_streams() -> None:
    for name in ("epochs/000000301-1-8a6bdbff-302.json", "rounds/000000241-12-c175fc60-242.json"):
        assert any(re.fullmatch(known, name) for known in STREAM.files), name

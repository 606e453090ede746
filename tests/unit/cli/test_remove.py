"""What ``spatialstream remove`` takes from a checkpoint, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from spatialstream.cli import main
from spatialstream.cli.remove import check_checkpoint, empty_checkpoint
from spatialstream.connectors.disk import write_whole
from spatialstream.connectors.folder import Folder
from spatialstream.model.errors import SettingError
from spatialstream.stream.bootstrap import locked
from spatialstream.stream.settings import StreamSettings


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "quakes"
    with locked(folder, "router"):
        StreamSettings("quakes").claim(Folder(folder))
    write_whole(folder / "epochs" / "done", b"0")
    write_whole(folder / "state" / "slot-0000" / "epoch-000000000.json", b"{}")
    return folder


def test_a_checkpoint_is_emptied_again_and_again(checkpoint: Path) -> None:
    (checkpoint / "lost+found").mkdir()
    for _ in range(2):
        check_checkpoint(Folder(checkpoint), "quakes")
        empty_checkpoint(Folder(checkpoint))
        assert [path.name for path in checkpoint.iterdir()] == ["lost+found"]


def test_a_folder_of_others_is_refused_before_anything_is_done(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thesis = checkpoint / "samples" / "thesis.txt"
    write_whole(thesis, b"years of work")
    # ZooKeeper is not asked, which is not there
    command = ["remove", "--stream", "quakes", "--zookeeper", "127.0.0.1:1", "--checkpoint", str(checkpoint), "--yes"]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"spatialstream: checkpoint: {thesis} does not belong to the checkpoint of a stream")
    assert thesis.exists()
    assert (checkpoint / "epochs" / "done").exists()


def test_the_checkpoint_of_another_stream_is_refused(checkpoint: Path) -> None:
    with pytest.raises(SettingError, match="belongs to the stream 'quakes'; nothing has been deleted"):
        check_checkpoint(Folder(checkpoint), "floods")
    (checkpoint / "stream.json").write_bytes(b"{")
    check_checkpoint(Folder(checkpoint), "floods")

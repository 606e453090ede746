"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from spatialstream.connectors.disk import new_file


@pytest.mark.parametrize("refusal", [None, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_new_file_is_written_once_also_where_there_are_no_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | None
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(refusal, "refused")

    if refusal is not None:
        monkeypatch.setattr(os, "link", refuse)
    assert new_file(tmp_path / "a", b"1")
    assert not new_file(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"1"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_what_else_is_wrong_with_a_new_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="read-only"):
        new_file(tmp_path / "a", b"1")
    assert not list(tmp_path.iterdir())

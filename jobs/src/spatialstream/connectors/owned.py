"""Which files the project has written into folders that its user has named: only those may be deleted.

Such a folder has a marker: ``run.json`` or ``stream.json`` in a checkpoint, and a file of its own beside results. In a
folder with a marker the project's files are recognized by their names. Nothing is deleted before every file has been
checked; an unknown file prevents the deletion, and is named.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.disk import made, write_whole
from spatialstream.model.errors import SettingError

__all__ = ["CREATED_TOPICS", "REJECTED", "RESULTS", "RUN", "STREAM", "Owned"]

CREATED_TOPICS = "topics.json"
"""The file of a checkpoint with the topics that the stream created; see :mod:`spatialstream.stream.created_topics`."""

_LOST = "lost+found"
"""A folder that file systems create where they are mounted; it is ignored."""

_ASIDE = re.compile(r"\.(.+)\.\d+")
"""A file that was being written when its process died, see :func:`spatialstream.connectors.disk.whole_file`."""

_REVISION = r"(-rev\d+)?"
_STATE = (
    rf"state/(slot|merger|registry)-\d{{4}}/(epoch-\d{{9}}{_REVISION}\.json|\d{{9}}{_REVISION}-\d{{3}}-[a-z-]+\.arrays)"
)
_SPARK = r"spark/((commits|offsets|sources|state)/([\d/]+/)?)?\.{0,2}(metadata|\d)[\w.-]*"
_FILES = (
    rf"(epochs|rounds)/(done|\d{{9}}(-\d+-[0-9a-f]{{8}}-\d+|{_REVISION}-\d{{4}})?\.[a-z]+)",
    r"(blocks/\d{9}-\d{4}\.ipc|announced/\d{9}\.json)",
    r"input/\d{9}-[\w.-]+\.(arrow|rejected)",
    r"samples/\d{9}-[\w-]+\.arrow",
    r"versions/\d{6}\.arrays",
    r"corpus/(-?\d+\.arrays|\d{9}-\d+-\d{4}--?\d+\.part)",
    r"transfers/\d{6}/from-\d{4}-to-\d{4}\.arrow",
    rf"radii/\d{{9}}{_REVISION}-\d{{4}}",
    r"words/(census\.json|round-\d{9}-\d+-\d{4}\.arrays|version-\d{6}-\d{4}\.arrays)",
    _STATE,
    _SPARK,
)
"""The files that every stream writes into its checkpoint."""

_FOLDERS = (
    *("input", "epochs", "rounds", "blocks", "announced"),
    *("samples", "versions", "corpus", "transfers", "radii", "words", "state", "spark"),
)
_EPOCH = r"epoch-\d{9}(_1)?\.jsonl"


@dataclass(frozen=True, slots=True)
class Owned:
    """The files of one kind of folder.

    Attributes:
        what: name of the folder in errors.
        marker: file that marks the folder as one of this kind; deleted last.
        files: patterns of the paths in the folder, parts separated by ``/``.
        names: files and folders in it that must not exist before the marker.
        folders: other folders of the project in it.
        traces: files that may remain, together with the marker, of a deleted folder, because something elsewhere could
            not be deleted.
    """

    what: str
    marker: str
    files: tuple[str, ...]
    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()

    def mark(self, folder: Path) -> str:
        """Create the folder and its marker; returns an id that the folder keeps as long as it has the marker."""
        marker = made(folder) / self.marker
        if not (known := marker.read_text() if marker.exists() else ""):
            write_whole(marker, (known := secrets.token_hex(8)).encode())
        return known

    def foreign(self, folder: Path) -> Iterator[str]:
        """Paths in a folder that are not the project's: files, symbolic links, and empty folders."""
        for place, folders, files in os.walk(folder):
            inside = Path(place).relative_to(folder)
            if inside == Path() and _LOST in folders:
                folders.remove(_LOST)
            links = [name for name in folders if (Path(place) / name).is_symlink()]
            for name in sorted([*files, *links]):
                aside = _ASIDE.fullmatch(name)
                path = (inside / (aside[1] if aside else name)).as_posix()
                if name in links or not self._is_known(path):
                    yield (inside / name).as_posix()
            if not folders and not files and inside.parts and inside.parts[0] not in (*self.names, *self.folders):
                yield inside.as_posix()

    def check(self, folder: Path, setting: str) -> None:
        """Make sure that all content of a folder may be deleted; a missing or empty folder is accepted.

        Args:
            folder: the folder.
            setting: the setting that names it.

        Raises:
            SettingError: the folder has no marker, or contains a file that is not the project's; names it.
        """
        if not folder.exists() and not folder.is_symlink():
            return
        if not folder.is_dir():
            raise SettingError(setting, f"{folder} is not a folder")
        self._refuse(list(self.foreign(folder)), folder, setting)
        rest = {path.name for path in folder.iterdir() if path.suffix != ".lock"} - {_LOST, *self.folders, *self.traces}
        if rest and self.marker not in rest:
            raise SettingError(setting, self._unmarked(folder))

    def empty(self, folder: Path, keep: Sequence[Path] = ()) -> None:
        """Delete the project's files, which :meth:`check` has accepted. The folder and locks remain.

        Args:
            folder: the folder.
            keep: files in it that remain.

        Raises:
            OSError: something cannot be deleted.
        """
        if not folder.is_dir():
            return
        protected = {path.absolute() for path in keep}
        for path in sorted(folder.iterdir(), key=lambda path: path.name == self.marker):
            if path.name == _LOST or path.suffix == ".lock":
                continue
            if not path.is_dir():
                if path.absolute() not in protected:
                    path.unlink()
            elif any(path.absolute() in each.parents for each in protected):
                for each in path.iterdir():
                    if each.absolute() not in protected:
                        each.unlink()
            else:
                shutil.rmtree(path)

    def check_storage(self, storage: Storage, setting: str) -> None:
        """As :meth:`check`, for a storage that is no folder.

        Raises:
            SettingError: it has no marker, or contains a file that is not the project's; names it.
        """
        names = storage.list("")
        self._refuse([each for each in names if not self._is_known(each)], storage.place, setting)
        if set(names) - set(self.traces) and self.marker not in names:
            raise SettingError(setting, self._unmarked(storage.place))

    def empty_storage(self, storage: Storage, keep: Sequence[str] = ()) -> None:
        """Delete the project's files, which :meth:`check_storage` has accepted; the marker last.

        Args:
            storage: the storage.
            keep: files in it that remain.
        """
        storage.delete(name for name in storage.list("") if name not in (self.marker, *keep))
        storage.delete([self.marker])

    def _is_known(self, path: str) -> bool:
        return path in (self.marker, *self.traces) or any(re.fullmatch(known, path) for known in self.files)

    def _refuse(self, others: Sequence[str], place: object, setting: str) -> None:
        if others:
            more = f" and {len(others) - 3} more" if len(others) > 3 else ""
            named = ", ".join(f"{place}/{each}" for each in others[:3])
            problem = (
                f"{named}{more} does not belong to {self.what}, so nothing has been deleted; move it, or name another "
                "place"
            )
            raise SettingError(setting, problem)

    def _unmarked(self, place: object) -> str:
        return f"{place} holds no {self.marker}, so it is not {self.what}, and nothing has been deleted"

    def taken(self, storage: Storage) -> str | None:
        """A name in a storage without a marker that the project would use itself; None if there is none."""
        if find(storage, self.marker) is not None:
            return None
        return next((name for name in self.names if storage.list(f"{name}/") or find(storage, name) is not None), None)


RESULTS = Owned("the results of a run", ".spatialstream", (_EPOCH,))
"""``results/``."""

REJECTED = Owned("the rejected records of a run", ".spatialstream", (_EPOCH, r"input-\d{9}\.jsonl"))
"""``rejected/``."""

RUN = Owned(
    "the checkpoint of a run",
    "run.json",
    (
        r"(run|claim)\.lock|error\.log",
        r"frames/(objects|queries)(-\d{5})?-[0-9a-f]{16}\.jsonl",
        r"frames/\.aside-[^/]+/.*",
        r"frames/(input-[0-9a-f]{16}(\.[a-z]+){1,2}|\.input-[^/]+)",
        *_FILES,
    ),
    _FOLDERS,
    ("frames",),
)
"""The checkpoint of :func:`spatialstream.spark.run.run`."""

STREAM = Owned(
    "the checkpoint of a stream",
    "stream.json",
    (
        r"(router|worker|stream|claim)\.lock|(router|worker)\.secret",
        r"queries\.(jsonl|json|new)|micro-batch\.json",
        rf"output/(results|rejected)/({_EPOCH}|input-\d{{9}}\.jsonl|\.spatialstream)",
        *_FILES,
    ),
    _FOLDERS,
    ("output",),
    (CREATED_TOPICS,),
)
"""The checkpoint of a live stream, or of :func:`spatialstream.answer_stream`."""

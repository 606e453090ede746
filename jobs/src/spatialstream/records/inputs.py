"""Which files an input names: a file, a folder of files, or the standard input, which is kept as a file."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from spatialstream.model.errors import SettingError
from spatialstream.records.delimited import found_separator
from spatialstream.records.formats import is_known

__all__ = ["expanded", "spooled"]

_PIECE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_GZIP_WINDOW = 31


def expanded(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """(files, files that are skipped) of paths of which some are folders.

    Of a folder, the files in it and in its folders, in the order of their paths, as far as their names end as those of
    files of objects do. What begins with ``.`` or ``_`` is no input (``_SUCCESS``), and not among the skipped ones.

    Raises:
        SettingError: there is no file of objects in a folder.
    """
    files: list[Path] = []
    skipped: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        within = [each for each in sorted(path.rglob("*")) if each.is_file() and not _is_hidden(each.relative_to(path))]
        known = [each for each in within if is_known(each)]
        if not known:
            raise SettingError(str(path), f"is a folder without files of objects; it has {len(within)} others")
        files += known
        skipped += [each for each in within if not is_known(each)]
    return files, skipped


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def spooled(stream: BinaryIO, folder: Path) -> Path:
    """A stream as a file in a folder, whose name says its format and its content: the same content has the same name.

    Raises:
        SettingError: its format cannot be told.
        OSError: it cannot be read, or kept.
    """
    start = stream.read(_PIECE)
    suffix = _suffix(start)
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=folder, prefix=".input-")
    try:
        with os.fdopen(handle, "wb") as file:
            while start:
                digest.update(start)
                file.write(start)
                start = stream.read(_PIECE)
        os.utime(name, (0, 0))  # a run knows its files by name, size and time
        return Path(name).replace(folder / f"input-{digest.hexdigest()[:16]}{suffix}")
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def _suffix(start: bytes) -> str:
    """The end of the name that a file with these first bytes would have."""
    if start.startswith(_PARQUET):
        return ".parquet"
    if start.startswith(_GZIP):
        return _text_suffix(zlib.decompressobj(_GZIP_WINDOW).decompress(start, _PIECE)) + ".gz"
    if start.startswith(_ZSTD):
        with suppress(pa.ArrowInvalid, OSError):
            return _text_suffix(pa.CompressedInputStream(io.BytesIO(start), "zstd").read(1 << 12)) + ".zst"
    return _text_suffix(start)


def _text_suffix(start: bytes) -> str:
    text = start.removeprefix(_BOM).lstrip()
    if text.startswith((b"{", b"[", b"\x1e")):
        return ".json"
    if b"\0" in start:
        told = "JSON, text with columns and Parquet are known"
        raise SettingError("-", f"has an unknown format; it begins with {start[:8]!r}, and {told}")
    first = text.partition(b"\n")[0].decode(errors="replace")
    return ".csv" if found_separator([first]) == "," else ".txt"

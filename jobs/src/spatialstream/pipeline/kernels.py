"""All compiled kernels, made ready before the first epoch."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

from spatialstream.index import version
from spatialstream.local import ckq, crq, ctq, segments, skyband
from spatialstream.model import decode
from spatialstream.model.kernels import cache_folder

__all__ = ["compile_kernels", "prepare"]

_MODULES: tuple[Callable[[], None], ...] = (
    decode.prepare,
    version.prepare,
    segments.prepare,
    crq.prepare,
    ckq.prepare,
    skyband.prepare,
    ctq.prepare,
)

_alone = threading.Lock()
"""Sources are read and compiled by one thread at a time: Python's parser is not for several."""


def prepare(report: Callable[[int, int], None] | None = None) -> None:
    """Compile every kernel, or load it from the cache on disk.

    Args:
        report: called as (done, total) after each module, for a progress display.
    """
    for done, prepare_module in enumerate(_MODULES, 1):
        prepare_module()
        if report is not None:
            report(done, len(_MODULES))


def _stamp() -> str:
    """Where the files with kernels are, and their state: numba looks at these too before it takes machine code."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(str(package).encode())
    for folder in ("model", "index", "local"):
        for path in sorted((package / folder).glob("**/*.py")):
            state = path.stat()
            digest.update(f"{path.name} {state.st_mtime_ns} {state.st_size} ".encode())
    return digest.hexdigest()[:16]


def compile_kernels(report: Callable[[int, int], None] | None = None) -> None:
    """Make sure that every kernel is in the cache on disk: a minute or two the first time, else at once."""
    with _alone:
        marker = cache_folder() / f"complete-{_stamp()}"
        if not marker.exists():
            prepare(report)
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()

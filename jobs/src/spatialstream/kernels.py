"""Compilation of all kernels before the first epoch.

``python -m spatialstream.kernels`` compiles all kernels and prints its progress; with names of modules as arguments, it
compiles only those.

Cost: one to four minutes of CPU time the first time, two thirds of it for the kernels of two modules; up to three
processes share the work. Each has its own cache, because numba's cache does not support two writers: they number the
versions of a function independently, so that one writer's index may refer to the other's machine code.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from numba.core.registry import cpu_target

from spatialstream.index import version
from spatialstream.local.best import cbq
from spatialstream.local.nearest import ckq, skyband
from spatialstream.local.range import crq
from spatialstream.local.snapshot import segments
from spatialstream.local.terms import ctq
from spatialstream.model.kernels import cache_folder
from spatialstream.records import decode

__all__ = ["Report", "compile_kernels", "main", "prepare"]

Report = Callable[[str, int, int], None]
"""Called as (module, done, total) after each module, for a progress display."""

MODULES: dict[str, Callable[[], None]] = {
    "decode": decode.prepare,
    "version": version.prepare,
    "segments": segments.prepare,
    "crq": crq.prepare,
    "ckq": ckq.prepare,
    "skyband": skyband.prepare,
    "ctq": ctq.prepare,
    "cbq": cbq.prepare,
}

GROUPS = (("segments",), ("crq", "ctq", "skyband", "ckq", "cbq"), ("decode", "version"))
"""The modules that each process compiles: modules that share kernels. The longest group first."""

_alone = threading.Lock()
"""Only one thread at a time reads and compiles sources, because Python's parser is not thread-safe."""


def prepare(report: Report | None = None) -> None:
    """Compile every kernel, or load it from the cache on disk."""
    for done, (name, prepare_module) in enumerate(MODULES.items(), 1):
        prepare_module()
        if report is not None:
            report(name, done, len(MODULES))


def stamp() -> str:
    """Digest of what numba's cache depends on besides the folder: the sources, Python's version and the processor."""
    package = Path(__file__).resolve().parent
    target = (*sys.version_info[:2], *cpu_target.target_context.codegen().magic_tuple())
    digest = hashlib.sha256(repr(target).encode())
    for folder in ("model", "records", "index", "local"):
        for path in sorted((package / folder).glob("**/*.py")):
            digest.update(f" {path.relative_to(package)} ".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compile_kernels(report: Report | None = None) -> None:
    """Ensure that every kernel is in the cache on disk. Returns at once if so, else takes half a minute to minutes.

    If several processes call this, one compiles and the others wait.
    """
    with _alone:
        _make_complete(report)


def _make_complete(report: Report | None) -> None:
    folder = cache_folder()
    marker = folder / f"complete-{stamp()}"
    if marker.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if marker.exists():
            return
        for left in folder.glob("aside-*"):  # left by a killed process
            shutil.rmtree(left)
        processors = os.cpu_count() or 1
        if processors > 1 and not any(folder.glob("*/*.nbi")):
            _compile_apart(folder, processors, report)
            report = None
        prepare(report)
        marker.touch()


def _compile_apart(folder: Path, processors: int, report: Report | None) -> None:
    """Compile each group in its own process, and merge the caches.

    Kernels that are missing afterwards, because a process failed or two processes compiled the same module, are
    compiled by :func:`prepare`.
    """
    finished: SimpleQueue[str | None] = SimpleQueue()
    running: list[subprocess.Popen[str]] = []

    def compile_group(group: Sequence[str]) -> None:
        try:
            environment = os.environ | {"SPATIALSTREAM_CACHE": f"{aside}/{group[0]}"}
            command = [sys.executable, "-m", f"{__package__}.kernels", *group]
            with subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as process:
                running.append(process)
                for line in process.stdout or ():
                    finished.put(line.strip())
        finally:
            finished.put(None)

    with TemporaryDirectory(prefix="aside-", dir=folder) as aside, ThreadPoolExecutor(processors) as pool:
        try:
            groups = [pool.submit(compile_group, group) for group in GROUPS]
            compiled, ended = 0, 0
            while ended < len(groups):
                name = finished.get()
                ended += name is None
                if name in MODULES:
                    compiled += 1
                    if report is not None:
                        report(name, compiled, len(MODULES))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.kill()
            raise
        caches = [Path(aside, group[0], "spatialstream", folder.name) for group in GROUPS]
        gather(caches, folder)


def gather(caches: Sequence[Path], folder: Path) -> None:
    """Move the functions that only one of the caches contains to ``folder``, and the tables beside them."""
    for cache in caches:
        for table in cache.glob("*.npy"):
            table.replace(folder / table.name)
        for index in cache.glob("*/*.nbi"):
            place = index.relative_to(cache)
            if sum((other / place).exists() for other in caches) > 1:
                continue
            (folder / place).parent.mkdir(exist_ok=True)
            for code in index.parent.glob(f"{glob.escape(index.stem)}.*.nbc"):
                code.replace(folder / place.parent / code.name)
            index.replace(folder / place)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(names: Sequence[str]) -> None:
    """Compile the named modules and print each name when done; without names, all modules, with readable progress."""
    if names:
        for name in names:
            MODULES[name]()
            _say(name)
        return
    began = time.monotonic()

    def tell(name: str, done: int, total: int) -> None:
        _say(f"    {name}: {done} of {total}, {time.monotonic() - began:.0f} s")

    compile_kernels(tell)


if __name__ == "__main__":
    main(sys.argv[1:])

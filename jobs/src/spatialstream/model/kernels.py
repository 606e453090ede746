"""Compiled kernels: the decorator, and the location of the machine code.

numba compiles kernels on first use and caches them on disk. A stream never waits for the compiler: every module with
kernels has a ``prepare()`` that runs each of them once on a tiny input, and the pipeline calls all of these functions
before its first epoch.

numba does not notice when a function that a cached kernel *calls* changes in another file. So the cache folder is named
after a digest of all kernels and constants of the package: an edit of any of them starts an empty cache, never uses a
stale one. For the same reason numba does not need the paths and modification times of the sources: the cache is keyed
by content, so another clone or environment of the same user reuses it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, types

__all__ = [
    "KernelLocator",
    "cache_folder",
    "inlined_kernel",
    "kernel",
    "lean_kernel",
    "one_for_all_values",
    "user_cache",
]

_F = TypeVar("_F", bound=Callable[..., Any])

_unliteral: Callable[[Any], Any] = types.unliteral

_LEAN: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}

_DECORATORS = {"kernel", "lean_kernel", "inlined_kernel", "intrinsic"}


def _one_at_a_time(function: _F) -> _F:
    """Serialize calls: Python 3.11 fails if threads parse concurrently ("AST constructor recursion depth mismatch")."""
    lock = threading.Lock()

    @functools.wraps(function)
    def locked(*args: Any) -> Any:
        with lock:
            return function(*args)

    return cast(_F, locked)


def _package() -> Path:
    return Path(__file__).resolve().parent.parent


def _compiled_lines(source: bytes) -> Iterator[bytes]:
    """The lines of a module that machine code depends on: kernels, named tuples, code generators and constants."""
    lines = source.splitlines()
    generates = b"import intrinsic" in source
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            counts = generates or any(
                isinstance(each, ast.Name) and each.id in _DECORATORS for each in node.decorator_list
            )
        elif isinstance(node, ast.ClassDef):
            counts = any(isinstance(each, ast.Name) and each.id == "NamedTuple" for each in node.bases)
        else:
            counts = isinstance(node, ast.Assign | ast.AnnAssign)
        if counts:
            yield from lines[node.lineno - 1 : node.end_lineno]


def user_cache() -> Path:
    """The folder of this package in the user's cache."""
    base = os.environ.get("SPATIALSTREAM_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spatialstream"


@_one_at_a_time
def cache_folder() -> Path:
    """The cache folder for exactly this version of the kernels and of numba.

    Parsing all modules takes 0.4 s, in every process; so a file in the cache names the folder of the sources that were
    parsed last.
    """
    caches = user_cache()
    sources = list(_sources())
    content = _digest(str(len(source)).encode() + b" " + source for source in sources)
    last = caches / "parsed-last"
    with suppress(OSError, ValueError):
        parsed, name = last.read_text().split()
        if parsed == content:
            return caches / name
    name = "kernels-" + _digest(b"\n".join(_compiled_lines(source)) for source in sources)
    with suppress(OSError):  # a cache that cannot be written is one without this file
        caches.mkdir(parents=True, exist_ok=True)
        aside = caches / f".parsed-last.{os.getpid()}"
        aside.write_text(f"{content} {name}")
        aside.replace(last)
    return caches / name


def _sources() -> Iterator[bytes]:
    """The modules that may have kernels, or constants of kernels."""
    for folder in ("model", "records", "index", "local"):
        for path in sorted((_package() / folder).glob("**/*.py")):
            yield path.read_bytes()


def _digest(parts: Iterable[bytes]) -> str:
    """16 hexadecimal digits for the version of numba and these parts."""
    digest = hashlib.sha256(numba.__version__.encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


class KernelLocator(caching.UserProvidedCacheLocator):
    """Locates the cache of this package's kernels in :func:`cache_folder`, independent of where the package is."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)  # type: ignore[no-untyped-call]
        place = Path(file).resolve().relative_to(_package()).parent
        self._cache_path = str(Path(_CONFIG.CACHE_DIR, ".".join(place.parts)))

    def get_source_stamp(self) -> bytes:
        """A constant: the folder name already identifies the source."""
        return b""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """A locator for functions of this package; None for others, which numba locates in its own ways."""
        ours = Path(file).resolve().is_relative_to(_package())
        return super().from_function(function, file) if ours else None  # type: ignore[no-untyped-call]


_CONFIG: Any = numba.config
_CONFIG.CACHE_DIR = str(cache_folder())
_CONFIG.CACHE_LOCATOR_CLASSES = ",".join(
    [
        f"{__name__}.{KernelLocator.__name__}",
        _CONFIG.CACHE_LOCATOR_CLASSES or ",".join(each.__name__ for each in caching.CacheImpl._locator_classes),
    ]
)


def one_for_all_values(compiled: Any) -> Any:
    """Make calls from other kernels share one compiled version of a function for all values of its arguments.

    For an argument that is a constant, or is initialized with one (``m = 0`` before a loop), numba otherwise compiles
    another version for that literal value. In the second case it then finds that the type is wider, and never calls
    the literal version.
    """
    template = compiled.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return template(tuple(map(_unliteral, args)), {name: _unliteral(kws[name]) for name in kws})

    compiled.get_call_template = get_call_template
    return compiled


def kernel(function: _F) -> _F:
    """Compile a function of scalars and C-contiguous arrays in nopython mode, cached on disk.

    Floating-point semantics are strict (no ``fastmath``): a kernel's results are bit-identical to those of the same
    code in plain Python, so tests can compare them exactly. Array arguments are always writable (see
    :mod:`spatialstream.model.arrays`), so that each kernel has a single signature.
    """
    return cast(_F, one_for_all_values(numba.njit(cache=True, nogil=True)(function)))


def lean_kernel(function: _F) -> _F:
    """Compile a :func:`kernel` that allocates nothing, without reference counting.

    numba atomically counts a reference to every array argument, and to every array of a tuple: about 10 ns per array
    and call, which is more than most inner functions take. A kernel that allocates nothing does not need the counts.
    """
    return cast(_F, one_for_all_values(numba.njit(**_LEAN)(function)))


def inlined_kernel(function: _F) -> _F:
    """Compile a :func:`lean_kernel` into each of its callers, for functions with many arrays, called for each item.

    numba passes an array as seven or more words on the stack, and LLVM inlines no function of some length by itself: a
    fifth of the time of the JSON scanner was spent on such arguments (``python -m tests.benchmarks.bench_decode``).
    """
    return cast(_F, one_for_all_values(numba.njit(**_LEAN, forceinline=True)(function)))

"""Compiled kernels: the one decorator, and where the machine code is kept.

Kernels are compiled by numba on first use and cached on disk, so a stream never waits for a compiler: every module with
kernels has a ``prepare()`` that runs each of them once on a tiny input, and the pipeline calls all of those before its
first epoch.

numba does not notice when a function that a cached kernel *calls* has changed in another file. So the cache folder is
named after a digest of all the package's kernels and constants: an edit of one gives a fresh cache, never a stale one.
For the same reason numba need not ask where the sources are, and when they were written: machine code is found by what
it is made from, so another clone or environment compiles nothing that this user has compiled before.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, types

__all__ = ["KernelLocator", "cache_folder", "kernel", "one_for_all_values"]

_F = TypeVar("_F", bound=Callable[..., Any])

_unliteral: Callable[[Any], Any] = types.unliteral

_DECORATORS = {"kernel", "lean_kernel", "intrinsic"}


def _one_at_a_time(function: _F) -> _F:
    """Python 3.11 fails in threads that parse at the same time: "AST constructor recursion depth mismatch"."""
    lock = threading.Lock()

    @functools.wraps(function)
    def locked(*args: Any) -> Any:
        with lock:
            return function(*args)

    return cast(_F, locked)


def _package() -> Path:
    return Path(__file__).resolve().parent.parent


def _compiled_lines(source: bytes) -> Iterator[bytes]:
    """The lines of a module that machine code depends on: kernels, named tuples, generators of code, and constants."""
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


@_one_at_a_time
def cache_folder() -> Path:
    """The folder of the compiled kernels of exactly these kernels and this numba version."""
    package = _package()
    digest = hashlib.sha256(numba.__version__.encode())
    for folder in ("model", "records", "index", "local"):
        for path in sorted((package / folder).glob("**/*.py")):
            digest.update(b"\n".join(_compiled_lines(path.read_bytes())))
    base = os.environ.get("SPATIALSTREAM_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spatialstream" / f"kernels-{digest.hexdigest()[:16]}"


class KernelLocator(caching.UserProvidedCacheLocator):
    """Where numba keeps a kernel of this package: in the folder of these kernels, wherever the package is."""

    def __init__(self, function: Any, file: str) -> None:
        super().__init__(function, file)  # type: ignore[no-untyped-call]
        place = Path(file).resolve().relative_to(_package()).parent
        self._cache_path = str(Path(_CONFIG.CACHE_DIR, ".".join(place.parts)))

    def get_source_stamp(self) -> bytes:
        """The same for any state of the source: the folder is of these kernels alone."""
        return b""

    @classmethod
    def from_function(cls, function: Any, file: str) -> Any:
        """None for functions of others, which numba finds in its own ways."""
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
    """Make a compiled function one whose callers in other kernels share the machine code for any value of an argument.

    For an argument that is a constant, or that begins as one (``m = 0`` before a loop), numba compiles the function
    once more for that very value; in the second case only to find that the type is wider, and the copy is never called.
    """
    template = compiled.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        return template(tuple(map(_unliteral, args)), {name: _unliteral(kws[name]) for name in kws})

    compiled.get_call_template = get_call_template
    return compiled


def kernel(function: _F) -> _F:
    """Compile a function of scalars and C-contiguous arrays in nopython mode, cached on disk.

    Floating-point semantics are strict (no ``fastmath``): a kernel gives the same bits as the plain Python that it
    replaces, which is what makes exactness testable. Array arguments are always writable ones (see
    :mod:`spatialstream.model.arrays`), so that each kernel has a single signature.
    """
    return cast(_F, one_for_all_values(numba.njit(cache=True, nogil=True)(function)))

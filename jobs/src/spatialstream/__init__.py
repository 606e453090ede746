"""spatialstream: standing and one-off questions over a fast stream of objects with a place, a time and a text.

The public surface: :func:`answer` (DataFrames in and out), :func:`run` with :class:`RunSettings` (files in and out),
and the types of :mod:`spatialstream.model`. All of it is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialstream.pipeline.frames import answer
    from spatialstream.pipeline.run import RunSettings, RunSummary, run

__version__ = "0.1.0"

__all__ = ["RunSettings", "RunSummary", "answer", "run"]


def __getattr__(name: str) -> Any:
    if name == "answer":
        from spatialstream.pipeline.frames import answer

        return answer
    if name in __all__:
        from spatialstream.pipeline import run

        return getattr(run, name)
    raise AttributeError(f"module 'spatialstream' has no attribute {name!r}")

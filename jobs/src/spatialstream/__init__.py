"""spatialstream: standing and one-off questions over a fast stream of objects with a place, a time and a text.

The public surface: :func:`answer` (DataFrames in and out), :func:`answer_stream` (the same with streaming DataFrames,
answered by an :class:`AnswerStream`), :func:`run` with :class:`RunSettings` (files in and out), and the types of
:mod:`spatialstream.model`. All of it is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialstream.spark.answers import AnswerStream, RejectedWarning, answer, answer_stream
    from spatialstream.spark.run import RunSettings, RunSummary, run

__version__ = "0.1.0"

__all__ = ["AnswerStream", "RejectedWarning", "RunSettings", "RunSummary", "answer", "answer_stream", "run"]

_ANSWERS = {"AnswerStream", "RejectedWarning", "answer", "answer_stream"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'spatialstream' has no attribute {name!r}")
    return getattr(import_module(f"spatialstream.spark.{'answers' if name in _ANSWERS else 'run'}"), name)

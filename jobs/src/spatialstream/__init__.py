"""spatialstream: continuous and snapshot queries over a fast stream of objects with a place, a time and a text.

The public API: :func:`answer` (DataFrames in and out), :func:`answer_stream` (streaming DataFrames; returns an
:class:`AnswerStream`), :func:`run` with :class:`RunSettings` (files in and out), :func:`connect` (returns a
:class:`Stream`, the client of a running stream), :class:`Map` (a map of objects for notebooks), and the types of
:mod:`spatialstream.model`. All of them are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialstream.client.stream import Stream, connect
    from spatialstream.report.map import Map
    from spatialstream.spark.answer_stream import AnswerStream, answer_stream
    from spatialstream.spark.answers import RejectedWarning, answer
    from spatialstream.spark.run import RunSettings, RunSummary, run

__version__ = "0.1.0"

_MODULES = {
    "client.stream": ("Stream", "connect"),
    "report.map": ("Map",),
    "spark.answers": ("RejectedWarning", "answer"),
    "spark.answer_stream": ("AnswerStream", "answer_stream"),
    "spark.run": ("RunSettings", "RunSummary", "run"),
}

__all__ = [
    "AnswerStream",
    "Map",
    "RejectedWarning",
    "RunSettings",
    "RunSummary",
    "Stream",
    "answer",
    "answer_stream",
    "connect",
    "run",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"spatialstream.{module}"), name)
    raise AttributeError(f"module 'spatialstream' has no attribute {name!r}")

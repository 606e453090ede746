"""spatialstream: continuous and snapshot queries over a fast stream of objects with a place, a time and a text.

The public API; every name is loaded on first use.

- Run queries: :func:`answer` (DataFrames or files in, :class:`Answers` out), :func:`answer_stream` (streaming
  DataFrames, an :class:`AnswerStream`), :func:`run` with :class:`RunSettings` (files in and out, a
  :class:`RunSummary`), :func:`brute_force` (records in and out, for tests); files may have an :class:`InputLayout`.
- Running streams: :func:`connect` returns a :class:`Stream` with ``ask``, ``register``, ``cancel``, ``send``, ``watch``
  (a :class:`Subscription`), ``queries`` (:class:`RegisteredQueries`) and ``describe``; a row is an :class:`Answer`.
  :class:`Connection` and :class:`TlsFiles` say how to reach protected servers.
- Queries: :class:`SRQ`, :class:`SKQ`, :class:`STQ`, :class:`SBQ` (each a :class:`SnapshotQuery`), :class:`CRQ`,
  :class:`CKQ`, :class:`CTQ`, :class:`CBQ` (each a :class:`ContinuousQuery`), :class:`Cancel`; regions: :class:`Box`,
  :class:`Circle`, :class:`Polygon`, :class:`Area`. Wherever a query is taken, a dictionary of the JSON form is taken,
  too.
- Space, time and text: :class:`Space` and ``WGS84``, :func:`parse_time`, :func:`extract_terms` and :class:`TermRule`,
  which also has the stream's :class:`Properties`.
- Notebooks: :class:`Map`.
- Other Kafka clients: ``CLOCK`` and :func:`watermark`, :class:`Deduplicator`, :class:`Assembler`.
- Errors: :class:`SpatialStreamError` and the tree below it, in :mod:`spatialstream.model.errors`;
  :class:`RejectedWarning`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialstream.client.answer import Answer
    from spatialstream.client.stream import RegisteredQueries, Stream, connect
    from spatialstream.client.subscription import Subscription
    from spatialstream.connectors.delivery import Assembler, Deduplicator
    from spatialstream.connectors.kafka import Connection
    from spatialstream.model.errors import (
        AllRejected,
        Conflict,
        Gone,
        Lost,
        Missing,
        NoStorage,
        NotServed,
        RecordError,
        Replaced,
        RunError,
        ServerError,
        SettingError,
        SpatialStreamError,
        StateError,
        Suspended,
        TooLarge,
        Unavailable,
    )
    from spatialstream.model.properties.declared import Properties
    from spatialstream.model.space import WGS84, Space
    from spatialstream.model.terms import TermRule, extract_terms
    from spatialstream.model.times import parse_time
    from spatialstream.model.typed_queries import (
        CBQ,
        CKQ,
        CRQ,
        CTQ,
        SBQ,
        SKQ,
        SRQ,
        STQ,
        Area,
        Box,
        Cancel,
        Circle,
        ContinuousQuery,
        Polygon,
        SnapshotQuery,
    )
    from spatialstream.oracle.records import brute_force
    from spatialstream.records.layout import InputLayout
    from spatialstream.report.map import Map
    from spatialstream.spark.answer_stream import AnswerStream, answer_stream
    from spatialstream.spark.answers import Answers, RejectedWarning, answer
    from spatialstream.spark.run import RunSettings, RunSummary, run
    from spatialstream.stages.ingest import CLOCK, watermark
    from spatialstream.store.tls import TlsFiles

__version__ = "0.1.0"

__all__ = [
    "CBQ",
    "CKQ",
    "CLOCK",
    "CRQ",
    "CTQ",
    "SBQ",
    "SKQ",
    "SRQ",
    "STQ",
    "WGS84",
    "AllRejected",
    "Answer",
    "AnswerStream",
    "Answers",
    "Area",
    "Assembler",
    "Box",
    "Cancel",
    "Circle",
    "Conflict",
    "Connection",
    "ContinuousQuery",
    "Deduplicator",
    "Gone",
    "InputLayout",
    "Lost",
    "Map",
    "Missing",
    "NoStorage",
    "NotServed",
    "Polygon",
    "Properties",
    "RecordError",
    "RegisteredQueries",
    "RejectedWarning",
    "Replaced",
    "RunError",
    "RunSettings",
    "RunSummary",
    "ServerError",
    "SettingError",
    "SnapshotQuery",
    "Space",
    "SpatialStreamError",
    "StateError",
    "Stream",
    "Subscription",
    "Suspended",
    "TermRule",
    "TlsFiles",
    "TooLarge",
    "Unavailable",
    "answer",
    "answer_stream",
    "brute_force",
    "connect",
    "extract_terms",
    "parse_time",
    "run",
    "watermark",
]

_MODULES = {
    "client.answer": ("Answer",),
    "client.stream": ("RegisteredQueries", "Stream", "connect"),
    "client.subscription": ("Subscription",),
    "connectors.delivery": ("Assembler", "Deduplicator"),
    "connectors.kafka": ("Connection",),
    "model.properties.declared": ("Properties",),
    "model.space": ("WGS84", "Space"),
    "model.terms": ("TermRule", "extract_terms"),
    "model.times": ("parse_time",),
    "model.typed_queries": (
        *("CBQ", "CKQ", "CRQ", "CTQ", "SBQ", "SKQ", "SRQ", "STQ"),
        *("Area", "Box", "Cancel", "Circle", "ContinuousQuery", "Polygon", "SnapshotQuery"),
    ),
    "oracle.records": ("brute_force",),
    "records.layout": ("InputLayout",),
    "report.map": ("Map",),
    "spark.answer_stream": ("AnswerStream", "answer_stream"),
    "spark.answers": ("Answers", "RejectedWarning", "answer"),
    "spark.run": ("RunSettings", "RunSummary", "run"),
    "stages.ingest": ("CLOCK", "watermark"),
    "store.tls": ("TlsFiles",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'spatialstream' has no attribute {name!r}")
    return getattr(import_module(f"spatialstream.{_MODULE_OF.get(name, 'model.errors')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

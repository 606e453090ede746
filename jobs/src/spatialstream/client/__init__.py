"""Client library of a running stream: send records, query, and follow results with each row once and complete.

- :class:`Connection` holds the broker's address, :class:`TlsFiles` the files for TLS to ZooKeeper;
- :class:`QuerySession` sends queries and reads their answers; :func:`check_queries` refuses in advance those that the
  stream would reject;
- :class:`SnapshotClient` has snapshot queries answered between the stream's rounds;
- :class:`Results` follows all results from a position on; a :class:`Cursor` is a position as a string;
- a :class:`Subscription` iterates over the rows of one continuous query, which it registers if needed; each row is an
  :class:`Answer`;
- a :class:`RecordWriter` sends records on behalf of others, and reports which of them the stream rejected;
- :class:`Areas` reads and writes the polygons that a stream knows by name;
- a :class:`LiveSample` reads a sample of the objects as they are sent, for display;
- :class:`Sender` sends objects, queries and watermarks at a rate, and :class:`Watch` measures the age of results;
- for use with another Kafka client: :data:`CLOCK` and :func:`watermark` are key and value of a watermark, and
  :class:`Deduplicator` and :class:`Assembler` turn messages of results into rows;
- :func:`write_archive` writes objects into a :class:`Folder` as the worker does when retention drops them.

All names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialstream.client.answer import Answer
    from spatialstream.client.areas import Areas, Loaded
    from spatialstream.client.cursor import Cursor
    from spatialstream.client.latency import Latencies, Watch
    from spatialstream.client.live_sample import LiveSample
    from spatialstream.client.query_session import PendingQueries, QuerySession, check_queries
    from spatialstream.client.record_writer import RecordWriter
    from spatialstream.client.results import Results
    from spatialstream.client.sending import Sender, with_own_ids
    from spatialstream.client.snapshot_client import SnapshotClient
    from spatialstream.client.stream import Stream, connect
    from spatialstream.client.subscription import Subscription
    from spatialstream.connectors.delivery import Assembler, Deduplicator
    from spatialstream.connectors.folder import Folder
    from spatialstream.connectors.kafka import Connection
    from spatialstream.stages.archive import write_archive
    from spatialstream.stages.ingest import CLOCK, watermark
    from spatialstream.store.tls import TlsFiles

__all__ = [
    "CLOCK",
    "Answer",
    "Areas",
    "Assembler",
    "Connection",
    "Cursor",
    "Deduplicator",
    "Folder",
    "Latencies",
    "LiveSample",
    "Loaded",
    "PendingQueries",
    "QuerySession",
    "RecordWriter",
    "Results",
    "Sender",
    "SnapshotClient",
    "Stream",
    "Subscription",
    "TlsFiles",
    "Watch",
    "check_queries",
    "connect",
    "watermark",
    "with_own_ids",
    "write_archive",
]

_MODULES = {
    "client.answer": ("Answer",),
    "client.areas": ("Areas", "Loaded"),
    "client.query_session": ("QuerySession", "PendingQueries", "check_queries"),
    "client.cursor": ("Cursor",),
    "client.live_sample": ("LiveSample",),
    "client.record_writer": ("RecordWriter",),
    "client.latency": ("Latencies", "Watch"),
    "client.results": ("Results",),
    "client.stream": ("Stream", "connect"),
    "client.sending": ("Sender", "with_own_ids"),
    "client.snapshot_client": ("SnapshotClient",),
    "client.subscription": ("Subscription",),
    "connectors.folder": ("Folder",),
    "connectors.kafka": ("Connection",),
    "stages.archive": ("write_archive",),
    "connectors.delivery": ("Assembler", "Deduplicator"),
    "stages.ingest": ("CLOCK", "watermark"),
    "store.tls": ("TlsFiles",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"spatialstream.{module}"), name)
    raise AttributeError(f"module 'spatialstream.client' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for names in _MODULES.values() for name in names)

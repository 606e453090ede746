"""What a user of a running stream does: send records, ask, follow results, have each row once and whole.

- :class:`Connection` says where the broker is, :class:`TlsFiles` what an encrypted connection to ZooKeeper needs;
- :class:`QuerySession` sends queries and reads their answers; :func:`check_queries` tells first what would be rejected;
- :class:`SnapshotClient` asks snapshot queries between the stream's rounds;
- :class:`Results` follows all results, from a position on; a :class:`Cursor` is one as a word;
- a :class:`Subscription` has the rows of one continuous query, registered if need be; an :class:`Answer` is one of
  them;
- an :class:`RecordWriter` sends for others, and knows what becomes of it;
- a :class:`LiveSample` shows people some of the objects as they are sent;
- :class:`Sender` sends objects, queries and watermarks at a rate, and :class:`Watch` measures how old results are;
- with another client of Kafka: :data:`CLOCK` and :func:`watermark` are the key and the value of a watermark, a
  :class:`Deduplicator` and an :class:`Assembler` make rows of messages of results;
- :func:`write_archive` writes objects into a :class:`Folder` as the worker does when retention drops them.

All of it is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spatialstream.client.answer import Answer
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
    "Assembler",
    "Connection",
    "Cursor",
    "Deduplicator",
    "Folder",
    "Latencies",
    "LiveSample",
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

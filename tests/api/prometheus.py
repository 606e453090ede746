"""A server that answers the operator's queries as Prometheus would, with metrics that a test sets."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["FakePrometheus", "Known"]


@dataclass
class Known:
    """What is known of one stream.

    Attributes:
        loads: of each slot.
        version: of the routing version that they are of.
        arrivals: objects a second.
        busy: cores that tasks keep busy.
        cores: cores that there are.
        delay: seconds, 95th percentile.
        age: seconds since the samples were scraped.
        accepted: records by kind, in the last two minutes.
        rejected: records by kind and reason, likewise.
        routing: cores of the router's executors that tasks keep busy, of one.
        waiting: messages that wait for the router, which reads a hundred a second.
    """

    loads: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    version: int = 0
    arrivals: float = 100.0
    busy: float = 0.5
    cores: float = 1.0
    delay: float = 0.3
    age: float = 0.0
    accepted: dict[str, float] = field(default_factory=dict)
    rejected: dict[tuple[str, str], float] = field(default_factory=dict)
    routing: float = 0.5
    waiting: float = 0.0

    def answer(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The series that a query finds."""
        at = time.time() - self.age
        if query.startswith("{__name__"):
            single = {
                "spatialstream_imbalance_ratio": max(self.loads) / min(self.loads),
                "spatialstream_worker_active_version": self.version,
                "spatialstream_worker_last_round_timestamp_seconds": at,
                "spatialstream_worker_cores": self.cores,
            }
            slots = [
                ({"__name__": "spatialstream_slot_load", "slot": str(slot)}, load)
                for slot, load in enumerate(self.loads)
            ]
            return [({"__name__": name}, value) for name, value in single.items()] + slots
        if query.startswith("sum by (kind) (increase(spatialstream_router_records_total"):
            return [({"kind": kind}, value) for kind, value in self.accepted.items()]
        if query.startswith("sum by (kind, reason) (increase(spatialstream_router_rejected_total"):
            return [({"kind": kind, "reason": reason}, value) for (kind, reason), value in self.rejected.items()]
        for begin, value in (
            ("sum(increase(spatialstream_worker_rejected_total", 0.0),
            ("timestamp(spatialstream_imbalance_ratio", at),
            ("sum(rate(spatialstream_slot_objects_total", self.arrivals),
            ("sum(rate(spatialstream_slot_busy_seconds_total", self.busy / 10),
            ("sum(rate(spatialstream_worker_task_seconds_total", self.busy),
            ("histogram_quantile(0.95", self.delay),
            ("count(spatialstream_leaf_objects", 7.0),
            ("sum(spatialstream_router_lag_messages", 12.0),
            ("spatialstream_router_cores", 1.0),
            ("timestamp(spatialstream_router_cores", at),
            ("sum(rate(spatialstream_router_task_seconds_total", self.routing),
            ("sum(avg_over_time(spatialstream_router_lag_messages", self.waiting),
            ("sum(deriv(spatialstream_router_lag_messages", 0.0),
            ("sum(rate(spatialstream_router_messages_total", 100.0),
        ):
            if query.startswith(begin):
                return [({}, value)]
        raise AssertionError(f"an unexpected query: {query}")


@dataclass
class FakePrometheus:
    """The server.

    Attributes:
        known: by (namespace, stream).
        away: whether it answers every query with an error.
    """

    known: dict[tuple[str, str], Known] = field(default_factory=dict)
    away: bool = False

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                (query,) = urllib.parse.parse_qs(self.rfile.read(length).decode())["query"]
                content = b"upstream is away" if fake.away else json.dumps(fake.asked(query)).encode()
                with contextlib.suppress(ConnectionError):  # who has asked may have been killed meanwhile
                    self.send_response(503 if fake.away else 200)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self, query: str) -> dict[str, Any]:
        """The answer to a query."""
        found = re.search(r'namespace="([^"]*)",pod="([^"]*)-(?:router|worker)"', query)
        assert found is not None, query
        known = self.known.get((found[1], found[2]))
        series = [] if known is None else known.answer(query)
        result = [{"metric": labels, "value": [time.time(), str(value)]} for labels, value in series]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

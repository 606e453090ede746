"""Rounds with load records, and a reporter for which enough time passes between two of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from spatialstream.connectors.contracts import Storage
from spatialstream.generate import GenerateSettings, object_batches, query_batch
from spatialstream.index.version import RoutingVersion
from spatialstream.model.kinds import QueryType
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.stages.tasks import Summary
from spatialstream.stages.turns import Round
from spatialstream.store.base import RoutingStore
from spatialstream.stream.load_report import LoadObserver, LoadReporter
from spatialstream.stream.worker import RoundRecord

SLOTS = 3


def sample() -> tuple[ObjectBatch, QueryBatch]:
    """The sample from which versions are built."""
    settings = GenerateSettings(objects=500, queries={QueryType.CRQ: 20, QueryType.SRQ: 20})
    return ObjectBatch.concat(list(object_batches(settings))), query_batch(settings)


def round_of(number: int, version: RoutingVersion, loads: dict[int, dict[str, Any]]) -> tuple[RoundRecord, Summary]:
    turn = Round(number, (number,), (0,), 1_000 * number, version.number)
    record = RoundRecord(turn, number, (0,) * SLOTS, (1,) * SLOTS, births=(0,))
    return record, Summary(2, 1, {"CRQ": 2 * number, "rejected": number}, loads)


def load_of(version: RoutingVersion, slot: int) -> dict[str, Any]:
    """The report of a slot that got four objects in each of its leaves."""
    leaves = np.flatnonzero(version.mapping == slot).tolist()
    return {
        "objects": 4 * len(leaves),
        "matches": 3,
        "seconds": 0.25,
        "held": 7,
        "bytes": 1_000,
        "continuous": {"CRQ": 5, "CKQ": 1, "CTQ": 0},
        "leaves": leaves,
        "leaf_objects": [4] * len(leaves),
        "leaf_checked": [9] * len(leaves),
        "leaf_matches": [1] * len(leaves),
        "spent": {"match": 0.1, "results": 0.02, "objects": 0.08, "queries": 0.0},
        "queries": {"SRQ": 2, "CRQ": 1},
        "leaf_queries": {"SRQ": [leaves, [1] * len(leaves)], "CRQ": [leaves, [1] * len(leaves)]},
        "leaf_continuous": {"CRQ": [leaves, [2] * len(leaves)], "CTQ": [leaves, [1] * len(leaves)]},
    }


def loads_of(version: RoutingVersion) -> dict[int, dict[str, Any]]:
    """The reports of all slots."""
    return {slot: load_of(version, slot) for slot in range(SLOTS)}


class Hourly:
    """A reporter for which an hour passes before each round."""

    def __init__(self, storage: Storage, store: RoutingStore, observer: LoadObserver | None = None) -> None:
        self._now = 0.0
        self._reporter = LoadReporter(storage, store, None, observer, lambda: self._now)
        self.reported = self._reporter.reported

    def observe(self, record: RoundRecord, summary: Summary) -> None:
        self._now += 3_600.0
        self._reporter.observe(record, summary)

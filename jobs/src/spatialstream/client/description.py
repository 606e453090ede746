"""Description of a running stream's internals for users: versions, leaves of the tree and their loads, slots, actors.

It is made from what the jobs write to the routing store for the rebalancer, and from the worker driver's list of
actors. A description costs a few reads of the store; versions never change, so they are cached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from spatialstream.balance.loads import imbalance, leaf_loads, slot_loads
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Floats
from spatialstream.model.errors import StateError
from spatialstream.store.base import RoutingStore
from spatialstream.store.reports import EXECUTORS, LoadReport, asked_executors, read_load, read_sample
from spatialstream.store.state import RoutingState

__all__ = ["MOST_LEAVES", "StreamDescription"]

MOST_LEAVES = 2_000
"""Most leaves to list individually: those with the largest loads."""
_VERSIONS = 4
_SAMPLE_SECONDS = 30.0
"""Time for which the router's sample is cached: it has megabytes, and changes slowly."""


class StreamDescription:
    """Describes a stream; safe for any number of threads.

    Args:
        store: the routing store.
        actors: returns the address of the actor of each slot, as last reported by the driver.
    """

    def __init__(self, store: RoutingStore, actors: Callable[[], Mapping[int, str]]) -> None:
        self._store, self._actors = store, actors
        self._lock = threading.Lock()
        self._versions: dict[int, RoutingVersion] = {}
        self._sampled: tuple[float, Sample | None, Statistics | None] = float("-inf"), None, None

    def describe(self) -> dict[str, Any]:
        """Return the current description, as JSON values.

        ``counted`` is None if the worker has no statistics of the active version yet; loads and objects are then those
        that the version was computed for. ``before`` is the version before the active one, if it is kept; ``share`` is
        each slot's share of the objects in the router's sample, under either version. ``most_expensive`` are the
        queries that were compared with most objects lately, with an estimate of how many.

        Raises:
            StateError: there is no such stream.
            Unavailable: the store does not answer.
        """
        state = self._store.state()
        version, (sample, statistics) = self._version(state.active.number), self._sample()
        leaves = version.index.leaves
        loads, report, counted, most_expensive = leaves.load, None, None, list[tuple[str, int]]()
        with suppress(StateError):  # none yet
            found = read_load(self._store)
            most_expensive = found.most_expensive
            if found.version == version.number and statistics is not None:
                report, counted = found, found.watermark
                loads = leaf_loads(version, report.counts, statistics)
        kept = [number for number in self._store.versions() if number < version.number]
        shares = None if sample is None or not len(sample.objects) else sample
        before = None
        with suppress(StateError, IndexError):  # no such version, or it has just been removed
            old = self._version(kept[-1])
            before = {"version": old.number, "leaves": len(old.index.leaves)} | _shares(old, shares)
        return {
            "space": str(version.index.space),
            "version": version.number,
            "kind": version.index.kind,
            "since_epoch": state.active.epoch,
            "proposal": state.adopted,
            "pending": _pending(state),
            "counted": counted,
            "imbalance": _finite(imbalance(slot_loads(loads, version.mapping, version.slots))),
            "slots": self._slots(version, loads, report),
            "leaves": _leaves(version, loads, report),
            "leaves_in_all": len(leaves),
            "before": before,
            "after": _shares(version, shares),
            "most_expensive": [{"query": name, "candidates": count} for name, count in most_expensive],
            "executors": {job: asked_executors(self._store, job) for job in EXECUTORS},
        }

    def _sample(self) -> tuple[Sample | None, Statistics | None]:
        """The router's sample, and the statistics computed from it."""
        with self._lock:
            at, sample, statistics = self._sampled
            if sample is None or time.monotonic() > at + _SAMPLE_SECONDS:
                sample = read_sample(self._store)
                statistics = None if sample is None else sample.statistics()
                self._sampled = time.monotonic(), sample, statistics
            return sample, statistics

    def _version(self, number: int) -> RoutingVersion:
        with self._lock:
            if number not in self._versions:
                while len(self._versions) >= _VERSIONS:
                    self._versions.pop(min(self._versions))
                self._versions[number] = self._store.load(number)
            return self._versions[number]

    def _slots(self, version: RoutingVersion, loads: Floats, report: LoadReport | None) -> list[dict[str, Any]]:
        actors, leaves = self._actors(), version.index.leaves
        columns = {"load": loads, "leaves": np.ones(len(leaves)), "objects": leaves.objects}
        if report is not None:
            columns["rate"] = report.counts.rate * 1000.0
        of_slots = {name: np.bincount(version.mapping, each, version.slots).tolist() for name, each in columns.items()}
        if report is not None:
            objects, queries, _ = report.by_slot(version)
            of_slots |= {"objects": objects.tolist(), "queries": queries.tolist()}
        return [
            {"slot": slot, "actor": actors.get(slot)} | {name: each[slot] for name, each in of_slots.items()}
            for slot in range(version.slots)
        ]


def _leaves(version: RoutingVersion, loads: Floats, report: LoadReport | None) -> list[dict[str, Any]]:
    """The leaves with the largest loads, the largest first."""
    leaves = version.index.leaves
    objects = leaves.objects if report is None else report.by_leaf(version)
    return [
        {
            "box": leaves.box[i].tolist(),
            "textual": bool(leaves.textual[i]),
            "slot": int(version.mapping[i]),
            "load": float(loads[i]),
            "objects": float(objects[i]),
        }
        for i in np.argsort(-loads, kind="stable")[:MOST_LEAVES].tolist()
    ]


def _shares(version: RoutingVersion, sample: Sample | None) -> dict[str, Any]:
    """Each slot's share of a sample's objects under a version; None without a sample."""
    if sample is None:
        return {"share": None}
    weights = sample.weights[0]
    found = np.bincount(version.route_objects(sample.objects), weights, version.slots)
    return {"share": (found / max(float(found.sum()), 1e-300)).tolist()}


def _pending(state: RoutingState) -> dict[str, Any] | None:
    pending = state.pending
    if pending is None:
        return None
    return {
        "version": pending.number,
        "base": pending.base,
        "proposal": pending.proposal,
        "exported": sorted(state.exported),
        "loaded": sorted(state.loaded),
    }


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None

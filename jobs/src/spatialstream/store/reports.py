"""Reports in the routing store besides versions: load statistics, a sample, λ, executors, topics.

- The router writes a sample of the stream, the topics that it uses, the times that it accepts and the unknown fields
  that its objects have.
- The worker writes load statistics, and the versions that it names.
- Both write why they cannot continue.
- An autoscaler writes the number of executors; an operator or a person writes from when on load counts as imbalanced,
  and whether the stream is suspended.

The rebalancer and the operator read them; the gateway reads the accepted times, the router the named versions. Each is
small and replaced as a whole. Every function here raises :class:`~spatialstream.model.errors.Unavailable` if the store
cannot be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from spatialstream.balance.attribution import UnitTimes
from spatialstream.balance.loads import TRANSFER, LeafCounts
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Floats, Ints
from spatialstream.model.errors import StateError
from spatialstream.model.kinds import TYPES
from spatialstream.model.terms import EVERYTHING
from spatialstream.store.base import RoutingStore

__all__ = [
    "BALANCE",
    "DEAREST",
    "EXECUTORS",
    "LIMITS",
    "LOAD",
    "NAMED",
    "SAMPLE",
    "SEEN",
    "TOPICS",
    "UNKNOWN",
    "LoadReport",
    "TimeLimits",
    "Trouble",
    "UsedTopics",
    "ask_executors",
    "asked_executors",
    "most_expensive",
    "read_balance",
    "read_limits",
    "read_load",
    "read_named",
    "read_sample",
    "read_seen",
    "read_statistics",
    "read_suspended",
    "read_topics",
    "read_trouble",
    "read_unknown",
    "save_balance",
    "save_limits",
    "save_load",
    "save_named",
    "save_sample",
    "save_suspended",
    "save_topics",
    "save_trouble",
    "save_unknown",
]

LOAD, SAMPLE, SEEN, BALANCE = "load", "sample", "seen", "balance"
TOPICS, UNKNOWN, NAMED, LIMITS = "topics", "unknown", "named", "limits"
TROUBLE, SUSPENDED = "trouble", "suspended"
"""The names under which they are saved."""
EXECUTORS = {"router": "router-executors", "worker": "executors"}
"""The same, by job."""


DEAREST = 10
"""Maximum number of queries that a report lists as the most expensive."""


def most_expensive(tested: Mapping[str, int]) -> list[tuple[str, int]]:
    """The first of :attr:`LoadReport.tested` that have a name: the most expensive queries, and their candidates."""
    return [(name, count) for name, count in tested.items() if name][:DEAREST]


@dataclass(frozen=True, slots=True, eq=False)
class LoadReport:
    """The recent load counted by the worker.

    Attributes:
        version: number of the version with these n leaves.
        counts: of each leaf.
        checked: float64[n], candidates checked.
        watermark: timestamp in ms up to which the load was counted.
        seconds: float64[n], time of the slots that was attributed to each leaf; None: not known.
        kept: int64[2, slots], objects and registered continuous queries of each slot; None: not known.
        tested: with how many objects CRQs were compared in that time, estimated: by id those with most, and under
            ``""`` all others.
    """

    version: int
    counts: LeafCounts
    checked: Floats
    watermark: int
    seconds: Floats | None = None
    kept: Ints | None = None
    tested: Mapping[str, int] = field(default_factory=dict)

    @property
    def most_expensive(self) -> list[tuple[str, int]]:
        """The queries that were compared with most objects, ten at most, and how many these were, estimated."""
        return most_expensive(self.tested)

    def by_slot(self, version: RoutingVersion) -> tuple[Floats, Floats, bool]:
        """Objects and continuous queries of each slot of the version, float64[slots], and whether they are exact.

        Otherwise objects are estimated from their arrival rate, and a query counts in each of its leaves.
        """
        if self.kept is not None:
            return self.kept[0].astype(np.float64), self.kept[1].astype(np.float64), True
        columns = (self.counts.objects, self.counts.continuous)
        objects, queries = (np.bincount(version.mapping, each, version.slots).astype(np.float64) for each in columns)
        return objects, queries, False

    def by_leaf(self, version: RoutingVersion) -> Floats:
        """float64[n], estimated: the objects of each slot, distributed over its leaves in proportion to arrivals."""
        held, _, _ = self.by_slot(version)
        estimated, slots = self.counts.objects, version.mapping
        of_slot = np.bincount(slots, estimated, version.slots)
        even = np.bincount(slots, minlength=version.slots)
        share = np.where(
            of_slot[slots] > 0.0, estimated / np.where(of_slot > 0.0, of_slot, 1.0)[slots], 1.0 / even[slots]
        )
        objects: Floats = held[slots] * share
        return objects


@dataclass(frozen=True, slots=True)
class UsedTopics:
    """The topics that a stream reads and writes.

    Attributes:
        cluster: id of their Kafka cluster, independent of its address; "" if it has none.
        names: of the topics, by kind.
    """

    cluster: str
    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, meta: Mapping[str, object]) -> UsedTopics:
        """Parse a saved report."""
        names = meta.get("names")
        known = {str(kind): str(name) for kind, name in names.items()} if isinstance(names, Mapping) else {}
        return cls(str(meta.get("cluster", "")), known)


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Which times of objects a stream takes, and which queries.

    Attributes:
        ahead: ms by which they may be ahead of the day's clock; None: any.
        retention: ms by which they may be behind the stream's clock, less one; None: any.
        serves: one of :data:`~spatialstream.model.terms.SERVES`.
    """

    ahead: int | None = None
    retention: int | None = None
    serves: str = EVERYTHING


def save_limits(store: RoutingStore, limits: TimeLimits) -> None:
    """Keep which times the stream takes, in place of what was kept."""
    store.save_statistics(LIMITS, {}, asdict(limits))


def read_limits(store: RoutingStore) -> TimeLimits | None:
    """The same; None before a router has said so."""
    kept = store.load_statistics(LIMITS)
    return None if kept is None else TimeLimits(**kept[1])


def save_topics(store: RoutingStore, topics: UsedTopics) -> None:
    """Save the stream's topics."""
    store.save_statistics(TOPICS, {}, {"cluster": topics.cluster, "names": dict(topics.names)})


def read_topics(store: RoutingStore) -> UsedTopics | None:
    """The stream's topics; None before a router has saved them."""
    kept = store.load_statistics(TOPICS)
    return None if kept is None else UsedTopics.of(kept[1])


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a job cannot continue.

    Attributes:
        text: in a sentence without its full stop; "": it continues.
        since: when its turns began to fail, in ms since 1970-01-01 UTC.
        at: when this was written, likewise.
    """

    text: str = ""
    since: int = 0
    at: int = 0


def save_trouble(store: RoutingStore, job: str, trouble: Trouble) -> None:
    """Keep why the router or the worker cannot continue, or that it does."""
    store.save_statistics(f"{job}-{TROUBLE}", {}, asdict(trouble))


def read_trouble(store: RoutingStore, job: str) -> Trouble:
    """The same; none where the job has not said so, as one of an earlier release."""
    kept = store.load_statistics(f"{job}-{TROUBLE}")
    if kept is None:
        return Trouble()
    return Trouble(str(kept[1].get("text", "")), int(kept[1].get("since", 0)), int(kept[1].get("at", 0)))


def save_suspended(store: RoutingStore, suspended: bool) -> None:
    """Keep whether the stream is at rest because somebody wants it to be."""
    store.save_statistics(SUSPENDED, {}, {"suspended": suspended})


def read_suspended(store: RoutingStore) -> bool:
    """The same; False where nobody has said so."""
    kept = store.load_statistics(SUSPENDED)
    return kept is not None and kept[1].get("suspended") is True


def save_load(store: RoutingStore, report: LoadReport) -> None:
    """Save load statistics, replacing earlier ones."""
    counts = report.counts
    arrays: dict[str, Floats | Ints] = {
        "objects": counts.objects,
        "arrivals": counts.arrivals,
        "continuous": counts.continuous,
    }
    arrays["checked"] = report.checked
    if counts.queries is not None:
        arrays["queries"] = counts.queries
    if report.seconds is not None:
        arrays["seconds"] = report.seconds
    if report.kept is not None:
        arrays["kept"] = report.kept
    store.save_statistics(LOAD, arrays, _meta(report))


def _meta(report: LoadReport) -> dict[str, object]:
    meta: dict[str, object] = {"version": report.version, "span": report.counts.span, "watermark": report.watermark}
    meta |= {"transfer": report.counts.transfer, "types": TYPES, "times": asdict(report.counts.times)}
    return meta | {"tested": dict(report.tested)}


def read_load(store: RoutingStore) -> LoadReport:
    """The load statistics.

    Raises:
        StateError: there are none yet.
    """
    kept = store.load_statistics(LOAD)
    if kept is None:
        raise StateError("there are no load statistics yet; the worker writes them every few seconds while it works")
    arrays, meta = kept
    objects, arrivals, continuous = (arrays[name] for name in ("objects", "arrivals", "continuous"))
    seconds = float(arrays["seconds"].sum()) if "seconds" in arrays else 0.0
    transfer = float(meta.get("transfer", TRANSFER))
    span = float(meta["span"])
    queries = _of_types(arrays["queries"], meta.get("types", _FIRST)) if "queries" in arrays else None
    times = UnitTimes(**meta.get("times", {}))
    counts = LeafCounts(objects, arrivals, continuous, span, queries, seconds, transfer, times)
    columns = arrays["checked"], int(meta["watermark"]), arrays.get("seconds"), arrays.get("kept")
    return LoadReport(int(meta["version"]), counts, *columns, tested=meta.get("tested", {}))


_FIRST = ("SRQ", "SKQ", "STQ", "CRQ", "CKQ", "CTQ")
"""The types of the rows in reports of releases that did not name them."""


def _of_types(counted: Floats, types: Sequence[str]) -> Floats:
    """Counts of queries with a row for each type of this release, from rows of those of the release that wrote them."""
    row = dict(zip(types, counted, strict=True))
    return np.array([row.get(kind, np.zeros(counted.shape[1])) for kind in TYPES])


def save_sample(store: RoutingStore, sample: Sample) -> int:
    """Save a sample of the stream, replacing the earlier one, and the number of objects seen; returns its bytes."""
    arrays, meta = sample.to_arrays()
    store.save_statistics(SAMPLE, arrays, meta)
    store.save_statistics(SEEN, {}, {"objects": sample.seen})
    return sum(each.nbytes for each in arrays.values())


def read_sample(store: RoutingStore) -> Sample | None:
    """The sample of the stream; None before the router has learned anything."""
    known = store.load_statistics(SAMPLE)
    return None if known is None else Sample.from_arrays(*known)


def read_statistics(store: RoutingStore) -> Statistics | None:
    """J; None before the router has learned anything."""
    sample = read_sample(store)
    return None if sample is None else sample.statistics()


def read_seen(store: RoutingStore) -> float:
    """The number of objects from which the sample has been drawn."""
    known = store.load_statistics(SEEN)
    return 0.0 if known is None else float(known[1]["objects"])


def save_unknown(store: RoutingStore, fields: Mapping[str, int]) -> None:
    """Save the unknown fields of objects, and how many objects have each, replacing earlier ones."""
    store.save_statistics(UNKNOWN, {}, {"fields": dict(fields)})


def read_unknown(store: RoutingStore) -> dict[str, int]:
    """The unknown fields since the stream began; empty if no object has any."""
    known = store.load_statistics(UNKNOWN)
    return {} if known is None else {str(name): int(count) for name, count in known[1]["fields"].items()}


def save_named(store: RoutingStore, oldest: int) -> None:
    """Save the oldest version that the worker or its read points still name: older ones are not named any more."""
    store.save_statistics(NAMED, {}, {"oldest": oldest})


def read_named(store: RoutingStore) -> int | None:
    """The oldest version named; None if no worker has saved it, or it is damaged: then any version may be named."""
    try:
        kept = store.load_statistics(NAMED)
    except StateError:
        return None
    return None if kept is None else int(kept[1]["oldest"])


def ask_executors(store: RoutingStore, job: str, count: int) -> None:
    """Request a number of executors for the router or the worker."""
    store.save_statistics(EXECUTORS[job], {}, {"count": count})


def asked_executors(store: RoutingStore, job: str) -> int | None:
    """The requested number of executors of a job; None if there is no request."""
    kept = store.load_statistics(EXECUTORS[job])
    return None if kept is None else int(kept[1]["count"])


def save_balance(store: RoutingStore, settings: BalanceSettings) -> None:
    """Save when the stream's load counts as imbalanced, and how its tree is adjusted."""
    store.save_statistics(BALANCE, {}, asdict(settings))


def read_balance(store: RoutingStore) -> BalanceSettings | None:
    """The settings of :func:`save_balance`; None if there are none."""
    kept = store.load_statistics(BALANCE)
    return None if kept is None else BalanceSettings(**kept[1])

"""What is told through the routing store besides versions: load statistics, a sample, λ, how many executors are wanted.

The router writes a sample of the stream, the worker the load statistics, who scales a stream the number of executors,
and who runs it when its load counts as imbalanced. The rebalancer and the operator read them. Each is small and
replaced as a whole. Every function here raises :class:`~spatialstream.model.errors.Unavailable` where the store cannot
be reached.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from spatialstream.balance.loads import LeafCounts
from spatialstream.balance.settings import BalanceSettings
from spatialstream.index.sample import Sample
from spatialstream.index.statistics import Statistics
from spatialstream.model.arrays import Floats
from spatialstream.model.errors import StateError
from spatialstream.store.base import RoutingStore

__all__ = [
    "BALANCE",
    "EXECUTORS",
    "LOAD",
    "SAMPLE",
    "SEEN",
    "LoadReport",
    "ask_executors",
    "asked_executors",
    "read_balance",
    "read_load",
    "read_sample",
    "read_seen",
    "read_statistics",
    "save_balance",
    "save_load",
    "save_sample",
]

LOAD, SAMPLE, SEEN, BALANCE = "load", "sample", "seen", "balance"
"""The names under which they are kept."""
EXECUTORS = {"router": "router-executors", "worker": "executors"}
"""The same, by job."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadReport:
    """What the worker counted lately.

    Attributes:
        version: number of the version whose n leaves these are.
        counts: of each leaf.
        checked: float64[n], candidates checked.
        upto: timestamp in ms up to which was counted.
        seconds: float64[n], time of the slots that was attributed to each leaf; None: not known.
    """

    version: int
    counts: LeafCounts
    checked: Floats
    upto: int
    seconds: Floats | None = None


def save_load(store: RoutingStore, report: LoadReport) -> None:
    """Keep load statistics in place of those before."""
    counts = report.counts
    arrays = {"objects": counts.objects, "arrivals": counts.arrivals, "standing": counts.standing}
    arrays["checked"] = report.checked
    if report.seconds is not None:
        arrays["seconds"] = report.seconds
    store.save_statistics(LOAD, arrays, {"version": report.version, "span": counts.span, "upto": report.upto})


def read_load(store: RoutingStore) -> LoadReport:
    """The load statistics.

    Raises:
        StateError: there are none yet.
    """
    kept = store.load_statistics(LOAD)
    if kept is None:
        raise StateError("there are no load statistics yet; the worker writes them every few seconds while it works")
    arrays, meta = kept
    counts = LeafCounts(arrays["objects"], arrays["arrivals"], arrays["standing"], float(meta["span"]))
    return LoadReport(int(meta["version"]), counts, arrays["checked"], int(meta["upto"]), arrays.get("seconds"))


def save_sample(store: RoutingStore, sample: Sample) -> int:
    """Keep a sample of the stream in place of the one before, and how many objects have been seen; its bytes."""
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
    """How many objects the sample has been drawn from."""
    known = store.load_statistics(SEEN)
    return 0.0 if known is None else float(known[1]["objects"])


def ask_executors(store: RoutingStore, job: str, count: int) -> None:
    """Ask the router or the worker to run on so many executors."""
    store.save_statistics(EXECUTORS[job], {}, {"count": count})


def asked_executors(store: RoutingStore, job: str) -> int | None:
    """How many executors a job is asked to run on; None if nobody has asked."""
    kept = store.load_statistics(EXECUTORS[job])
    return None if kept is None else int(kept[1]["count"])


def save_balance(store: RoutingStore, settings: BalanceSettings) -> None:
    """Keep when the stream's load counts as imbalanced, and how its tree is adjusted."""
    store.save_statistics(BALANCE, {}, asdict(settings))


def read_balance(store: RoutingStore) -> BalanceSettings | None:
    """The same; None if nobody has said so."""
    kept = store.load_statistics(BALANCE)
    return None if kept is None else BalanceSettings(**kept[1])

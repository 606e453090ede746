"""The metrics of a stream from Prometheus: load per slot, utilisation, delay and rejected records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spatialstream.model.errors import Unavailable
from spatialstream_operator.causes import cause
from spatialstream_operator.decisions.autoscaling import Use
from spatialstream_operator.decisions.rebalancing_inputs import Load
from spatialstream_operator.decisions.rejects import Inflow
from spatialstream_operator.names import StreamNames
from spatialstream_operator.prometheus import Prometheus, Sample

__all__ = ["LoadMetrics", "read_load_metrics"]

_NAME = "__name__"
_SERIES = (
    "spatialstream_imbalance_ratio",
    "spatialstream_slot_load",
    "spatialstream_worker_active_version",
    "spatialstream_worker_last_round_timestamp_seconds",
    "spatialstream_worker_cores",
)
_WINDOW_SECONDS = 120
_WINDOW = f"{_WINDOW_SECONDS}s"


@dataclass(frozen=True, slots=True)
class LoadMetrics:
    """Metrics of a stream. Each is None if unknown.

    Attributes:
        at: time of the query, in ms since 1970-01-01 UTC; 0 before the first one.
        load: load of the slots.
        use: utilisation of the worker's executors.
        router: utilisation of the router's executors; also None if it has none.
        delay: 95th percentile, in ms, of the time from the decision about an epoch to its results.
        leaves: number of leaves of the active version.
        lag: number of messages that no epoch has read.
        inflows: accepted and rejected records of each kind.
        problem: why nothing could be read; "" if it could.
    """

    at: int = 0
    load: Load | None = None
    use: Use | None = None
    delay: int | None = None
    leaves: int | None = None
    lag: int | None = None
    inflows: tuple[Inflow, ...] | None = None
    problem: str = ""
    router: Use | None = None


async def read_load_metrics(
    prometheus: Prometheus, names: StreamNames, now: int, *, executors: bool = False
) -> LoadMetrics:
    """Query Prometheus for the metrics of a stream; metrics without a result are None.

    Args:
        prometheus: the server.
        names: names of the stream.
        now: the time, in ms since 1970-01-01 UTC.
        executors: whether the router has executors.
    """
    worker = f'namespace="{names.namespace}",pod="{names.worker}"'
    router = f'namespace="{names.namespace}",pod="{names.router}"'
    try:
        series = await prometheus.query(f'{{__name__=~"{"|".join(_SERIES)}",{worker}}}')
        at = await prometheus.value(f"timestamp(spatialstream_imbalance_ratio{{{worker}}})")
        arrivals = await prometheus.value(f"sum(rate(spatialstream_slot_objects_total{{{worker}}}[{_WINDOW}]))")
        busy = await prometheus.value(f"sum(rate(spatialstream_slot_busy_seconds_total{{{worker}}}[{_WINDOW}]))")
        tasks = await prometheus.value(f"sum(rate(spatialstream_worker_task_seconds_total{{{worker}}}[{_WINDOW}]))")
        delay = await prometheus.value(
            "histogram_quantile(0.95, sum by (le) "
            f"(rate(spatialstream_worker_epoch_delay_seconds_bucket{{{worker}}}[{_WINDOW}])))"
        )
        leaves = await prometheus.value(f"count(spatialstream_leaf_objects{{{worker}}})")
        lag = await prometheus.value(f"sum(spatialstream_router_lag_messages{{{router}}})")
        inflows = _inflows(
            await prometheus.query(
                f"sum by (kind) (increase(spatialstream_router_records_total{{{router}}}[{_WINDOW}]))"
            ),
            await prometheus.query(
                f"sum by (kind, reason) (increase(spatialstream_router_rejected_total{{{router}}}[{_WINDOW}]))"
            ),
            await prometheus.value(f"sum(increase(spatialstream_worker_rejected_total{{{worker}}}[{_WINDOW}]))"),
        )
        worked = busy if tasks is None else tasks  # workers of older images have no task metric
        metrics = _load_metrics(now, series, at, arrivals, worked, delay, leaves, lag, inflows)
        return replace(metrics, router=await _router(prometheus, router)) if executors else metrics
    except Unavailable as error:
        return LoadMetrics(now, problem=str(error))
    except (KeyError, ValueError, OverflowError) as error:  # series with these names that are not the jobs'
        return LoadMetrics(now, problem=f"Prometheus has series in an unexpected form: {cause(error)}")


async def _router(prometheus: Prometheus, router: str) -> Use | None:
    """Utilisation of the router. Its lag is updated rarely, so the mean over the window is used.

    Raises:
        ValueError, OverflowError: a number is infinite.
        Unavailable: see :class:`Prometheus`.
    """
    lag, window = f"spatialstream_router_lag_messages{{{router}}}[{_WINDOW}]", f"{{{router}}}[{_WINDOW}]"
    cores = await prometheus.value(f"spatialstream_router_cores{{{router}}}")
    at = await prometheus.value(f"timestamp(spatialstream_router_cores{{{router}}})")
    worked = await prometheus.value(f"sum(rate(spatialstream_router_task_seconds_total{window}))")
    waiting = await prometheus.value(f"sum(avg_over_time({lag}))")
    growth = await prometheus.value(f"sum(deriv({lag}))")
    done = await prometheus.value(f"sum(rate(spatialstream_router_messages_total{window}))")
    if at is None or worked is None or not cores:
        return None
    delay = round(1000 * waiting / done) if waiting is not None and done else None
    return Use(round(at * 1000), worked / cores, delay, growth, done)


def _load_metrics(
    now: int,
    known: list[Sample],
    at: float | None,
    arrivals: float | None,
    busy: float | None,
    delay: float | None,
    leaves: float | None,
    lag: float | None,
    inflows: tuple[Inflow, ...] | None,
) -> LoadMetrics:
    """Convert the query results.

    Raises:
        KeyError, ValueError, OverflowError: a label is missing or not a number, or a number is infinite.
    """
    single = {each.labels[_NAME]: each.value for each in known if "slot" not in each.labels}
    late = None if delay is None or math.isinf(delay) else round(delay * 1000)
    scraped = None if at is None else round(at * 1000)
    return LoadMetrics(
        now,
        _load(single, known, scraped, arrivals),
        _use(single, scraped, busy, late, arrivals, inflows),
        late,
        None if leaves is None else int(leaves),
        None if lag is None else round(lag),
        inflows,
    )


def _inflows(accepted: list[Sample], rejected: list[Sample], unadmitted: float | None) -> tuple[Inflow, ...] | None:
    """Accepted and rejected records of each kind; None if the router is not scraped.

    Queries that the worker does not admit are among those that the router has accepted.
    """
    if not accepted:
        return None
    reasons: dict[str, dict[str, float]] = {each.labels["kind"]: {} for each in accepted}
    for each in rejected:
        if each.value > 0.0:
            reasons.setdefault(each.labels["kind"], {})[each.labels["reason"]] = each.value
    known = {each.labels["kind"]: each.value for each in accepted}
    if unadmitted is not None and unadmitted > 0.0:
        reasons.setdefault("queries", {})["admission"] = unadmitted
        known["queries"] = max(0.0, known.get("queries", 0.0) - unadmitted)
    return tuple(Inflow(kind, known.get(kind, 0.0), reasons[kind]) for kind in sorted(reasons))


def _load(single: Mapping[str, float], known: list[Sample], scraped: int | None, arrivals: float | None) -> Load | None:
    ratio, version = single.get("spatialstream_imbalance_ratio"), single.get("spatialstream_worker_active_version")
    worked = single.get("spatialstream_worker_last_round_timestamp_seconds")
    if scraped is None or ratio is None or version is None or worked is None or arrivals is None:
        return None
    slots = {int(each.labels["slot"]): each.value for each in known if "slot" in each.labels}
    loads = tuple(slots[slot] for slot in sorted(slots))
    return Load(scraped, round(worked * 1000), int(version), ratio, arrivals, loads)


def _use(
    single: Mapping[str, float],
    scraped: int | None,
    busy: float | None,
    delay: int | None,
    done: float | None,
    inflows: tuple[Inflow, ...] | None,
) -> Use | None:
    cores = single.get("spatialstream_worker_cores")
    if scraped is None or busy is None or not cores:
        return None
    comes = next((each.accepted / _WINDOW_SECONDS for each in inflows or () if each.kind == "objects"), None)
    growth = None if comes is None or done is None else comes - done
    return Use(scraped, busy / cores, delay, growth, done)

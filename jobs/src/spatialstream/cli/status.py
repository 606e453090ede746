"""``spatialstream status``: show the state of a live stream, from Kubernetes or from its routing store."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from spatialstream.cli import kubernetes, live
from spatialstream.cli import options as shared
from spatialstream.cli.queries import area_lines, outdated
from spatialstream.cli.run import unknown_text
from spatialstream.connectors.program import program
from spatialstream.model.errors import RunError, SettingError, SpatialStreamError, StateError, Unavailable
from spatialstream.model.tables import aligned, ratio
from spatialstream.model.terms import EVERYTHING, SUBSCRIPTIONS

__all__ = ["add_parser", "slot_lines", "slots_of", "store_text", "stream_text", "table_text"]

_METRICS = (
    "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9090/metrics', timeout=5).read().decode(), end='')"
)
_UNKNOWN = "spatialstream_router_unknown_field_objects"
_BAR = 24
_UNSEEN = 180.0
"""Seconds without a heartbeat, which is due every 60, after which the operator is considered not to run."""
_EVENTS = 8


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "status",
        help="show the state of a live stream",
        description="Shows a stream on Kubernetes: its conditions, jobs, workers, routing, rebalancing and latest "
        "events; without a name, all streams of the namespace. With --stream or --zookeeper, or if the environment "
        "names the stream's ZooKeeper, shows the content of the routing store.",
    )
    add = parser.add_argument
    add("stream", nargs="?", metavar="STREAM", help="name of the SpatialStream, or of the stream")
    add("--stream", dest="stored", metavar="NAME", help="name of a stream that is not on Kubernetes")
    kubernetes.add_cluster(parser)
    live.add_store(parser, None)
    text = "the broker of a stream that is not on Kubernetes: show which queries have an older geometry of their area"
    add("--bootstrap", default=os.environ.get(live.VARIABLES["bootstrap"]), metavar="HOST:PORT,...", help=text)
    known = os.environ.get(live.VARIABLES["kafka_security"])
    add("--kafka-security", type=Path, default=known, metavar="FILE", help="Kafka properties, for --bootstrap")
    add("--watch", action="store_true", help="repeat until interrupted")
    add("--every", type=shared.duration, default=5_000, metavar="TIME", help="with --watch: the interval (default 5s)")
    add("--json", action="store_true", help="print JSON, one line for each refresh")
    parser.set_defaults(function=_status, quiet=True, topic=[])


def _status(options: argparse.Namespace) -> int:
    if options.stored is not None:
        if options.stream is not None or kubernetes.asked(options):
            told = "names a stream that is not on Kubernetes; for a stream on Kubernetes give only its name"
            raise SettingError("--stream", told)
        options.stream = options.stored
        options.zookeeper = options.zookeeper or live.ZOOKEEPER
    if kubernetes.asked(options) or options.zookeeper is None:
        kubectl = kubernetes.Kubectl.of(options)
        look = _look_at_all if options.stream is None else _look_at_stream
        return _show(options, lambda: look(kubectl, options))
    options.stream = options.stream or os.environ.get(live.VARIABLES["stream"])
    if options.stream is None:
        raise SettingError("stream", "give the stream's name")
    with live.store(options) as store:
        return _show(options, lambda: _look_at_store(store, options))


def _show(options: argparse.Namespace, look: Any) -> int:
    """Print the text that ``look`` returns, once, or with ``--watch`` until interrupted."""
    with live.stopping(options) as stop:
        while True:
            try:
                text = look()
            except (Unavailable, RunError) as error:
                if not options.watch:
                    raise
                text = f"spatialstream: {error}"
            clear = "\x1b[H\x1b[2J" if options.watch and not options.json and sys.stdout.isatty() else ""
            print(clear + text, flush=True)
            ends = time.monotonic() + options.every / 1000
            while options.watch and not stop() and time.monotonic() < ends:
                time.sleep(0.1)
            if stop() or not options.watch:
                return 0


# ---------------------------------------------------------------------------------------------------------- Kubernetes


def _look_at_all(kubectl: kubernetes.Kubectl, options: argparse.Namespace) -> str:
    found = (kubectl.read("get", kubernetes.RESOURCE) or {}).get("items", [])
    if options.json:
        return json.dumps(found)
    return table_text(found, time.time()) if found else f"no SpatialStream in {kubectl.place}"


def _look_at_stream(kubectl: kubernetes.Kubectl, options: argparse.Namespace) -> str:
    resource = kubernetes.resource(kubectl, options.stream)
    events, slots = _events(kubectl, options.stream), _slots(kubectl, options.stream)
    unknown, most_expensive = _unknown(kubectl, options.stream), _most_expensive(kubectl, options.stream)
    of_areas = _outdated(kubectl, options.stream)
    if options.json:
        figures = {"unknown_fields": unknown, "most_expensive": dict(most_expensive), "outdated_queries": of_areas}
        return json.dumps({"stream": resource, "slots": slots, "events": events, **figures})
    approve = [program(), "rebalance", *kubectl.flags, "--stream", options.stream, "--approve"]
    text = stream_text(resource, events, slots, time.time(), " ".join(approve), unknown, most_expensive)
    return "\n".join([text, *_outdated_lines(of_areas)])


def _events(kubectl: kubernetes.Kubectl, name: str) -> list[dict[str, Any]]:
    """The stream's events, the latest last; empty if reading them is not allowed."""
    chosen = f"involvedObject.kind=SpatialStream,involvedObject.name={name}"
    try:
        found = (kubectl.read("get", "events", "--field-selector", chosen) or {}).get("items", [])
    except SettingError:
        return []
    return sorted(found, key=_when)


def _when(event: Mapping[str, Any]) -> str:
    return str(
        (event.get("series") or {}).get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp", "")
    )


def _slots(kubectl: kubernetes.Kubectl, name: str) -> list[dict[str, float]] | str:
    """The slots in the worker's metrics, or why they cannot be read."""
    try:
        return slots_of(_metrics(kubectl, f"{name}-worker"))
    except SpatialStreamError as error:
        return str(error)


def _unknown(kubectl: kubernetes.Kubectl, name: str) -> dict[str, int]:
    """The unknown fields in the router's metrics; empty if they cannot be read."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = text_string_to_metric_families(_metrics(kubectl, f"{name}-router"))
    except SpatialStreamError:
        return {}
    samples = [each for family in families if family.name == _UNKNOWN for each in family.samples]
    return {each.labels["field"]: int(each.value) for each in sorted(samples, key=lambda each: -each.value)}


def _most_expensive(kubectl: kubernetes.Kubectl, name: str) -> list[tuple[str, int]]:
    """What the worker tells of the most expensive queries; nothing if it does not."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        families = text_string_to_metric_families(_metrics(kubectl, f"{name}-worker"))
    except SpatialStreamError:
        return []
    samples = [each for family in families for each in family.samples if each.name == "spatialstream_query_candidates"]
    return sorted(((each.labels["query"], int(each.value)) for each in samples), key=lambda pair: -pair[1])


def _outdated(kubectl: kubernetes.Kubectl, name: str) -> list[dict[str, Any]]:
    """The queries with another geometry than their area has, as the worker's pod says; nothing if it does not."""
    listed = ("spatialstream", "queries", "list", "--outdated", "--json")
    try:
        return [
            json.loads(line)
            for line in kubectl.run("exec", f"{name}-worker", "-c", "driver", "--", *listed).splitlines()
        ]
    except (SpatialStreamError, ValueError):
        return []


def _metrics(kubectl: kubernetes.Kubectl, pod: str) -> str:
    return kubectl.run("exec", pod, "-c", "driver", "--", "python", "-c", _METRICS)


def slots_of(metrics: str) -> list[dict[str, float]]:
    """The slots in the worker's metrics: ``slot``, ``load``, ``objects`` kept, and continuous ``queries``."""
    from prometheus_client.parser import text_string_to_metric_families

    names = {
        "spatialstream_slot_load": "load",
        "spatialstream_slot_held_objects": "objects",
        "spatialstream_slot_continuous_queries": "queries",
    }
    slots: dict[int, dict[str, float]] = {}
    for family in text_string_to_metric_families(metrics):
        if (name := names.get(family.name)) is not None:
            for sample in family.samples:
                number = int(sample.labels["slot"])
                slot = slots.setdefault(number, {"slot": number, "load": 0.0, "objects": 0.0, "queries": 0.0})
                slot[name] += sample.value
    return [slots[number] for number in sorted(slots)]


def table_text(streams: Sequence[Mapping[str, Any]], now: float) -> str:
    """Format a table of streams.

    Args:
        streams: the resources.
        now: seconds since 1970 UTC.
    """
    rows = []
    for stream in streams:
        status = stream.get("status", {})
        workers, routing = status.get("workers", {}), status.get("routing", {})
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
        rows.append(
            [
                stream["metadata"]["name"],
                status.get("phase", "-"),
                conditions.get("Ready", "-"),
                _age(status.get("lastSeen"), now),
                f"{workers.get('replicas', 0)}/{workers.get('desired', '-')}",
                conditions.get("Balanced", "-"),
                str(routing.get("imbalance", "-")),
                str(routing.get("version", "-")),
                status.get("lag", {}).get("delay", "-"),
                _age(stream["metadata"].get("creationTimestamp"), now),
            ]
        )
    head = ["NAME", "PHASE", "READY", "SEEN", "WORKERS", "BALANCED", "IMBALANCE", "VERSION", "LAG", "AGE"]
    return "\n".join(aligned(head, rows))


def stream_text(
    stream: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    slots: Sequence[Mapping[str, float]] | str,
    now: float,
    approve: str,
    unknown: Mapping[str, int] | None = None,
    most_expensive: Sequence[tuple[str, int]] = (),
) -> str:
    """Format the state of a stream on Kubernetes.

    Args:
        stream: the resource.
        events: its events, the latest last.
        slots: as returned by :func:`slots_of`, or why they are not known.
        now: seconds since 1970 UTC.
        approve: the command that approves a proposal, without the proposal's id.
        unknown: number of objects by unknown field.
        most_expensive: queries, and with how many objects they were compared lately.
    """
    metadata, status = stream["metadata"], stream.get("status", {})
    seen, asked = status.get("observedGeneration", 0), metadata.get("generation", 0)
    lines = [f"{metadata['name']} in {metadata['namespace']}: {status.get('phase', 'not reconciled yet')}"]
    if seen != asked:
        lines.append(f"generation {asked} of the spec has not been reconciled yet; the status is of {seen}")
    lines += _unseen(status, now)
    for part in (
        _conditions(status, now),
        _jobs(status, now),
        [*_workers(stream), *_serves(stream.get("spec", {}).get("serves", EVERYTHING))],
        [*_routing(status), *_unknown_lines(unknown or {})],
        [f"load of slots: not known: {slots}"] if isinstance(slots, str) else slot_lines(slots),
        most_expensive_lines(most_expensive)[1:],
        _rebalancing(stream, now, approve),
        _events_lines(events, now),
    ):
        lines += ["", *part] if part else []
    return "\n".join(lines)


def _unseen(status: Mapping[str, Any], now: float) -> list[str]:
    """A line that says that the status is stale because the operator does not run, if so."""
    last = status.get("lastSeen")
    if not last or now - datetime.fromisoformat(last).timestamp() <= _UNSEEN:
        return []
    return [f"the operator's last heartbeat was {_age(last, now)} ago: the status below may be out of date"]


def _conditions(status: Mapping[str, Any], now: float) -> list[str]:
    said = ("reason", "message")
    rows = [
        [each["type"], each["status"], _age(each.get("lastTransitionTime"), now), *map(each.get, said, ("", ""))]
        for each in status.get("conditions", ())
    ]
    return aligned(["condition", "status", "since", "reason", "message"], rows) if rows else []


def _jobs(status: Mapping[str, Any], now: float) -> list[str]:
    rows = []
    for name, job in (("router", status.get("router")), ("worker", status.get("workers"))):
        if job is not None:
            last = job.get("lastFailure") or {}
            told = (
                f"{last.get('reason', '')} {_age(last.get('time'), now)} ago: {last.get('message', '')}" if last else ""
            )
            restarts, failures = str(job.get("restarts", 0)), str(job.get("failures", 0))
            rows.append([name, job.get("state", "-"), job.get("pod", "-"), restarts, failures, told])
    return aligned(["job", "state", "pod", "restarts", "failures in a row", "last failure"], rows) if rows else []


def _workers(stream: Mapping[str, Any]) -> list[str]:
    workers, status = stream["spec"].get("workers", {}), stream.get("status", {}).get("workers", {})
    low, high = workers.get("min", 1), workers.get("max", "-")
    lines = [
        f"executors  {status.get('replicas', 0)} registered, {status.get('desired', '-')} wanted "
        f"(min {low}, max {high} = slots)"
    ]
    router, status = stream["spec"].get("router", {}), stream.get("status", {}).get("router", {})
    if "max" in router:
        lines.append(
            f"           of the router {status.get('replicas', 0)} registered, {status.get('desired', '-')} wanted "
            f"(min {router.get('min', 1)}, max {router['max']})"
        )
    return lines


def _routing(status: Mapping[str, Any]) -> list[str]:
    routing = status.get("routing", {})
    lines = [
        f"routing    version {routing.get('version', '-')}, {routing.get('leaves', '-')} leaves, "
        f"Lmax/Lmin {routing.get('imbalance', '-')}"
    ]
    if (pending := routing.get("pendingVersion")) is not None and pending != -1:
        lines.append(f"           version {pending} is pending (proposal {routing.get('proposal', '-')})")
    if "version" in routing:
        lines.append(_tree(routing.get("rebuiltVersion")))
    lines += _index(routing.get("kind", ""), routing.get("reason", ""))
    if lag := status.get("lag"):
        waiting = lag.get("messages", "-")
        lines.append(f"lag        results after {lag.get('delay', '-')}, {waiting} messages not read by the router")
    return lines


def _tree(rebuilt: int | None) -> str:
    """The line about the tree's origin; ``rebuilt`` is the version that rebuilt it, None for the first tree."""
    said = "the stream's first" if rebuilt is None else f"rebuilt with version {rebuilt}"
    return f"tree       {said}"


def _serves(serves: str) -> list[str]:
    """The line about the queries that a stream takes; none if these are all."""
    told = f"{serves}: objects that no continuous query can match are dropped, and none are stored"
    return [f"serves     {told}"] if serves == SUBSCRIPTIONS else []


def _index(kind: str, reason: str) -> list[str]:
    """The line about the kind of index, and why the planner chose it; none if it is not known."""
    return [f"index      {kind}" + (f": {reason}" if reason else "")] if kind else []


def _rebalancing(stream: Mapping[str, Any], now: float, approve: str) -> list[str]:
    rebalance = stream.get("status", {}).get("rebalance")
    mode = stream["spec"].get("rebalance", {}).get("mode", "auto")
    if not rebalance:
        return [f"rebalance  mode {mode}"]
    lines = [f"rebalance  mode {mode}, {rebalance.get('phase', '-')} for {_age(rebalance.get('since'), now)}"]
    if last := rebalance.get("last"):
        said = f"{last.get('strategy', '')} {last.get('outcome', '')}".strip()
        lines.append(f"           the last one: {said}, {_age(last.get('time'), now)} ago")
    if proposal := rebalance.get("proposal"):
        lines += ["", *str(proposal.get("text") or f"proposal {proposal['id']}").splitlines()]
        if mode == "approve":
            lines += ["", f"approve with: {approve} {proposal['id']}"]
    return lines


def _events_lines(events: Sequence[Mapping[str, Any]], now: float) -> list[str]:
    rows = [
        [_age(_when(each), now), each.get("type", ""), each.get("reason", ""), str(each.get("message", ""))]
        for each in events[-_EVENTS:]
    ]
    return aligned(["event", "type", "reason", "message"], rows) if rows else []


# ------------------------------------------------------------------------------------------------------- routing store


def _look_at_store(store: Any, options: argparse.Namespace) -> str:
    from spatialstream.store.reports import EXECUTORS, TimeLimits, asked_executors, read_limits, read_unknown

    state, unknown = store.state(), read_unknown(store)
    slots, most_expensive = _store_slots(store, state.active.number), _store_most_expensive(store)
    executors = {job: asked_executors(store, job) for job in EXECUTORS}
    serves = (read_limits(store) or TimeLimits()).serves
    of_areas = _store_outdated(options)
    if options.json:
        figures = {
            "serves": serves,
            "executors": executors,
            "slots": slots,
            "unknown_fields": unknown,
            "most_expensive": dict(most_expensive),
            "outdated_queries": of_areas,
        }
        return json.dumps(_state_record(state) | figures)
    text = store_text(options.stream, state, slots, executors, unknown, most_expensive, serves)
    return "\n".join([text, *_outdated_lines(of_areas)])


def _store_outdated(options: argparse.Namespace) -> list[dict[str, Any]] | str:
    """The queries with another geometry than their area has, or why they are not known."""
    if options.bootstrap is None:
        return "give --bootstrap"
    try:
        with live.stream(options) as stream:
            return outdated(stream)
    except (SettingError, Unavailable) as error:
        return str(error)


def _outdated_lines(found: list[dict[str, Any]] | str) -> list[str]:
    """A part of the text, below a blank line; nothing if there is nothing to say, or nobody asked for it."""
    if isinstance(found, str):
        return [] if found == "give --bootstrap" else ["", f"queries of areas: not known: {found}"]
    return ["", *lines] if (lines := area_lines(found)) else []


def _state_record(state: Any) -> dict[str, Any]:
    pending = None
    if state.pending is not None:
        pending = {"version": state.pending.number, "base": state.pending.base, "proposal": state.pending.proposal}
        pending |= {"exported": sorted(state.exported), "loaded": sorted(state.loaded)}
    active = {"version": state.active.number, "epoch": state.active.epoch, "proposal": state.adopted}
    active |= {"rebuilt": state.rebuilt, "kind": state.kind, "reason": state.reason}
    return {"active": active, "pending": pending}


def _store_slots(store: Any, number: int) -> list[dict[str, Any]] | str:
    """Loads of the slots under the active version, or why they are not known."""
    from spatialstream.balance.loads import leaf_loads, slot_loads
    from spatialstream.store.reports import read_load, read_statistics

    try:
        report, statistics = read_load(store), read_statistics(store)
    except StateError as error:
        return str(error)
    if statistics is None or report.version != number:
        return f"the worker has no statistics of version {number} yet; it writes them every few seconds while it runs"
    version = store.load(number)
    objects, queries, exact = report.by_slot(version)
    loads = slot_loads(leaf_loads(version, report.counts, statistics), version.mapping, version.slots)
    columns = {"load": loads.tolist(), "objects": objects.tolist(), "queries": queries.tolist()}
    return [
        {"slot": slot} | {name: each[slot] for name, each in columns.items()} | ({} if exact else {"estimated": True})
        for slot in range(version.slots)
    ]


def _store_most_expensive(store: Any) -> list[tuple[str, int]]:
    """The most expensive queries, if the worker has counted anything."""
    from spatialstream.store.reports import read_load

    with suppress(StateError):
        return read_load(store).most_expensive
    return []


def store_text(
    name: str,
    state: Any,
    slots: Sequence[Mapping[str, float]] | str,
    executors: Mapping[str, int | None],
    unknown: Mapping[str, int],
    most_expensive: Sequence[tuple[str, int]] = (),
    serves: str = EVERYTHING,
) -> str:
    """Format the state of a stream in its routing store.

    Args:
        name: the stream's name.
        state: a :class:`~spatialstream.store.state.RoutingState`.
        slots: as returned by :func:`slots_of`, or why they are not known.
        executors: requested number of executors by job; None: none requested.
        unknown: number of objects by unknown field.
        most_expensive: queries, and with how many objects they were compared lately.
        serves: which queries the stream takes.
    """
    by = f" (proposal {state.adopted})" if state.adopted else ""
    lines = [
        f"stream     {name}, {state.slots} slots",
        *_serves(serves),
        f"routing    version {state.active.number}, active from epoch {state.active.epoch}{by}",
        _tree(state.rebuilt),
        *_index(state.kind, state.reason),
    ]
    if state.pending is not None:
        lines.append(
            f"           version {state.pending.number} is pending (proposal {state.pending.proposal}): "
            f"{len(state.exported)} slots have exported, {len(state.loaded)} have loaded"
        )
    asked = [f"{count} of the {job}" for job, count in executors.items() if count is not None]
    if asked:
        lines.append(f"executors  {' and '.join(asked)} requested")
    lines += _unknown_lines(unknown)
    lines += ["", *([f"load of slots: not known: {slots}"] if isinstance(slots, str) else slot_lines(slots))]
    return "\n".join([*lines, *most_expensive_lines(most_expensive)])


# ------------------------------------------------------------------------------------------------------------- figures


def _unknown_lines(unknown: Mapping[str, int]) -> list[str]:
    told = unknown_text(unknown)
    return [f"unknown    {told} (fields that are not read)"] if told else []


def most_expensive_lines(most_expensive: Sequence[tuple[str, int]]) -> list[str]:
    """The most expensive queries, below a blank line; nothing if none is known."""
    rows = [[name, f"{count:,}"] for name, count in most_expensive]
    return ["", *aligned(["most expensive queries", "candidates lately (estimated)"], rows, right={1})] if rows else []


def slot_lines(slots: Sequence[Mapping[str, float]]) -> list[str]:
    """Format the slots with bars of their loads, and Lmax/Lmin below.

    Args:
        slots: each with ``slot``, ``load``, ``objects`` and ``queries``; ``estimated`` if the last two are estimates.
    """
    if not slots:
        return []
    loads = [each["load"] for each in slots]
    total, peak = sum(loads) or 1.0, max(loads) or 1.0
    rows = [
        [
            f"{int(each['slot'])}",
            f"{100 * each['load'] / total:.1f} %",
            "█" * round(_BAR * each["load"] / peak),
            f"{each['objects']:,.0f}",
            f"{each['queries']:,.0f}",
        ]
        for each in slots
    ]
    apart = max(loads) / min(loads) if min(loads) > 0.0 else math.inf
    told = f"Lmax/Lmin = {ratio(apart)}" if any(loads) else "no load yet"
    kept = [
        name + " (estimated)" * any("estimated" in each for each in slots) for name in ("objects", "continuous queries")
    ]
    return [*aligned(["slot", "load", "", *kept], rows, right={0, 1, 3, 4}), told]


def _age(then: str | None, now: float) -> str:
    """The time since ``then``, in its largest unit."""
    if not then:
        return "-"
    seconds = max(0, int(now - datetime.fromisoformat(then).timestamp()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"

"""The metrics of the jobs: present from the first scrape on, bounded, named by Prometheus' conventions, and all of them
in the documentation."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spatialstream.actors.query_metrics import ASKED, LIMITS, OUTCOMES, QueryMetrics
from spatialstream.cli.metrics import RouterMetrics, WorkerMetrics, serve
from spatialstream.connectors.folder import Folder
from spatialstream.connectors.requests import REQUESTS
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import SettingError
from spatialstream.model.kinds import TYPES
from spatialstream.model.space import WGS84
from spatialstream.records.reasons import REASONS
from spatialstream.stages.ingest import Intake
from spatialstream.stages.turns import Epoch
from spatialstream.stages.versions import save_version
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import save_sample
from spatialstream.stream.adoption import Adoption
from spatialstream.stream.load_window import LoadWindow
from spatialstream.stream.parts import ROUTER_PARTS, WORKER_PARTS
from spatialstream.stream.router import EpochRecord
from spatialstream.stream.watermarks import Watermarks
from spatialstream_operator.metrics import OperatorMetrics
from tests.unit.stream.loads import SLOTS, Hourly, load_of, loads_of, round_of, sample

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
BY_LEAF = {
    "spatialstream_leaf_objects": None,
    "spatialstream_leaf_checked": None,
    "spatialstream_leaf_busy_seconds": None,
    "spatialstream_leaf_held_objects": None,
    "spatialstream_leaf_continuous_queries": ("CRQ", "CTQ", "CBQ"),
    "spatialstream_leaf_queries": ASKED,
}
"""What has no series before it is known which leaves there are: name -> values of the label ``type``, if it has it."""

Series = dict[str, set[tuple[tuple[str, str], ...]]]


@pytest.fixture
def worker() -> WorkerMetrics:
    return WorkerMetrics(SLOTS)


def families(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, Series]]:
    """(name, type, help, series) of what a scrape gives, without the client library's own ``_created``."""
    text = generate_latest(registry).decode()
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue
        series: Series = {}
        for each in family.samples:
            if not each.name.endswith("_created"):
                series.setdefault(each.name, set()).add(tuple(sorted(each.labels.items())))
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield name, family.type, family.documentation, series


def exposed(*registries: CollectorRegistry) -> dict[str, tuple[str, Series]]:
    return {name: (kind, series) for each in registries for name, kind, _, series in families(each)}


def operator_registry() -> CollectorRegistry:
    """The operator's metrics, which stand on the same page, with one stream and one rebalance."""
    operator = OperatorMetrics()
    operator.begin("geo", "quakes", ["Watching"])
    operator.rebalances.labels("geo", "quakes", "PM", "balanced")
    return operator.registry


def observe(
    worker: WorkerMetrics, reporter: Hourly, number: int, version: RoutingVersion, loads: dict[int, dict[str, Any]]
) -> None:
    """What becomes of a round in a worker's job."""
    done = round_of(number, version, loads)
    worker.observe(*done, 0.1, {"wait": 0.01, "work": 0.09})
    reporter.observe(*done)
    assert reporter.reported(60.0)


# --------------------------------------------------------------------------------------------------- the documentation


def documented() -> dict[str, tuple[str, set[str]]]:
    """The rows of the page's tables: name -> (type, labels)."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len({name for name, *_ in rows})
    return {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_page_names_exactly_the_metrics_that_there_are(worker: WorkerMetrics) -> None:
    there = exposed(RouterMetrics().registry, worker.registry, operator_registry())

    assert {name: kind for name, (kind, _) in documented().items()} == {name: kind for name, (kind, _) in there.items()}


def test_the_page_names_no_metric_that_there_is_not(worker: WorkerMetrics) -> None:
    there = exposed(RouterMetrics().registry, worker.registry, operator_registry())
    names = {*there, *(name for _, series in there.values() for name in series)}

    assert set(re.findall(r"spatialstream_\w+", PAGE.read_text("utf-8"))) <= names


def test_the_page_names_the_labels(worker: WorkerMetrics, tmp_path: Path) -> None:
    version = build(WGS84, *sample(), leaves=4, slots=SLOTS)
    save_version(Folder(tmp_path), version)
    observe(worker, Hourly(Folder(tmp_path), MemoryStore(), worker), 0, version, {0: load_of(version, 0)})
    there = exposed(RouterMetrics().registry, worker.registry, operator_registry())

    for name, (_, labels) in documented().items():
        for series in there[name][1].values():
            assert {label for each in series for label, _ in each} - {"le"} == labels, name


# -------------------------------------------------------------------------------------------------- the first scrape


@pytest.mark.parametrize("job", ["router", "worker"])
def test_all_other_series_are_there_from_the_first_scrape_on(job: str, worker: WorkerMetrics) -> None:
    registry = worker.registry if job == "worker" else RouterMetrics().registry
    parts = set(WORKER_PARTS if job == "worker" else ROUTER_PARTS)
    values = {
        "part": parts,
        "slot": {"0", "1", "2"},
        "kind": {"objects", "queries"},
        "field": {""},
        "reason": set(REASONS),
        "outcome": set(OUTCOMES),
        "method": set(REQUESTS),
        "process": {"driver"},
    }
    types = {
        "spatialstream_slot_continuous_queries": {"CRQ", "CKQ", "CTQ", "CBQ"},
        "spatialstream_snapshot_queries_total": set(ASKED),
        "spatialstream_snapshot_query_seconds": set(ASKED),
    }

    for name, (_, series) in exposed(registry).items():
        assert series or name in {*BY_LEAF, "spatialstream_actor_slots", "spatialstream_query_candidates"}, name
        for found in series.values():
            for label in {label for each in found for label, _ in each} - {"le"}:
                wanted = types.get(name, {*TYPES}) if label == "type" else values[label]
                assert {dict(each)[label] for each in found} == wanted, (name, label)


@pytest.mark.parametrize("job", ["router", "worker"])
def test_names_follow_the_conventions(job: str, worker: WorkerMetrics) -> None:
    registry = worker.registry if job == "worker" else RouterMetrics().registry

    for name, kind, text, series in families(registry):
        assert re.fullmatch(r"spatialstream(_[a-z]+)+", name), name
        assert kind in {"counter", "gauge", "histogram"}, name
        assert (kind == "counter") == name.endswith("_total"), name
        assert not re.search(r"_(count|sum|bucket|info|created|ms|milliseconds|minutes|kb|mb|percent)(_|$)", name), name
        assert not re.search(r"(seconds|bytes|ratio)_(?!total$)", name), f"{name}: the unit comes last"
        assert re.fullmatch(r"[A-Z].+\.", text), name
        assert all(re.fullmatch("[a-z]+", label) for found in series.values() for each in found for label, _ in each)


# ------------------------------------------------------------------------------------------------------------- bounded


def test_series_do_not_grow_with_rounds_and_are_those_of_the_active_version(
    worker: WorkerMetrics, tmp_path: Path
) -> None:
    versions = [build(WGS84, *sample(), leaves, SLOTS, number=i) for i, leaves in enumerate([16, 4])]
    reporter = Hourly(Folder(tmp_path), MemoryStore(), worker)
    for version in versions:
        save_version(Folder(tmp_path), version)
    number, sizes = 0, []
    for version in versions:
        for _ in range(30):
            observe(worker, reporter, number, version, loads_of(version))
            number += 1
            sizes.append(len(generate_latest(worker.registry).splitlines()))
        there = exposed(worker.registry)
        for name, types in BY_LEAF.items():
            of_leaf = [()] if types is None else [(("type", kind),) for kind in types]
            wanted = {(("leaf", str(leaf)), *more) for leaf in range(len(version.index.leaves)) for more in of_leaf}
            assert there[name][1][name] == wanted, name
    assert len(set(sizes[:30])) == 1
    assert len(set(sizes[30:])) == 1


def test_only_the_most_expensive_queries_have_a_series(worker: WorkerMetrics) -> None:
    version = build(WGS84, *sample(), 16, SLOTS)
    for number in (1, 2):
        window = LoadWindow(600_000, None)
        window.use(version, 0)
        tested = {f"{number}-{i}": 1_000 - i for i in range(30)}
        window.take(1_000, {slot: load | {"tested": tested} for slot, load in loads_of(version).items()})
        worker.counted(window.view())
        found = exposed(worker.registry)["spatialstream_query_candidates"][1]["spatialstream_query_candidates"]
        assert found == {(("query", f"{number}-{i}"),) for i in range(10)}
        value = worker.registry.get_sample_value("spatialstream_query_candidates", {"query": f"{number}-3"})
        assert value == SLOTS * 997


def test_time_of_tasks_adds_up(worker: WorkerMetrics) -> None:
    worker.executors(2, 4, 1.5)
    worker.executors(2, 4, 0.25)
    worker.executors(1, 2)

    value = worker.registry.get_sample_value
    assert value("spatialstream_worker_task_seconds_total") == 1.75
    assert value("spatialstream_worker_cores") == 2


@pytest.mark.parametrize("job", ["router", "worker"])
def test_actors_are_those_that_there_are_when_somebody_asks(job: str, worker: WorkerMetrics) -> None:
    metrics = worker if job == "worker" else RouterMetrics()
    value = metrics.registry.get_sample_value
    assert value("spatialstream_actors") == 0

    there = {0: 2, 1: 1}
    metrics.actors(lambda: there)
    assert value("spatialstream_actors") == 2
    assert [value("spatialstream_actor_slots", {"actor": str(actor)}) for actor in (0, 1)] == [2, 1]

    del there[0]
    assert value("spatialstream_actors") == 1
    assert value("spatialstream_actor_slots", {"actor": "0"}) is None


@pytest.mark.parametrize("job", ["router", "worker"])
def test_the_memory_of_each_process_that_there_is(job: str, worker: WorkerMetrics) -> None:
    metrics, name = worker if job == "worker" else RouterMetrics(), "spatialstream_process_memory_bytes"
    value = metrics.registry.get_sample_value
    assert value(name, {"process": "driver"}) > 1_000_000
    metrics.memory(lambda: {"driver": 5, "java": 6, "actor-0": 7})
    assert [value(name, {"process": each}) for each in ("driver", "java", "actor-0")] == [5, 6, 7]


def test_queries_in_figures(worker: WorkerMetrics) -> None:
    value = worker.registry.get_sample_value
    metrics = QueryMetrics()
    worker.queries(lambda: metrics.counts)
    metrics.counts[1] = [5, 4, 3, 2, 0, 1, *(0 for _ in LIMITS[3:]), 6, 60.5]

    assert [value("spatialstream_snapshot_queries_total", {"type": "SKQ", "outcome": each}) for each in OUTCOMES] == [
        5,
        4,
        3,
        2,
    ]
    assert value("spatialstream_snapshot_queries_total", {"type": "SRQ", "outcome": "answered"}) == 0
    buckets = {each: value("spatialstream_snapshot_query_seconds_bucket", {"type": "SKQ", "le": each}) for each in LE}
    assert buckets == {"0.0005": 0, "0.001": 1, "10.0": 1, "+Inf": 7}
    assert value("spatialstream_snapshot_query_seconds_count", {"type": "SKQ"}) == 7
    assert value("spatialstream_snapshot_query_seconds_sum", {"type": "SKQ"}) == 60.5


@pytest.mark.parametrize("job", ["router", "worker"])
def test_requests_are_those_that_have_been_made_when_somebody_asks(job: str, worker: WorkerMetrics) -> None:
    metrics = worker if job == "worker" else RouterMetrics()
    value = metrics.registry.get_sample_value
    assert value("spatialstream_storage_requests_total", {"method": "put"}) == 0
    metrics.requests(lambda: np.array([[3, 5000], [2, 40], [1, 0], [4, 0]]))
    assert [value("spatialstream_storage_requests_total", {"method": each}) for each in REQUESTS] == [3, 2, 1, 4]
    assert [value("spatialstream_storage_bytes_total", {"method": each}) for each in REQUESTS] == [5000, 40, 0, 0]


LE = ("0.0005", "0.001", "10.0", "+Inf")


def test_epochs_make_no_new_series() -> None:
    metrics = RouterMetrics()
    before = exposed(metrics.registry)
    for epoch in range(20):
        intakes = tuple(Intake(f"objects/{i}", epoch, None, "", 10, i, 5, 0, {"late": i}) for i in range(2))
        clocks = Watermarks.start(["objects/0"], 0).heard({"objects/0": 3_000 * epoch}, 0)
        adoption = Adoption(epoch, epoch + 1, "p", "prepare")
        told = Epoch(epoch, 2, 0, 1_000 * epoch, adoption.active, adoption.pending, (), (), ())
        record = EpochRecord(told, clocks, adoption, (), intakes, {}, None, 0, epoch - 1, {})
        metrics.observe(record, 0.5, dict.fromkeys(ROUTER_PARTS, 0.25))

    assert exposed(metrics.registry) == before
    value = metrics.registry.get_sample_value
    assert value("spatialstream_router_part_seconds_sum", {"part": "route"}) == 5
    assert value("spatialstream_router_records_total", {"kind": "objects"}) == 400
    assert value("spatialstream_router_rejected_total", {"kind": "objects", "reason": "late"}) == 20
    assert value("spatialstream_router_watermark_seconds") == 19
    assert value("spatialstream_router_held_seconds") == 38
    assert value("spatialstream_router_pending_version") == 20


# -------------------------------------------------------------------------------------------------------------- values


def test_a_round_in_figures(worker: WorkerMetrics, tmp_path: Path) -> None:
    store = MemoryStore()
    version = build(WGS84, *sample(), 16, SLOTS)
    save_version(Folder(tmp_path), version)
    save_sample(store, Sample.of(WGS84, *sample(), 1_000))
    reporter = Hourly(Folder(tmp_path), store, worker)
    for number in range(2):
        observe(worker, reporter, number, version, loads_of(version))

    value = worker.registry.get_sample_value
    on_slot = np.bincount(version.mapping, minlength=SLOTS)
    leaves_of = [np.flatnonzero(version.mapping == slot) for slot in range(SLOTS)]
    for slot in range(SLOTS):
        assert value("spatialstream_slot_objects_total", {"slot": str(slot)}) == 2 * 4 * on_slot[slot]
        assert value("spatialstream_slot_checked_total", {"slot": str(slot)}) == 2 * 9 * on_slot[slot]
        assert value("spatialstream_slot_busy_seconds_total", {"slot": str(slot)}) == 0.5
        assert value("spatialstream_slot_load", {"slot": str(slot)}) > 0
        assert value("spatialstream_slot_queries_total", {"slot": str(slot), "type": "SRQ"}) == 4
        assert value("spatialstream_slot_queries_total", {"slot": str(slot), "type": "CKQ"}) == 0
        of_leaves = [value("spatialstream_leaf_busy_seconds", {"leaf": str(each)}) for each in leaves_of[slot]]
        assert sum(of_leaves) == pytest.approx(2 * (0.1 + 0.02 + 0.08))
    assert value("spatialstream_worker_results_rows", {"type": "CRQ"}) == 2
    assert value("spatialstream_worker_rejected_total") == 2
    assert value("spatialstream_leaf_objects", {"leaf": "0"}) == 8
    assert value("spatialstream_leaf_held_objects", {"leaf": "0"}) == 8
    assert value("spatialstream_leaf_continuous_queries", {"leaf": "0", "type": "CRQ"}) == 2
    assert value("spatialstream_leaf_continuous_queries", {"leaf": "0", "type": "CTQ"}) == 1
    assert value("spatialstream_leaf_queries", {"leaf": "0", "type": "SRQ"}) == 2
    assert value("spatialstream_leaf_queries", {"leaf": "0", "type": "SKQ"}) == 0
    loads = [value("spatialstream_slot_load", {"slot": str(slot)}) for slot in range(SLOTS)]
    assert value("spatialstream_imbalance_ratio") == pytest.approx(max(loads) / min(loads))
    assert 0 <= value("spatialstream_model_error_ratio") <= 2 / len(version.mapping)
    assert 0 < value("spatialstream_model_time_error_ratio") <= 2 / len(version.mapping)


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingError, match=r"metrics-port: .* cannot be used"):
            serve(CollectorRegistry(), "127.0.0.1", taken.getsockname()[1])

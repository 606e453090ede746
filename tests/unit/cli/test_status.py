"""``spatialstream status``, ``tree --stream``, ``rebalance --approve``: what they show, and tell the cluster."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from spatialstream.balance.loads import LeafCounts
from spatialstream.cli import live, main
from spatialstream.cli.status import slot_lines, slots_of, store_text, stream_text, table_text
from spatialstream.cli.tree import live_table
from spatialstream.connectors.program import program
from spatialstream.index.sample import Sample
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.objects import ObjectBatch, SpatialObject
from spatialstream.model.queries import QueryBatch
from spatialstream.model.space import WGS84
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import LoadReport, TimeLimits, save_limits, save_load, save_sample, save_unknown
from tests.unit.cli.kubectl import Kubectl, driver, items, stream

NOW = 1_795_262_400.0  # 2026-11-21, 12:00 UTC
PROPOSAL = {"id": "357acdd9c027", "text": "proposal 357acdd9c027: PM, from version 0 to 1\nLmax/Lmin 9.28 -> 1.50"}
NEAR = "import sys; from spatialstream.cli import main; sys.exit(main(sys.argv[1:]))"


def whole() -> dict[str, Any]:
    """A stream about which there is much to say."""
    then = "2026-11-21T11:57:00Z"
    return stream(
        "quakes",
        {"workers": {"min": 2, "max": 4}, "rebalance": {"mode": "approve"}},
        phase="Running",
        conditions=[
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T11:00:00Z", "reason": "JobsRun"},
            {"type": "Balanced", "status": "False", "lastTransitionTime": then, "message": "Lmax/Lmin is 9.28"},
        ],
        router={"pod": "quakes-router", "state": "Running", "restarts": 1, "failures": 0},
        workers={
            **{"replicas": 1, "desired": 2, "pod": "quakes-worker", "state": "Running", "restarts": 3, "failures": 2},
            "lastFailure": {"time": then, "reason": "OOMKilled", "message": "the driver had 2Gi"},
        },
        routing={"version": 7, "leaves": 64, "imbalance": "9.28", "rebuiltVersion": 3, "pendingVersion": 8}
        | {"proposal": "a1"},
        rebalance={
            **{"phase": "AwaitingApproval", "since": then, "proposal": PROPOSAL},
            "last": {"strategy": "FM", "outcome": "balanced", "time": "2026-11-21T10:00:00Z"},
        },
        lag={"delay": "1.2s", "messages": 17},
    )


EVENT = {
    "metadata": {"name": "e", "creationTimestamp": "2026-11-21T11:00:00Z"},
    **{"lastTimestamp": "2026-11-21T11:59:30Z", "type": "Warning", "reason": "DriverFailed", "message": "worker ended"},
}


@pytest.mark.parametrize(
    ("seen", "told"), [("11:58:00", ""), ("08:30:00", "last heartbeat was 3h ago: the status below")]
)
def test_a_status_that_nobody_keeps_is_said_to_be_old(seen: str, told: str) -> None:
    body = whole()
    body["status"]["lastSeen"] = f"2026-11-21T{seen}Z"

    text = stream_text(body, [], "", NOW, "approve")

    assert told in text
    assert bool(told) == ("the operator's last heartbeat" in text)
    (line,) = table_text([body], NOW).splitlines()[1:]
    assert line.split()[3] == ("3h" if told else "2m")


def test_a_stream_is_shown_whole() -> None:
    slots = [{"slot": i, "load": load, "objects": 1_000.0, "queries": 5.0} for i, load in enumerate([30.0, 10.0])]

    text = stream_text(whole(), [EVENT], slots, NOW, "spatialstream rebalance --stream quakes --approve")

    for part in [
        "quakes in geo: Running",
        "Ready      True    1d     JobsRun",
        "Balanced   False   3m              Lmax/Lmin is 9.28",
        "OOMKilled 3m ago: the driver had 2Gi",
        "1 registered, 2 wanted (min 2, max 4 = slots)",
        "version 7, 64 leaves, Lmax/Lmin 9.28",
        "version 8 is pending (proposal a1)",
        "tree       rebuilt with version 3",
        "75.0 %  ████████████████████████",
        "Lmax/Lmin = 3.00",
        "mode approve, AwaitingApproval for 3m",
        "the last one: FM balanced, 2h ago",
        "Lmax/Lmin 9.28 -> 1.50",
        "approve with: spatialstream rebalance --stream quakes --approve 357acdd9c027",
        "lag        results after 1.2s, 17 messages not read by the router",
        "30s    Warning  DriverFailed  worker ended",
    ]:
        assert part in text
    assert "generation" not in text


def test_a_stream_that_the_operator_has_not_seen_is_shown_too() -> None:
    new = {"metadata": {"name": "quakes", "namespace": "geo", "generation": 3}, "spec": {}}

    text = stream_text(new, [], "pods quakes-worker not found", NOW, "approve")

    assert text.startswith("quakes in geo: not reconciled yet\ngeneration 3 of the spec has not been reconciled yet")
    assert "load of slots: not known: pods quakes-worker not found" in text


def test_all_streams_are_a_table() -> None:
    new = {"metadata": {"name": "posts"}, "spec": {}}

    head, first, second = table_text([whole(), new], NOW).splitlines()

    assert head.split() == [
        "NAME",
        "PHASE",
        "READY",
        "SEEN",
        "WORKERS",
        "BALANCED",
        "IMBALANCE",
        "VERSION",
        "LAG",
        "AGE",
    ]
    assert first.split() == ["quakes", "Running", "True", "-", "1/2", "False", "9.28", "7", "1.2s", "0s"]
    assert second.split() == ["posts", "-", "-", "-", "0/-", "-", "-", "-", "-", "-"]


@given(loads=st.lists(st.just(0.0) | st.floats(1e-9, 1e12), min_size=1, max_size=12))
def test_shares_are_of_the_whole_and_the_longest_bar_is_the_heaviest_slot(loads: list[float]) -> None:
    slots = [{"slot": i, "load": load, "objects": 0.0, "queries": 0.0} for i, load in enumerate(loads)]

    *rows, told = slot_lines(slots)[1:]

    bars = [row.count("█") for row in rows]
    shares = [float(row.split()[1]) for row in rows]
    if max(loads) > 0.0:
        assert max(bars) == bars[int(np.argmax(loads))] == 24
        assert math.isclose(sum(shares), 100.0, abs_tol=0.051 * len(loads))
        assert ("∞" in told) == (min(loads) == 0.0)
    else:
        assert told == "no load yet"


def test_slots_are_read_from_the_workers_metrics() -> None:
    registry = CollectorRegistry()
    load = Gauge("spatialstream_slot_load", "-", ["slot"], registry=registry)
    held = Gauge("spatialstream_slot_held_objects", "-", ["slot"], registry=registry)
    continuous = Gauge("spatialstream_slot_continuous_queries", "-", ["slot", "type"], registry=registry)
    for slot in (10, 2):
        load.labels(slot).set(slot / 2)
        held.labels(slot).set(slot * 100)
        for kind, count in (("CRQ", 3), ("CTQ", 4)):
            continuous.labels(slot, kind).set(count)

    assert slots_of(generate_latest(registry).decode()) == [
        {"slot": 2, "load": 1.0, "objects": 200.0, "queries": 7.0},
        {"slot": 10, "load": 5.0, "objects": 1_000.0, "queries": 7.0},
    ]


def test_status_asks_kubernetes_and_the_worker(kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.answer("spatialstreams.spatialstream.dev", out=whole())
    kubectl.answer("events", out=items(EVENT))
    kubectl.answer("exec", "quakes-worker", out='spatialstream_slot_load{slot="0"} 3.0\n')
    kubectl.answer("exec", "quakes-router", out='spatialstream_router_unknown_field_objects{field="size"} 3.0\n')

    assert main(["status", "quakes", "--namespace", "geo", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["stream"] == whole()
    assert known["slots"] == [{"slot": 0, "load": 3.0, "objects": 0.0, "queries": 0.0}]
    assert known["events"] == [EVENT]
    assert known["unknown_fields"] == {"size": 3}

    assert main(["status", "quakes", "--namespace", "geo"]) == 0
    text = capsys.readouterr().out
    assert f"approve with: {program()} rebalance --namespace geo --stream quakes --approve 357acdd9c027" in text
    assert "100.0 %" in text
    assert "unknown    'size' in 3 objects (fields that are not read)" in text


def test_status_does_without_what_it_may_not_see(kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.answer("spatialstreams.spatialstream.dev", out=whole())
    kubectl.answer("events", err="Error from server (Forbidden): events is forbidden")
    kubectl.answer("exec", err='Error from server (Forbidden): pods "quakes-worker" is forbidden')

    assert main(["status", "quakes"]) == 0

    text = capsys.readouterr().out
    assert "load of slots: not known: context: not allowed by the cluster" in text
    assert "DriverFailed" not in text


def test_status_without_a_name_shows_all(kubectl: Kubectl, capsys: pytest.CaptureFixture[str]) -> None:
    kubectl.answer("--namespace", "empty", "spatialstreams.spatialstream.dev", out=items())
    kubectl.answer("spatialstreams.spatialstream.dev", out=items(whole(), stream("posts")))

    assert main(["status"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", "quakes", "posts"]
    assert main(["status", "--namespace", "empty"]) == 0
    assert capsys.readouterr().out == "no SpatialStream in namespace empty\n"


def test_watching_goes_on_when_the_cluster_does_not_answer(kubectl: Kubectl) -> None:
    kubectl.answer("spatialstreams.spatialstream.dev", err="Unable to connect to the server: EOF")
    command = [sys.executable, "-c", NEAR, "status", "quakes", "--watch", "--every", "100ms"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    with watch:
        told = [watch.stdout.readline() for _ in range(2)]
        watch.terminate()

        assert told == ["spatialstream: the cluster does not answer: Unable to connect to the server: EOF\n"] * 2
        watch.stdout.read()
        assert watch.wait(30.0) == 0


# ------------------------------------------------------------------------------------------------------- routing store


def some_version() -> tuple[RoutingVersion, Sample]:
    rng = np.random.default_rng(5)
    objects = ObjectBatch.of(
        [SpatialObject(f"o{i}", i, *map(float, rng.uniform(-80, 80, 2)), ("a",)) for i in range(200)]
    )
    queries = QueryBatch.of([])
    return build(WGS84, objects, queries, 16, 3), Sample.of(WGS84, objects, queries, 1_000.0)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A stream's store, which every command reaches."""
    made = MemoryStore()
    made.create(some_version()[0])

    def reach(options: argparse.Namespace) -> MemoryStore:
        assert options.zookeeper == "zk:2181"
        return MemoryStore(made.memory)

    monkeypatch.setattr(live, "store", reach)
    return made


def counted(store: MemoryStore) -> np.ndarray:
    """Statistics are written; the objects counted in each leaf."""
    version, known = some_version()
    objects = np.arange(len(version.index.leaves), dtype=np.float64)
    save_load(store, LoadReport(version.number, LeafCounts(objects, objects, 2 * objects, 1_000.0), objects, 5))
    save_sample(store, known)
    return objects


def test_status_of_a_store(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "quakes", "--zookeeper", "zk:2181"]) == 0
    text = capsys.readouterr().out
    assert "quakes, 3 slots\nrouting    version 0, active from epoch 0\n" in text
    assert "tree       the stream's first" in text
    assert "load of slots: not known: there are no load statistics yet" in text

    objects = counted(store)
    assert main(["status", "quakes", "--zookeeper", "zk:2181", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["active"] == {
        "version": 0,
        "epoch": 0,
        "proposal": "",
        "rebuilt": None,
        "kind": "qt-tree",
        "reason": "",
    }
    assert [known["pending"], known["executors"]] == [None, {"router": None, "worker": None}]
    mapping = some_version()[0].mapping
    assert [each["objects"] for each in known["slots"]] == [objects[mapping == slot].sum() for slot in range(3)]
    assert sum(each["queries"] for each in known["slots"]) == 2 * objects.sum()


def test_what_slots_hold_is_counted_and_said_to_be_estimated_where_it_is(
    store: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*command: str) -> str:
        assert main([*command, "--zookeeper", "zk:2181"]) == 0
        return capsys.readouterr().out

    version, known = some_version()
    estimate = np.full(len(version.index.leaves), 87_251_431.0 / len(version.index.leaves))
    report = LoadReport(version.number, LeafCounts(estimate, estimate, estimate / 1e7, 1_000.0), estimate, 5)
    save_sample(store, known)
    save_load(store, report)
    assert "objects (estimated)  continuous queries (estimated)" in shown("status", "quakes")

    save_load(store, replace(report, tested={"q-dear": 5_000, "": 70, "q-cheap": 3}))
    assert shown("status", "quakes").splitlines()[-3:] == [
        "most expensive queries  candidates lately (estimated)",
        "q-dear                                          5,000",
        "q-cheap                                             3",
    ]
    assert json.loads(shown("status", "quakes", "--json"))["most_expensive"] == {"q-dear": 5_000, "q-cheap": 3}

    save_load(store, replace(report, kept=np.array([[20_000, 30_000, 1_000], [10_000, 9_000, 0]])))
    text = shown("status", "quakes")
    assert "estimated" not in text
    assert [line.split()[-2:] for line in text.splitlines()[-4:-1]] == [
        ["20,000", "10,000"],
        ["30,000", "9,000"],
        ["1,000", "0"],
    ]
    table, _, said = live_table(store)
    assert np.bincount(version.mapping, table.objects) == pytest.approx([20_000, 30_000, 1_000], abs=len(table))
    assert said == "version 0; loads are current"
    assert "objects (estimated)" in shown("tree", "--stream", "quakes", "--quiet")


def test_a_stream_may_be_named_as_elsewhere(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "ZOOKEEPER", "zk:2181")
    assert main(["status", "--stream", "quakes"]) == 0
    assert "quakes, 3 slots" in capsys.readouterr().out

    for more in (["other"], ["--context", "prod"]):
        assert main(["status", "--stream", "quakes", *more]) == 2
        assert "give only its name" in capsys.readouterr().err


def test_a_pending_version_is_shown(store: MemoryStore) -> None:
    version, _ = some_version()
    store.publish(RoutingVersion(1, version.index, version.mapping, version.slots), 0, "abc", {})
    store.acknowledge(1, "exported", [0, 2])

    text = store_text("quakes", store.state(), "not counted", {"router": 1, "worker": 2}, {"size": 1_200, "": 7})

    assert "version 1 is pending (proposal abc): 2 slots have exported, 0 have loaded" in text
    assert "executors  1 of the router and 2 of the worker requested" in text
    assert "unknown    'size' in 1,200 objects, others 7 times (fields that are not read)" in text


def test_a_stream_of_subscriptions_says_so(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--stream", "quakes", "--zookeeper", "zk:2181"]) == 0
    assert "serves" not in capsys.readouterr().out

    save_limits(store, TimeLimits(serves="subscriptions"))
    assert main(["status", "--stream", "quakes", "--zookeeper", "zk:2181"]) == 0
    assert "serves     subscriptions: objects that no continuous query can match are dropped" in capsys.readouterr().out
    assert main(["status", "--stream", "quakes", "--zookeeper", "zk:2181", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["serves"] == "subscriptions"


def test_unknown_fields_are_shown(store: MemoryStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--stream", "quakes", "--zookeeper", "zk:2181"]) == 0
    assert "unknown" not in capsys.readouterr().out

    save_unknown(store, {"size": 3})
    assert main(["status", "--stream", "quakes", "--zookeeper", "zk:2181"]) == 0
    assert "'size' in 3 objects" in capsys.readouterr().out
    assert main(["status", "--stream", "quakes", "--zookeeper", "zk:2181", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unknown_fields"] == {"size": 3}


def test_the_environment_names_the_stream(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPATIALSTREAM_ZOOKEEPER", "zk:2181")
    assert main(["status"]) == 2
    assert "give the stream's name" in capsys.readouterr().err

    monkeypatch.setenv("SPATIALSTREAM_STREAM", "geo.quakes")
    assert main(["status"]) == 0
    assert "geo.quakes, 3 slots" in capsys.readouterr().out
    assert main(["tree", "--quiet"]) == 0
    assert "leaves, on 3 slots" in capsys.readouterr().out


def test_the_tree_of_a_live_stream(store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tree", "--stream", "quakes", "--zookeeper", "zk:2181"]
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "on 3 slots" in out
    assert err == "spatialstream: version 0; loads are those that the version was computed for\n"

    objects = counted(store)
    picture = tmp_path / "tree.svg"
    assert main([*command, "--svg", str(picture)]) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.split("\n\n")[0].splitlines()[1:]]
    assert [int(row[6]) for row in rows] == objects.tolist()
    assert "loads are current" in err
    assert picture.read_text().startswith("<svg")


def test_a_tree_is_of_files_or_of_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--stream", "quakes", "--objects", str(tmp_path / "o.jsonl")]):
        assert main(["tree", *more]) == 2
        assert "give either --stream, or --objects" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_told(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "nowhere" / "tree.svg"

    assert main(["tree", "--stream", "quakes", "--zookeeper", "zk:2181", "--svg", str(picture)]) == 2

    assert f"{picture} cannot be written: No such file or directory" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------ approval


def decide(*more: str) -> int:
    return main(["rebalance", "--stream", "quakes", "--context", "east", "--namespace", "geo", *more])


@pytest.mark.parametrize(
    ("word", "annotation"),
    [("approve", "spatialstream.dev/approve=357acdd9c027"), ("reject", "spatialstream.dev/approve-")],
)
@pytest.mark.parametrize("given", [[], ["357acdd9c027"]])
def test_a_proposal_is_decided_about_by_its_id(
    word: str, annotation: str, given: list[str], kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("get", out=whole())
    kubectl.answer("annotate", out="annotated")

    assert decide(f"--{word}", *given) == 0

    assert kubectl.calls[-1] == [
        *("--context", "east", "--namespace", "geo", "annotate", "spatialstreams.spatialstream.dev", "quakes"),
        *(annotation, "--overwrite"),
    ]
    assert "Lmax/Lmin 9.28 -> 1.50" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "given", "said"),
    [
        (whole(), ["--approve", "old"], "'old' is not the current proposal, which is 357acdd9c027"),
        (stream(spec={"rebalance": {"mode": "auto"}}), ["--approve"], "rebalance.mode is auto"),
        (stream(spec={"rebalance": {"mode": "approve"}}), ["--reject"], "there is no proposal"),
        (
            stream(spec=whole()["spec"], rebalance={"phase": "Adopting", "proposal": PROPOSAL}),
            ["--reject", "357acdd9c027"],
            "357acdd9c027 is being carried out; --withdraw takes back",
        ),
    ],
)
def test_what_cannot_be_decided_is_told_and_changes_nothing(
    found: dict[str, Any], given: list[str], said: str, kubectl: Kubectl, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("get", out=found)

    assert decide(*given) == 2

    assert said in capsys.readouterr().err
    assert not any("annotate" in call for call in kubectl.calls)


def test_rebalancing_in_a_pod_is_told_all_that_was_asked(
    kubectl: Kubectl, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl.answer("pods", out=items(driver("quakes-router")))
    kubectl.in_pod("import sys; print(sys.argv[2:])")
    picture = str(tmp_path / "p.svg")

    assert decide("--strategy", "FG", "--dry-run", "--lambda", "3", "--picture", picture, "--timeout", "5s") == 0

    told = ["--lambda", "3.0", "--strategy", "FG", "--timeout", "5000", "--picture", picture]
    assert capfd.readouterr().out == f"{['--attached', 'rebalance', *told, '--dry-run']}\n"

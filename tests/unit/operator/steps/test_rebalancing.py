"""How rebalancing goes on from one reconciliation to the next, with a store in memory."""

import asyncio
import copy

import numpy as np
import pytest

from spatialstream.balance.loads import LeafCounts
from spatialstream.index.sample import Sample
from spatialstream.index.version import build
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.store.memory import MemoryStore
from spatialstream.store.reports import LoadReport, save_load, save_sample
from spatialstream_operator.context import ReconcileContext
from spatialstream_operator.decisions.conditions import Job
from spatialstream_operator.decisions.rebalancing_inputs import Load
from spatialstream_operator.load_metrics import LoadMetrics
from spatialstream_operator.memory import Memory
from spatialstream_operator.spec import StreamSpec
from spatialstream_operator.steps.rebalancing import rebalance
from tests.unit.index.samples import PLANE, obj, query
from tests.unit.operator.resource import NAMES, defaulted
from tests.unit.operator.simulated import World

QUICK = {"interval": "1s", "stabilisation": "1s", "cooldown": "1s", "rebuildAfter": 1}
ASKED = QueryBatch.of([query("SRQ", None, "ab"), query("CRQ", None, "cd")])


def sampled(kept, each=1.0):
    """A sample that has kept so many objects, each of which stands for several."""
    objects = ObjectBatch.of([obj(f"o{i}", i % 8 * 0.5, i % 7 * 0.5, "abcd"[i % 4 :]) for i in range(kept)])
    return Sample.of(PLANE, objects, ASKED, 600_000.0, (np.full(kept, each), np.ones(2)))


@pytest.fixture
def store():
    """One whose first slot has nearly all of the load."""
    made, version = MemoryStore(), build(PLANE, sampled(64).objects, ASKED, 16, 4, number=0)
    made.create(version)
    loads = np.where(np.asarray(version.mapping) == 0, 1000.0, 10.0)
    counts = LeafCounts(loads, loads, np.full(len(loads), 5.0), 600_000.0)
    save_load(made, LoadReport(0, counts, np.zeros(len(loads)), 0))
    return made


@pytest.fixture
def reconcile():
    """Looks at a stream again, a while after."""
    world, memory = World(), Memory()
    world.stream(spec={"rebalance": QUICK})

    def again(store, kind="qt-tree"):
        body = world.body()
        body["spec"]["index"] = {"kind": kind}
        spec = StreamSpec.parse(defaulted(body["spec"]), world.environment.defaults)
        status = copy.deepcopy(body.get("status") or {})
        made = ReconcileContext(world.environment, NAMES, body, spec, status, memory, world.at)
        made.jobs = {job: Job(job, "running") for job in ("router", "worker")}
        made.store, made.routing = store, store.state()
        made.load_metrics = LoadMetrics(world.at, load=Load(world.at - 100, world.at - 100, 0, 100.0, 50.0))
        asyncio.run(rebalance(made))
        world.at += 2_000
        return store.state().pending

    return again


def published(reconcile, store, times=6):
    """The strategy of what is published within some reconciliations; None: nothing is."""
    pending = None
    for _ in range(times):
        pending = pending or reconcile(store)
    return None if pending is None else pending.record["strategy"]


def test_a_first_tree_is_built_anew_from_a_thousand_objects(reconcile, store):
    save_sample(store, sampled(1_000))
    assert published(reconcile, store) == "rebuild"


@pytest.mark.parametrize("sample", [sampled(999), sampled(64, 1_000.0)], ids=["too few", "few that stand for many"])
def test_where_no_first_tree_can_be_built_load_is_balanced_nonetheless(reconcile, store, sample):
    save_sample(store, sample)
    assert published(reconcile, store) in {"PM", "FM", "FG"}


def test_a_first_tree_is_tried_again_once_there_may_be_more(reconcile, store):
    save_sample(store, sampled(64, 1_000.0))
    assert reconcile(store) is None  # the tree cannot be built
    save_sample(store, sampled(2_000, 100.0))
    assert published(reconcile, store) == "rebuild"


@pytest.mark.parametrize(
    ("kind", "made"), [("qt-tree", "qt-tree"), ("a-grid", "a-grid"), ("auto", ""), ("grid", "qt-tree")]
)
def test_a_rebuild_makes_the_kind_of_the_spec(reconcile, store, kind, made):
    save_sample(store, sampled(2_000))
    for _ in range(6):
        pending = reconcile(store, kind)
    assert pending.record["strategy"] == "rebuild"
    assert pending.record["kind"] == (made or pending.record["kind"])
    assert ("the slowest slot of" in pending.record["reason"]) == (kind == "auto")

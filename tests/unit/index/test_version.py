"""Routing versions: assignment of leaves, routing to slots, and their file format."""

import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.balance.query_partition import dealt_evenly
from spatialstream.index import cost, statistics, version
from spatialstream.index.a_grid import a_grid
from spatialstream.index.grid import grid
from spatialstream.index.grid.grid import Grid
from spatialstream.index.kinds import KINDS
from spatialstream.index.partition import imbalance
from spatialstream.index.qt import construction, tree
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model import hashing
from spatialstream.model.arrays import pack_arrays
from spatialstream.model.errors import StateError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.regions import Box
from spatialstream.model.space import WGS84
from tests.unit.index.samples import PLANE, Replicating, grids, obj, objects, query, samples, spaces

NO_OBJECTS = ObjectBatch.of([])
NO_QUERIES = QueryBatch.of([])


def loads(routing):
    """The load of each slot, as estimated when the index was built."""
    return np.bincount(routing.mapping, routing.index.leaves.load, routing.slots)


@given(st.data(), spaces, st.integers(1, 20), st.integers(1, 5))
def test_slots_are_those_of_the_leaves(data, space, leaves, slots):
    sample, asked = data.draw(samples(space))
    routing = build(space, sample, asked, leaves, slots)

    assert routing.mapping.dtype == np.int32
    assert routing.route_objects(sample).tolist() == routing.mapping[routing.index.route_objects(sample)].tolist()
    rows, found = routing.route_queries(asked)
    row, leaf = routing.index.route_queries(asked)
    pairs = list(zip(rows.tolist(), found.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == {(r, int(routing.mapping[each])) for r, each in zip(row.tolist(), leaf.tolist(), strict=True)}
    assert rows.tolist() == sorted(rows.tolist())


@given(st.data(), spaces, st.integers(1, 5))
def test_an_object_goes_to_the_slot_of_its_home_and_once_to_each_other_that_has_a_copy(data, space, slots):
    index, batch = data.draw(grids(space, index=Replicating)), data.draw(objects(space))
    mapping = np.array(data.draw(st.lists(st.integers(0, slots - 1), min_size=1)), np.int32)
    routing = RoutingVersion(0, index, np.resize(mapping, len(index.leaves)), slots)

    row, leaf, slot = routing.deliver(batch)

    home = index.route_objects(batch).tolist()
    assert row[: len(batch)].tolist() == list(range(len(batch)))
    assert leaf[: len(batch)].tolist() == home
    assert slot.tolist() == routing.mapping[np.where(leaf < 0, ~leaf, leaf)].tolist()
    assert (leaf[len(batch) :] < 0).all()
    pairs = list(zip(row.tolist(), slot.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    assert row[len(batch) :].tolist() == sorted(row[len(batch) :].tolist())
    copied = zip(*(each.tolist() for each in index.copies(batch)), strict=True)
    assert set(pairs) == {(i, int(routing.mapping[each])) for i, each in [*enumerate(home), *copied]}


@given(st.data(), st.sampled_from([Grid, Replicating]), st.booleans())
def test_an_object_goes_to_the_slots_of_ckqs_too_if_each_is_on_one(data, kind, filtered):
    index, batch = data.draw(grids(PLANE, index=kind)), data.draw(objects(PLANE))
    mapping = np.array(data.draw(st.lists(st.integers(0, 3), min_size=1)), np.int32)
    nearest = dealt_evenly(PLANE, 3)  # the fourth slot has none
    routing = RoutingVersion(0, index, np.resize(mapping, len(index.leaves)), 4, nearest)
    wanted = {(i, slot) for i in range(len(batch)) for slot in range(3)}
    given_ = None
    if filtered:
        wanted = {pair for pair in wanted if sum(pair) % 2}
        pairs = sorted(wanted)
        given_ = np.array([i for i, _ in pairs], np.int64), np.array([slot for _, slot in pairs], np.int32)

    row, leaf, slot = routing.deliver(batch, None, given_)

    home = index.route_objects(batch).tolist()
    assert row[: len(batch)].tolist() == list(range(len(batch)))
    assert leaf[: len(batch)].tolist() == home
    assert (leaf[len(batch) :] < 0).all()
    found = list(zip(row.tolist(), slot.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert row[len(batch) :].tolist() == sorted(row[len(batch) :].tolist())
    copied = zip(*(each.tolist() for each in index.copies(batch)), strict=True)
    assert set(found) == {(i, int(routing.mapping[each])) for i, each in [*enumerate(home), *copied]} | wanted


def test_a_file_has_the_slots_of_ckqs():
    plain = build(PLANE, NO_OBJECTS, NO_QUERIES, 4, 2)
    placed = replace(plain, nearest=dealt_evenly(PLANE, 2))

    for each in (plain, placed):
        again = RoutingVersion.unpack(pa.py_buffer(b"".join(each.pack())), "here")
        assert (again.nearest is None) == (each.nearest is None)
        if each.nearest is not None:
            known, expected = again.nearest.to_arrays(), each.nearest.to_arrays()
            assert {name: array.tolist() for name, array in known.items()} == {
                name: array.tolist() for name, array in expected.items()
            }
            assert again.nearest.space == PLANE


@pytest.mark.parametrize("space", [PLANE, WGS84], ids=str)
def test_without_history_space_is_shared_out_evenly(space):
    routing = build(space, NO_OBJECTS, NO_QUERIES, 64, 4)

    assert len(routing.index.leaves) == 64
    assert np.ptp(routing.index.leaves.load) == 0.0
    assert np.bincount(routing.mapping).tolist() == [16] * 4
    assert imbalance(loads(routing)) == 1.0


def test_without_queries_objects_are_shared_out_evenly():
    rng = np.random.default_rng(2)
    places = np.clip(rng.normal(1.0, 0.2, (2000, 2)), 0.0, 4.0)
    sample = ObjectBatch.of([obj(f"o{i}", x, y, "ab", t=i) for i, (x, y) in enumerate(places)])

    routing = build(PLANE, sample, NO_QUERIES, 64, 4)

    counts = np.bincount(routing.route_objects(sample), minlength=4)
    assert counts.max() < 1.1 * counts.min()
    assert routing.index.leaves.load == pytest.approx(routing.index.leaves.objects)


def test_without_objects_queries_are_shared_out():
    asked = QueryBatch.of([query("CRQ", Box(0.0, 0.0, 0.5, 0.5), "a")] * 100)

    routing = build(PLANE, NO_OBJECTS, asked, 16, 4)

    small = routing.index.leaves.box[:, 2] - routing.index.leaves.box[:, 0] < 1.0
    assert small.any()  # it is split where the queries are
    assert imbalance(loads(routing)) < 1.5


def test_leaves_that_no_query_concerns_count_by_their_objects():
    sample = ObjectBatch.of([obj(f"o{i}", 0.001 * i, 0.001 * i, t=i) for i in range(4000)])
    asked = QueryBatch.of([query("SRQ", Box(3.9, 0.0, 4.0, 0.1))])

    counts = np.bincount(build(PLANE, sample, asked, 64, 4).route_objects(sample), minlength=4)

    assert counts.max() < 1.2 * counts.min()


def test_more_slots_than_leaves_leaves_some_without():
    routing = build(PLANE, NO_OBJECTS, NO_QUERIES, 4, 9)

    assert routing.mapping.tolist() == [0, 1, 2, 3]
    assert loads(routing).tolist()[4:] == [0.0] * 5
    assert imbalance(loads(routing)) == np.inf


@given(data=st.data(), space=spaces)
def test_a_version_survives_its_file(data, space):
    sample, asked = data.draw(samples(space))
    routing = build(space, sample, asked, data.draw(st.integers(1, 20)), 3, number=7)

    again = RoutingVersion.unpack(pa.py_buffer(bytearray(b"".join(routing.pack()))), "7.arrays")

    assert (again.number, again.slots) == (7, 3)
    assert again.route_objects(sample).tolist() == routing.route_objects(sample).tolist()
    for one, other in zip(again.route_queries(asked), routing.route_queries(asked), strict=True):
        assert one.tolist() == other.tolist()


def test_another_process_routes_alike(tmp_path):
    sample = ObjectBatch.of([obj(f"o{i}", 1.0, 1.0, "abcdefgh"[i % 8 :][:3]) for i in range(200)])
    routing = build(PLANE, sample, QueryBatch.of([query("SRQ", Box(0, 0, 4, 4), "ab")] * 9), 16, 4)
    assert len(routing.index.texts.cell) > 0
    (tmp_path / "version").write_bytes(b"".join(routing.pack()))
    code = (
        "import sys; from pathlib import Path; import pyarrow as pa\n"
        "from spatialstream.index.version import RoutingVersion\n"
        "from spatialstream.model.objects import ObjectBatch\n"
        "from tests.unit.index.samples import obj\n"
        "sample = ObjectBatch.of([obj(f'o{i}', 1.0, 1.0, 'abcdefgh'[i % 8 :][:3]) for i in range(200)])\n"
        "data = pa.py_buffer(Path(sys.argv[1]).read_bytes())\n"
        "print(RoutingVersion.unpack(data, 'version').route_objects(sample).tolist())"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "version")], check=True, capture_output=True, text=True
    )

    assert done.stdout.strip() == str(routing.route_objects(sample).tolist())


def test_a_file_of_something_else_is_refused():
    other = b"".join(pack_arrays({}, {"kind": "r-tree"}))

    with pytest.raises(StateError, match="other is not a routing version: its kind of index is 'r-tree'"):
        RoutingVersion.unpack(pa.py_buffer(other), "other")


def test_a_version_of_another_release_is_refused():
    old = pack_arrays({"mapping": np.zeros(1)}, {"kind": "qt-tree", "index": {"space": "wgs84"}})

    with pytest.raises(StateError, match="another release: it has no 'dictionary'"):
        RoutingVersion.unpack(pa.py_buffer(b"".join(old)), "old")


def test_nothing_is_compiled_after_prepare():
    modules = (hashing, cost, statistics, tree, construction, a_grid, grid, version)
    kernels = {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if hasattr(value, "signatures")
    }

    version.prepare()
    ready = {name: len(kernel.signatures) for name, kernel in kernels.items()}
    sample = ObjectBatch.of([obj(f"o{i}", i / 10, i / 10, "abc"[i % 3 :], t=i) for i in range(30)])
    asked = QueryBatch.of([query("SRQ", Box(0, 0, 4, 4), "ab"), query("CKQ", at=(1.0, 1.0))])
    for space, kind in product((PLANE, WGS84), KINDS):
        routing = build(space, sample, asked, 16, 4, kind=kind)
        again = ObjectBatch.from_arrow(sample.to_arrow())
        assert routing.route_objects(again).tolist() == routing.route_objects(sample).tolist()
        routing.route_queries(QueryBatch.from_arrow(asked.to_arrow()))
        routing.index.nearest_leaves(asked.at)

    assert {name: len(kernel.signatures) for name, kernel in kernels.items()} == ready
    # kernels that Python calls have one version; those that kernels call may have been compiled into them
    entries = [name for name, count in ready.items() if ".index.qt.construction._" in name or "._route" in name]
    assert len(entries) == 5
    assert [ready[name] for name in entries] == [1] * 5

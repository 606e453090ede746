"""The table of the kinds of global index, and that a package and a row are all that a kind needs."""

import subprocess
import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from spatialstream.index.adjustment import Implementation
from spatialstream.index.grid.grid import Grid
from spatialstream.index.kinds import DEFAULT, KINDS, STRATEGIES, Kind, kind_named
from spatialstream.index.version import RoutingVersion, build
from spatialstream.model.errors import SettingError
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from tests.unit.index.samples import PLANE, obj

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
SAMPLE = ObjectBatch.of([obj(f"o{i}", 0.04 * i, 0.02 * i, "ab", t=i) for i in range(100)])
NO_QUERIES = QueryBatch.of([])


@each_kind
def test_a_row_agrees_with_its_package(kind):
    implementation = kind.implementation

    assert KINDS[kind.name] is kind
    assert implementation.index.kind == kind.name
    assert kind.strategies == tuple(each for each in STRATEGIES if each in kind.strategies)
    assert kind.strategies[:2] == ("PM", "FM")  # they need nothing of an index
    assert {*kind.strategies} - {"PM", "FM", "rebuild"} == {*implementation.adjusters}
    assert implementation.sampled <= {*implementation.adjusters}


@each_kind
def test_each_kind_is_built_and_read_by_its_name(kind):
    version = build(PLANE, SAMPLE, NO_QUERIES, 9, 3, kind=kind.name)

    again = RoutingVersion.unpack(pa.py_buffer(bytearray(b"".join(version.pack()))), "0.arrays")

    assert type(again.index) is type(version.index) is kind.implementation.index
    assert again.route_objects(SAMPLE).tolist() == version.route_objects(SAMPLE).tolist()
    assert len(set(again.route_objects(SAMPLE).tolist())) == 3


def test_an_unknown_kind_is_refused_with_those_that_there_are():
    assert DEFAULT in KINDS
    with pytest.raises(SettingError, match="index: 'r-tree' is not a kind of index: qt-tree, a-grid, kd-t, grid"):
        kind_named("r-tree")
    with pytest.raises(SettingError, match=r"spec\.index\.kind: 'x' is not"):
        kind_named("x", "spec.index.kind")


def test_the_table_loads_no_index():
    code = "import sys; import spatialstream.index.kinds; print('numpy' in sys.modules, 'numba' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout.split() == ["False", "False"]


class Stripes(Grid):
    """A kind of index: one row of columns."""

    kind = "stripes"


def stripes(objects, leaves, statistics):
    return Stripes(PLANE, np.linspace(0, 4, leaves + 1), np.array([0.0, 4.0]), np.zeros(leaves), np.ones(leaves))


def test_a_package_and_a_row_make_a_kind(monkeypatch):
    package = ModuleType("tests.stripes")
    package.IMPLEMENTATION = Implementation(Stripes, stripes)
    monkeypatch.setitem(sys.modules, "tests.stripes", package)
    monkeypatch.setitem(KINDS, "stripes", Kind("stripes", "tests.stripes", ("PM",), "columns"))

    version = build(PLANE, SAMPLE, NO_QUERIES, 4, 2, kind="stripes")

    again = RoutingVersion.unpack(pa.py_buffer(bytearray(b"".join(version.pack()))), "0.arrays")
    assert isinstance(again.index, Stripes)
    assert again.index.route_objects(SAMPLE).tolist() == [i // 25 for i in range(100)]

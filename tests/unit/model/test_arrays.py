"""Arrow buffers as numpy arrays, and files of arrays."""

import gc
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.arrays import map_arrays, numpy_view, string_view, write_arrays
from spatialstream.model.errors import StateError


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(0, 3))
def test_a_view_holds_the_same_numbers(numbers, skip):
    column = pa.array(numbers, pa.int64()).slice(skip)
    view = numpy_view(column)
    assert view.tolist() == numbers[skip:]
    assert view.flags.writeable
    assert view.flags.c_contiguous


def test_a_view_outlives_the_column():
    view = numpy_view(pa.array(np.arange(100_000)))
    gc.collect()
    pa.array(np.zeros(100_000))
    assert (view == np.arange(100_000)).all()


def test_views_refuse_what_they_cannot_show():
    with pytest.raises(ValueError, match="numpy_view takes arrays without nulls"):
        numpy_view(pa.array([1, None]))
    with pytest.raises(TypeError, match="string_view takes string or binary arrays, not large_string"):
        string_view(pa.array(["a"], pa.large_string()))


@given(st.lists(st.text(st.characters(codec="utf-8"))), st.integers(0, 3))
def test_a_view_of_strings_holds_their_bytes(texts, skip):
    offsets, data = string_view(pa.array(texts, pa.string()).slice(skip))
    assert offsets.dtype == np.int32
    found = [data[a:b].tobytes().decode() for a, b in itertools.pairwise(offsets)]
    assert found == texts[skip:]


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.sampled_from(["u1", "i4", "f8", "?"]), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
        max_size=5,
    )
)
def test_a_file_of_arrays_is_read_back(tmp_path_factory, shapes):
    path = tmp_path_factory.mktemp("arrays") / "new" / "a.arrays"
    arrays = {name: np.arange(np.prod(shape)).astype(kind).reshape(shape) for name, (kind, shape) in shapes.items()}
    write_arrays(path, arrays, {"n": 5})
    found, meta = map_arrays(path)
    assert meta == {"n": 5}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert [each.name for each in path.parent.iterdir()] == ["a.arrays"]


def test_writing_to_a_mapped_array_changes_neither_file_nor_other_maps(tmp_path):
    path = tmp_path / "a.arrays"
    write_arrays(path, {"a": np.arange(5)})
    mine, _ = map_arrays(path)
    mine["a"][0] = 99
    assert map_arrays(path)[0]["a"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("data", [b"", b"short", b"something else, and long enough"])
def test_another_file_is_refused(tmp_path, data):
    path = tmp_path / "a.arrays"
    path.write_bytes(data)
    with pytest.raises(StateError, match="is not a file of arrays"):
        map_arrays(path)

"""Arrow buffers as numpy arrays, and files of arrays."""

import gc
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.arrays import numpy_view, pack_arrays, string_view, unpack_arrays
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
def test_a_file_of_arrays_is_read_back(shapes):
    arrays = {name: np.arange(np.prod(shape)).astype(kind).reshape(shape) for name, (kind, shape) in shapes.items()}
    found, meta = unpack_arrays(packed(arrays, {"n": 5}), "a.arrays")
    assert meta == {"n": 5}
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def packed(arrays, meta=None):
    return pa.py_buffer(bytearray(b"".join(pack_arrays(arrays, meta))))


def test_arrays_are_views_of_the_file_and_aligned():
    data = packed({"a": np.arange(3, dtype=np.uint8), "b": np.arange(5)})
    found, _ = unpack_arrays(data, "a.arrays")
    assert all((array.ctypes.data - data.address) % 64 == 0 for array in found.values())
    found["b"][0] = 99
    assert unpack_arrays(data, "a.arrays")[0]["b"].tolist() == [99, 1, 2, 3, 4]


@pytest.mark.parametrize("data", [b"", b"short", b"something else, and long enough"])
def test_another_file_is_refused(data):
    with pytest.raises(StateError, match=r"somewhere/a\.arrays is not an array file"):
        unpack_arrays(pa.py_buffer(data), "somewhere/a.arrays")

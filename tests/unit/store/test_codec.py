"""Blocks of arrays: bytes and back, and what is damaged is noticed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from spatialstream.model.errors import StateError
from spatialstream.store.codec import PIECE, Seal, digest, pack, pack_version, pieces, unpack, unpack_version
from tests.unit.store.contract import equal, version

arrays = st.dictionaries(
    st.text(max_size=5),
    nps.arrays(
        st.sampled_from([np.int8, np.int64, np.float64, np.uint64, np.bool_]),
        nps.array_shapes(min_dims=0, max_dims=3, min_side=0),
    ),
    max_size=4,
)


@given(arrays)
def test_arrays_come_back(given_arrays):
    packed, seal = pack(given_arrays)

    found = unpack(pieces(packed), Seal(**seal.to_record()))

    assert list(found) == list(given_arrays)
    for name, array in given_arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_pieces_are_small_and_complete(size):
    data = np.random.default_rng(size).bytes(size)

    parts = pieces(data)

    assert b"".join(parts) == data
    assert len(parts) == max(1, -(-size // PIECE))
    assert max(map(len, parts)) <= PIECE


def test_damage_is_noticed():
    packed, seal = pack({"a": np.random.default_rng(1).random(300_000)})
    parts = pieces(packed)
    assert len(parts) == seal.pieces == 3
    changed = bytes([parts[0][0] ^ 1]) + parts[0][1:]

    for damaged in ([], parts[:-1], parts[::-1], [changed, *parts[1:]], [b"".join(parts)]):
        with pytest.raises(StateError, match="damaged"):
            unpack(damaged, seal)


def test_a_version_comes_back_from_its_parts():
    parts, meta = pack_version(version(7))

    assert equal(unpack_version(parts, meta), version(7))


@pytest.mark.parametrize("change", [{"kind": "r-tree"}, {}])
def test_versions_of_other_programs_are_refused(change):
    parts, meta = pack_version(version(7))
    tree = {} if not change else parts["tree"]

    with pytest.raises(StateError, match="version 7"):
        unpack_version(parts | {"tree": tree}, meta | change)


def test_the_digest_tells_versions_apart():
    one = version(1)
    other = replace(one, mapping=one.mapping[::-1].copy())
    assert not np.array_equal(one.mapping, other.mapping)

    assert digest(one) == digest(version(1))
    assert len({digest(each) for each in (one, other, version(2), version(1, leaves=10), version(1, slots=5))}) == 5

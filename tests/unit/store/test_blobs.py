"""Blobs of bytes in pieces, and what is damaged is noticed; digests of versions."""

from dataclasses import replace

import numpy as np
import pytest
from kazoo.exceptions import NodeExistsError, NoNodeError

from spatialstream.model.errors import StateError
from spatialstream.store.blobs import PIECE, Blob, read_blob, token_of
from spatialstream.store.codec import digest
from tests.unit.store.contract import version


class Nodes(dict):
    """A client of nodes in memory; what it answers at once is waited for by ``wait``."""

    def ensure_path_async(self, path):
        return lambda: None

    def create_async(self, path, data):
        def create():
            if path in self:
                raise NodeExistsError
            self[path] = data

        return create

    def get_async(self, path):
        def get():
            if path not in self:
                raise NoNodeError
            return self[path], None

        return get


def wait(result):
    return result()


@pytest.mark.parametrize(("size", "pieces"), [(0, 1), (1, 1), (PIECE - 100, 1), (PIECE + 1, 2), (3 * PIECE, 4)])
def test_a_block_comes_back_from_small_pieces(size, pieces):
    nodes, data = Nodes(), np.random.default_rng(size).bytes(size)
    blob = Blob(nodes, "/folder", [data[: size // 2], memoryview(data)[size // 2 :]])

    for _ in range(2):
        blob.write(wait)

    found = read_blob(nodes, wait, "/folder", blob.head)
    assert found.to_pybytes() == data
    assert found.is_mutable
    assert sorted(nodes) == [f"/folder/{token_of(blob.head)}.{i:04d}" for i in range(pieces)]
    assert max(map(len, nodes.values())) <= PIECE


def test_blocks_do_not_disturb_each_other():
    nodes = Nodes()
    blobs = [Blob(nodes, "/folder", [data]) for data in (b"one", b"other", b"one")]
    for blob in blobs:
        blob.write(wait)

    assert [read_blob(nodes, wait, "/folder", blob.head).to_pybytes() for blob in blobs] == [
        b"one",
        b"other",
        b"one",
    ]


def test_damage_is_noticed():
    nodes = Nodes()
    blob = Blob(nodes, "/folder", [np.random.default_rng(1).bytes(2 * PIECE + 1)])
    blob.write(wait)
    whole = dict(nodes)
    first, second, third = sorted(whole)

    for damaged in ({first: whole[second], second: whole[first]}, {third: b""}, {first: b"x" + whole[first][1:]}):
        nodes.update(whole | damaged)
        with pytest.raises(StateError, match="damaged"):
            read_blob(nodes, wait, "/folder", blob.head)
    del nodes[second]
    with pytest.raises(NoNodeError):
        read_blob(nodes, wait, "/folder", blob.head)


def test_the_digest_tells_versions_apart():
    one = version(1)
    other = replace(one, mapping=one.mapping[::-1].copy())
    assert not np.array_equal(one.mapping, other.mapping)

    assert digest(one) == digest(version(1))
    assert len({digest(each) for each in (one, other, version(2), version(1, leaves=10), version(1, slots=5))}) == 5

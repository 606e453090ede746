"""Stable hashes and the tables keyed by them."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.hashing import find_all, hash_strings, make_table

BITS = (1 << 64) - 1


def plain_hash(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & BITS
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & BITS
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & BITS
    return value ^ value >> 33


def test_the_hash_never_changes():
    assert hash_strings(pa.array(["", "flood", "straße"])).tolist() == [
        17280346270528514342,
        plain_hash("flood"),
        plain_hash("straße"),
    ]


@given(st.lists(st.text(st.characters(codec="utf-8"))), st.integers(0, 3))
def test_hash_is_fnv_with_the_finaliser_of_murmur(texts, first):
    strings = pa.array(texts, pa.string()).slice(first)

    assert hash_strings(strings).tolist() == [plain_hash(text) for text in texts[first:]]


@given(st.sets(st.integers(0, BITS)), st.sets(st.integers(0, BITS)))
def test_a_table_finds_what_it_holds_and_nothing_else(held, asked):
    hashes = np.array(sorted(held), np.uint64)
    both = np.array(sorted(held | asked), np.uint64)

    found = find_all(make_table(hashes), both)

    position = {value: i for i, value in enumerate(sorted(held))}
    assert found.tolist() == [position.get(value, -1) for value in sorted(held | asked)]

"""Stable hashes and the tables keyed by them."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.hashing import (
    distinct,
    find_all,
    hash_strings,
    keyed_hashes,
    make_table,
    process_seed,
    seed_of,
)
from tests.unit.flooding import longest_run

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


def test_a_table_is_found_in_by_a_process_with_another_seed(become_process):
    hashes = hash_strings(pa.array(["a", "b"]))
    table = make_table(hashes)
    become_process(1)

    assert find_all(table, hashes).tolist() == [0, 1]


def test_no_choice_of_hashes_fills_one_part_of_a_table_under_more_than_a_few_seeds(become_process):
    """Numbers in steps are an arithmetic progression in the table too, which one seed in some 300 makes a long run."""
    low, high = np.arange(5000, dtype=np.uint64) << np.uint64(20), np.arange(5000, dtype=np.uint64)
    mixed = (low * np.uint64(0x9E3779B97F4A7C15)) << np.uint64(24)
    runs = []
    for i in range(100):  # named seeds: a random one would fail at random
        become_process(i)
        runs += [longest_run(make_table(hashes).values >= 0) for hashes in (low, high, mixed)]

    assert np.median(runs) < 20
    assert sum(run >= 200 for run in runs) <= 3


def test_each_process_has_a_seed_of_its_own_and_takes_it_into_kernels_from_the_cache():
    code = "from spatialstream.model.hashing import keyed_hashes, process_seed; import pyarrow as pa;"
    code += "print(*process_seed(), keyed_hashes(pa.array(['flood']), process_seed())[0])"
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    own = [*process_seed(), keyed_hashes(pa.array(["flood"]), process_seed())[0]]

    assert all(int(theirs) != int(ours) for theirs, ours in zip(said, own, strict=True))


@given(st.lists(st.text(st.characters(codec="utf-8", min_codepoint=8))), st.binary(), st.binary())
def test_equal_strings_have_equal_keyed_hashes_under_each_seed(texts, one, other):
    strings = pa.array(texts * 2, pa.string())
    seeds = [seed_of(np.frombuffer(content, np.uint8)) for content in (one, other)]
    first, second = (keyed_hashes(strings, seed).tolist() for seed in seeds)

    assert [len(set(hashes)) for hashes in (first, second)] == [len(set(texts))] * 2
    assert first[: len(texts)] == first[len(texts) :]
    assert (first == second) == (one == other or not texts)


def test_a_seed_depends_on_all_contents_and_on_where_one_ends():
    a, b, ab = (np.frombuffer(content, np.uint8) for content in (b"a", b"b", b"ab"))
    seeds = [seed_of(*each).tolist() for each in ([], [a], [ab], [a, b], [b, a], [ab, a[:0]], [a[:0], ab])]

    assert len({tuple(seed) for seed in seeds}) == len(seeds)
    assert all(seed[1] % 2 for seed in seeds)


def test_every_bit_of_a_seed_and_of_a_word_counts():
    words = [b"flood", b"flooding", b"floodings", b"flooding the meadows"]
    changed = [
        word[:i] + bytes([word[i] ^ 1 << bit]) + word[i + 1 :]
        for word in words
        for i in range(len(word))
        for bit in range(7)
    ]
    strings = pa.array([each.decode() for each in (*words, *changed)])
    seed = seed_of(np.arange(3))
    flips = [[0, 0], [1, 0], [0, 2], [1 << 63, 0], [0, 1 << 63]]
    hashes = [keyed_hashes(strings, seed ^ np.array(flip, np.uint64)).tolist() for flip in flips]

    assert [len(set(each)) for each in hashes] == [len(strings)] * len(flips)
    assert all(len(set(each)) == len(flips) for each in zip(*hashes, strict=True))


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12)), st.integers(0, 3))
def test_distinct_is_dictionary_encode(texts, first):
    strings = pa.array(texts, pa.string()).slice(first)
    codes, firsts = distinct(strings)
    encoded = strings.dictionary_encode()

    assert codes.tolist() == encoded.indices.to_pylist()
    assert strings.take(pa.array(firsts)).equals(encoded.dictionary)

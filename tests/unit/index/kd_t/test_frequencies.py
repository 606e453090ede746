"""The rarest word of each group, by frozen frequencies."""

import numpy as np
import pyarrow as pa

from spatialstream.index.kd_t import frequencies as module
from spatialstream.index.kd_t.frequencies import Frequencies
from spatialstream.model.hashing import hash_strings
from spatialstream.model.terms import TermLists

SOME = Frequencies.of(TermLists.of([["a", "b"], ["a"], ["a", "c"], ["b"], []]))


def words(hashes):
    """The words of hashes, of those in the tests; "" for none."""
    known = dict(zip(hash_strings(pa.array(list("abcxyz"))).tolist(), "abcxyz", strict=True))
    return [known.get(each, "") for each in hashes.tolist()]


def test_the_rarest_word_of_each_group():
    groups = TermLists.of([["a"], ["a", "b"], [], ["b", "c", "a"], ["a", "x"], []])

    assert words(SOME.rarest(groups)) == ["a", "b", "", "c", "x", ""]
    assert SOME.of_hashes(hash_strings(pa.array(["a", "x", "c"]))).tolist() == [3, 0, 1]


def test_of_equally_rare_words_it_is_the_one_of_the_least_hash_in_any_order():
    least = words(np.array([hash_strings(pa.array(list("xyz"))).min()]))

    for group in ("xyz", "zyx", "yxz"):
        assert words(SOME.rarest(TermLists.of([group]))) == least


def test_some_groups_of_a_batch_are_those_of_the_whole():
    groups = TermLists.of([["a", "b"], [], ["b", "c"], ["a"]])

    for rows in ([2], [3, 0], [1], [1, 2]):
        assert SOME.rarest(groups.take(np.array(rows))).tolist() == SOME.rarest(groups)[rows].tolist()


def test_without_frequencies_any_word_will_do():
    nothing = Frequencies.of(TermLists.empty(0))

    assert words(nothing.rarest(TermLists.of([["a"], []]))) == ["a", ""]


def test_there_is_a_bound_and_frequent_words_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)

    kept = Frequencies.of(TermLists.of([["a", "b"], ["a"], ["a", "c"], ["b"]]))

    assert sorted(words(kept.hashes)) == ["a", "b"]
    assert kept.hashes.tolist() == sorted(kept.hashes.tolist())
    assert words(kept.rarest(TermLists.of([["b", "c"]]))) == ["c"]


def test_what_a_record_stands_for_counts():
    weighed = Frequencies.of(TermLists.of([["a"], ["b"], ["b"]]), np.array([5.0, 1.0, 1.5]))

    assert weighed.of_hashes(hash_strings(pa.array(["a", "b"]))).tolist() == [5, 3]

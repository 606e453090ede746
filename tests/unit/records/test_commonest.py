"""Counts by name, of which the commonest are kept."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from spatialstream.records.commonest import commonest

COUNTS = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9)), max_size=5)


@given(COUNTS, st.integers(1, 9))
def test_nothing_is_lost_and_nothing_counted_twice(counts, most):
    exact = sum((Counter(each) for each in counts), Counter())
    found = commonest(counts, most=most)
    assert sum(found.values()) == exact.total()
    named = {name: count for name, count in found.items() if name}
    assert list(named.values()) == [count for _, count in exact.most_common(most)]
    assert all(exact[name] == count for name, count in named.items())


@given(COUNTS)
def test_bit_by_bit_it_is_the_same_while_there_is_room(counts):
    total = {}
    for each in counts:
        total = commonest([total, each])
    assert total == commonest(counts)


def test_what_has_been_dropped_is_among_the_rest():
    first = commonest([{"a": 5, "b": 1}], most=1)
    assert first == {"a": 5, "": 1}
    assert commonest([first, {"b": 9}], most=1) == {"b": 9, "": 6}


def test_names_that_are_alike_count_as_the_first_of_them():
    assert commonest([{"k: 0 is": 1}, {"k: 5 is": 2, "t": 1}], lambda name: name.rstrip("05 is")) == {
        "k: 0 is": 3,
        "t": 1,
    }

"""Term extraction, and sets of terms as columns."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.errors import SettingError
from spatialstream.model.terms import TermLists, TermRule, check_counts, extract_terms, occurrences, term_sequence
from spatialstream.model.words import MARK, WORD, classes, fold, words

MARKS = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if classes(c) == MARK)

SETS = st.lists(st.lists(st.sampled_from(["a", "b", "é", "", "flood", "fire"]), max_size=5), max_size=6)


def sets(lists):
    return [lists[i] for i in range(len(lists))]


def distinct(collections):
    return [list(dict.fromkeys(each)) for each in collections]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []),
        (" .,! \n\0", []),
        ("Flood warning: FLOOD in Straße 5", ["flood", "warning", "in", "strasse", "5"]),
        ("ΣΊΣΥΦΟΣ Σίσυφος", ["σίσυφοσ"]),
        ("İstanbul I\u0307stanbul istanbul", ["i\u0307stanbul", "istanbul"]),
        ("İstanbul'da sel", ["i\u0307stanbul", "da", "sel"]),
        ("बाढ़ आ गई बा\u0922\u093c", ["बा\u0922\u093c", "आ", "गई"]),
        ("बाढ़ की चेतावनी", ["बा\u0922\u093c", "की", "चेतावनी"]),
        ("เกิดน้ำท่วมหนัก", ["เกิดน\u0e49\u0e4dาท่วมหนัก"]),
        ("வெள்ளம் எச்சரிக்கை", ["வெள்ளம்", "எச்சரிக்கை"]),
        ("محمّد می\u200cخواهم", ["محمّد", "میخواهم"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("Hoch\u00adwasser", ["hochwasser"]),
        ("🔥 near, fire\ufe0f 👍🏽 C++", ["near", "fire", "c"]),
        ("São Paulo 東京で地震", ["são", "paulo", "東京で地震"]),
        ("\u093cx \u0301 -\u0e38y", ["x", "y"]),
        ("ﬁre ﬀ ½ ①", ["fire", "ff", "1", "2"]),
        ("e\u0301t\u00e9", ["été"]),
        ("snake_case don't e-mail", ["snake_case", "don", "t", "e", "mail"]),
        ("日本語 テキスト ｶﾞ", ["日本語", "テキスト", "ガ"]),
        ("b a b c a", ["b", "a", "c"]),
        ("#fire @you 😀 x\u200dy", ["fire", "you", "xy"]),
    ],
)
def test_extraction(text, terms):
    assert extract_terms(text) == terms


@given(st.text())
def test_terms_are_distinct_runs_of_word_characters(text):
    terms = extract_terms(text)
    assert len(set(terms)) == len(terms)
    assert terms == list(dict.fromkeys(words(fold(" ".join(terms)))))
    folded = fold(text)
    runs = folded.translate(dict.fromkeys(map(ord, {c for c in folded if classes(c) not in WORD + MARK}), " ")).split()
    assert terms == list(dict.fromkeys(filter(None, (run.lstrip(MARKS) for run in runs))))


@given(st.text(), st.frozensets(st.sampled_from("abc")), st.integers(0, 4))
def test_a_rule_only_leaves_terms_out(text, stop_words, minimum):
    kept = extract_terms(text, TermRule(stop_words, minimum))
    assert kept == [term for term in extract_terms(text) if len(term) >= minimum and term not in stop_words]


@given(SETS)
def test_columns_hold_the_same_sets(collections):
    lists = TermLists.of(collections)
    assert sets(lists) == distinct(collections)
    assert len(set(lists.vocabulary.to_pylist())) == len(lists.vocabulary)


@given(SETS, st.data())
def test_taking_sets(collections, data):
    lists = TermLists.of(collections)
    chosen = data.draw(st.lists(st.integers(0, max(len(collections) - 1, 0)), max_size=6 if collections else 0))
    assert sets(lists.take(np.array(chosen, np.int64))) == [distinct(collections)[i] for i in chosen]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(collections), max_size=len(collections))), np.bool_)
    assert sets(lists.take(mask)) == [terms for terms, kept in zip(distinct(collections), mask, strict=True) if kept]


@given(st.lists(SETS, max_size=5))
def test_concatenating_sets(parts):
    lists = TermLists.concat([TermLists.of(part) for part in parts])
    assert sets(lists) == [terms for part in parts for terms in distinct(part)]
    assert len(set(lists.vocabulary.to_pylist())) == len(lists.vocabulary)


def test_concatenating_keeps_the_text_between_parts_without_a_vocabulary():
    parts = [
        TermLists.empty(2),
        TermLists.of([["a"]]),
        TermLists.empty(1),
        TermLists.of([["b", "a"]]),
        TermLists.empty(0),
    ]
    assert sets(TermLists.concat(parts)) == [[], [], ["a"], [], ["b", "a"]]


@given(SETS, SETS)
def test_a_compact_vocabulary_holds_what_is_used(collections, others):
    lists = TermLists.concat([TermLists.of(others), TermLists.of(collections)])
    compact = lists.take(np.arange(len(others), len(lists))).compact()
    assert sets(compact) == distinct(collections)
    assert set(compact.vocabulary.to_pylist()) == {term for terms in collections for term in terms}


def test_sets_of_a_slice_of_a_vocabulary():
    lists = TermLists(np.array([0, 1], np.int32), np.array([1], np.int32), pa.array(["x", "a", "b"]).slice(1))
    assert sets(lists) == [["b"]]
    assert sets(TermLists.concat([lists, lists])) == [["b"], ["b"]]


@pytest.mark.parametrize("words", [8, 20, 10_000])
def test_what_is_compact_has_the_words_that_are_used_in_their_order(words: int) -> None:
    """Whether the words are many or few beside the terms, a block is the same to the last byte."""
    rng = np.random.default_rng(words)
    codes = rng.integers(0, words, 60).astype(np.int32)
    lists = TermLists(np.arange(0, 61, 3, dtype=np.int32), codes, pa.array([f"w{i}" for i in range(words)]))
    compact = lists.compact()
    used = sorted(set(codes.tolist()))
    assert compact.vocabulary.to_pylist() == [f"w{i}" for i in used]
    assert compact.codes.tolist() == [used.index(code) for code in codes.tolist()]
    assert compact.codes.dtype == np.int32
    assert [compact[i] for i in range(20)] == [lists[i] for i in range(20)]


COUNTED = st.lists(st.dictionaries(st.sampled_from(["a", "b", "é", "flood", "fire"]), st.integers(1, 7)), max_size=6)


def counted(each):
    """Sets with counts."""
    lists = TermLists.of(each)
    counts = np.array([count for one in each for count in one.values()], np.uint8)
    return TermLists(lists.offsets, lists.codes, lists.vocabulary, counts)


def items(lists):
    return [dict(zip(lists[i], lists.counts_of(i), strict=True)) for i in range(len(lists))]


@given(COUNTED, COUNTED, st.data())
def test_counts_go_where_their_terms_go(some, others, data):
    first, second = counted(some), counted(others)
    both = TermLists.concat([first, second])
    assert items(both) == some + others
    rows = data.draw(st.lists(st.integers(0, len(both) - 1), max_size=8)) if len(both) else []
    taken = both.take(np.array(rows, np.int64))
    assert items(taken) == items(taken.compact()) == [(some + others)[row] for row in rows]
    mask = np.array([bool(row % 2) for row in range(len(both))], np.bool_)
    assert items(both.take(mask)) == (some + others)[1::2]
    start = data.draw(st.integers(0, len(both)))
    assert items(both.slice(start, len(both))) == (some + others)[start:]
    assert sets(both.said()) == [[term for term in each for _ in range(each[term])] for each in some + others]


@given(COUNTED, COUNTED)
def test_what_is_not_counted_is_there_once(some, others):
    plain = TermLists.of(others)
    assert plain.counts is None
    assert plain.said() is plain
    assert plain.counted(False) is plain
    once = [dict.fromkeys(each, 1) for each in others]
    assert items(plain.counted()) == once
    assert items(TermLists.concat([counted(some), plain])) == some + once
    assert counted(some).counted(False).counts is None


def test_occurrences_are_counted_up_to_seven():
    assert occurrences(term_sequence("Fire! " * 9 + "water WATER")) == {"fire": 7, "water": 2}
    assert occurrences([]) == {}


def test_a_stream_that_does_not_rank_counts_no_occurrences():
    check_counts(TermRule(ranking=True, counts=True))
    check_counts(TermRule())
    with pytest.raises(SettingError, match=r"^term-counts: are for ranked queries, which need --ranking"):
        check_counts(TermRule(counts=True))

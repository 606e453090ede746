"""Tokenising in bulk equals term extraction of each text."""

import random
import sys
import unicodedata
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model.hashing import seed_of
from spatialstream.model.terms import TermLists, TermRule, extract_terms, occurrences, term_sequence
from spatialstream.model.unicode_data import UNICODE
from spatialstream.model.words import fold
from spatialstream.records import tokens
from tests.lengths import examples
from tests.unit.flooding import GOLDEN, Letters, colliding_words, longest_run, low_bits, packed

PLANES = st.characters(exclude_categories=["Cs"])
SCRIPTS = {
    "ascii": "aB cD_9-,.\t\n\0",
    "german": "Straße ÄÖÜ äöü ẞ",
    "turkish": "İIıi Ğğ Şş I\u0307",
    "greek": "Σσς Ὀδυσσεύς ΐ ά ᾳ",
    "arabic": "السَّلَامُ عَلَيْكُم ۱۲۳ ﷺ ﻻ أ\u0654",
    "hebrew": "שָׁלוֹם ﬡ",
    "hindi": "नमस्ते क़ \u093c १२",
    "thai": "สวัสดีครับ กำ",
    "hangul": "가각힣 ㄱㅏㅠ ㅋㅋ \u1100\u1161\u11a8 ﾡￂ",
    "cjk": "東京 日本語 か\u3099が ﾊﾟｶﾞ ㍿ ㌔ 豈",
    "emoji": "😀👍🏽 👨\u200d👩\u200d👧 ❤\ufe0f 🇩🇪 1\u20e3 \U0001f3f4\U000e0067\U000e007f",
    "marks": "e\u0301 a\u0323\u0302 \u0345α \u0301 x\u0327\u0301 o\u0338 <\u0338 q\u0307\u0323",
    "compatible": "ﬁ ﬃ ſ ½ ² ① Ⅳ ™ ℃ … ´ ¨ ¯ ª ŉ ǆ Ａｂ９ Å K Ω \ufdfa",
    "wide": "𝐀𝐛𝟗 𐐀𐐨 𝒳 \U0001d15e \U0001e922 \U0010fffd \U00030000",
}
WORDS = [
    "flood",
    "Flood",
    "a",
    "é",
    "extraordinary",
    "extraordinarily",
    "12345678",
    "1234567",
    "日本語テキスト",
    "ß" * 4,
]


def mixed() -> st.SearchStrategy[str]:
    alphabets = [st.text(alphabet=letters, max_size=12) for letters in SCRIPTS.values()]
    everything = st.text(alphabet="".join(SCRIPTS.values()), max_size=12)
    words = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
    return st.one_of(*alphabets, everything, words, st.text(alphabet=PLANES, max_size=12))


def sets(lists: TermLists) -> list[list[str]]:
    return [lists[i] for i in range(len(lists))]


@given(st.lists(mixed(), max_size=12))
def test_every_text_gives_the_terms_of_extract_terms(texts: list[str]) -> None:
    assert sets(tokens.tokenise(pa.array(texts, pa.string()))) == [extract_terms(text) for text in texts]


@given(
    st.lists(mixed(), max_size=8),
    st.frozensets(st.sampled_from([*WORDS, "ss", "The", "", "x y", "a\0b", "σ", "i"]) | mixed()),
    st.integers(0, 6),
)
def test_stop_words_and_minimum_length_are_those_of_extract_terms(
    texts: list[str], stop_words: frozenset[str], minimum: int
) -> None:
    rule = TermRule(stop_words, minimum)
    assert sets(tokens.tokenise(pa.array(texts, pa.string()), rule)) == [extract_terms(text, rule) for text in texts]


def repeated() -> st.SearchStrategy[str]:
    """A text whose parts come again, up to ten times, which is more than is counted."""
    return st.lists(st.tuples(mixed(), st.integers(1, 10)), max_size=4).flatmap(
        lambda parts: st.permutations([part for part, count in parts for _ in range(count)]).map(" ".join)
    )


@given(
    st.lists(repeated(), max_size=8),
    st.frozensets(st.sampled_from([*WORDS, "ss", "The", "a\0b", "i"]) | mixed()),
    st.integers(0, 6),
)
def test_occurrences_are_those_of_the_text(texts: list[str], stop_words: frozenset[str], minimum: int) -> None:
    rule = TermRule(stop_words, minimum, counts=True)
    lists = tokens.tokenise(pa.array(texts, pa.string()), rule)
    found = [dict(zip(lists[i], lists.counts_of(i), strict=True)) for i in range(len(lists))]
    assert found == [occurrences(term_sequence(text, rule)) for text in texts]
    without = tokens.tokenise(pa.array(texts, pa.string()), TermRule(stop_words, minimum))
    assert without.counts is None
    assert sets(without) == sets(lists)


def test_occurrences_of_several_texts_are_added() -> None:
    data = np.frombuffer(bytearray("fire FIRE water|Fire|né ne\u0301".encode()), np.uint8)
    ends = np.array([15, 20, len(data)])
    lists, _ = tokens.tokenise_slices(data, np.array([0, 16, 21]), ends, np.array([0, 2, 2, 3]), counted=True)
    assert [dict(zip(lists[i], lists.counts_of(i), strict=True)) for i in range(3)] == [
        {"fire": 3, "water": 1},
        {},
        {"né": 2},
    ]


def test_occurrences_while_the_table_grows() -> None:
    words = [f"word number{i % 7919}" for i in range(40_000)]
    texts = [" ".join(words[i : i + 500]) for i in range(0, len(words), 250)]
    lists = tokens.tokenise(pa.array(texts), TermRule(counts=True))
    for i, text in enumerate(texts):
        assert dict(zip(lists[i], lists.counts_of(i), strict=True)) == occurrences(text.split())


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script(script: str) -> None:
    text = SCRIPTS[script]
    pairs = [a + b for a in text for b in text]
    assert sets(tokens.tokenise(pa.array(pairs))) == [extract_terms(pair) for pair in pairs]


def assert_terms(texts: list[str]) -> None:
    lists = tokens.tokenise(pa.array(texts))
    vocabulary, offsets, codes = lists.vocabulary.to_pylist(), lists.offsets.tolist(), lists.codes.tolist()
    for i, text in enumerate(texts):
        assert [vocabulary[code] for code in codes[offsets[i] : offsets[i + 1]]] == extract_terms(text), ascii(text)


@pytest.mark.timeout(900)
def test_every_character_alone_between_letters_and_after_and_before_one() -> None:
    """All in one text: where a character is complex, the whole text is folded by the reference anyway."""
    characters = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    assert_terms([f"{each} x{each}Y ख{each} {each}b" for each in characters])


@pytest.mark.timeout(900)
def test_texts_of_all_scripts() -> None:
    """Letters of one block, mostly, with marks of any, what is ignored, and characters from anywhere."""
    rng, everything = (
        random.Random(5),
        [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000],
    )
    assigned = [each for each in everything if unicodedata.category(each) not in ("Cn", "Co")]
    blocks = [list(block) for _, block in groupby(assigned, lambda each: ord(each) >> 7)]
    marks = [each for each in assigned if unicodedata.combining(each)]
    ignored = [each for each in assigned if not fold(each)]
    choices, weights = [[], marks, ignored, everything, list("aB 9_-")], [60, 12, 6, 4, 18]
    left = examples(20_000, 1_000_000)
    while left > 0:
        texts = []
        for _ in range(10_000):
            choices[0] = rng.choice(blocks)
            texts.append("".join(map(rng.choice, rng.choices(choices, weights, k=rng.randint(1, 12)))))
        assert_terms(texts)
        left -= len(texts)


def test_the_table_takes_most_characters_itself() -> None:
    complex_ones = tokens.character_table() & np.uint64(3) == 2
    for letters in (
        "äöüßéñçøåłžşğ",
        "абвгд",
        "αβγδσς",
        "日本語漢字かなカナ",
        "한국어",
        "שלום",
        "السلام",
        "😀👍🏽\ufe0f\u200d\u00ad\u200c",
        "İŞÇığ",
        "चेतावनी",
        "ท่วมหนัก",
        "محمّد",
    ):
        assert not [c for c in letters if complex_ones[ord(c)]], letters
    for letters in ("\u0301\u0327\u0345", "\u3099", "\u1161\u11a8", "½", "\u093c"):
        assert all(complex_ones[ord(c)] for c in letters), letters


def test_more_terms_than_the_table_has_room_for_at_first() -> None:
    texts = [
        " ".join(f"{n}longer than eight" if n % 3 else str(n) for n in range(i, i + 60)) for i in range(0, 60_000, 50)
    ]
    lists = tokens.tokenise(pa.array(texts))
    assert sets(lists) == [extract_terms(text) for text in texts]
    assert len(set(lists.vocabulary.to_pylist())) == len(lists.vocabulary)


def multiplied(letters: Letters) -> Any:
    """Where terms of up to seven letters lie in a table of 2^14 places, if their bytes are only multiplied."""
    return low_bits(packed(letters, "little") * GOLDEN >> np.uint64(32), 14)


def xored(letters: Letters) -> Any:
    """The same of terms of eight letters under a hash without a key: multiplied, the upper half added to the lower."""
    mixed = packed(letters, "little") * np.uint64(0xFF51AFD7ED558CCD)
    key = (mixed ^ mixed >> np.uint64(32) ^ np.uint64(8)) * np.uint64(0xFF51AFD7ED558CCD)
    return low_bits((key ^ key >> np.uint64(29) | np.uint64(1 << 63)) * GOLDEN >> np.uint64(32), 14)


@pytest.mark.parametrize(("size", "place"), [(7, multiplied), (8, xored)])
def test_no_choice_of_words_fills_one_part_of_the_table(size: int, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    words, tables, grow = colliding_words(6000, size, place), [], tokens._rehash
    monkeypatch.setattr(tokens, "_rehash", lambda *arguments: (tables.append(arguments[-1]), grow(*arguments)))

    lists = tokens.tokenise(pa.array([" ".join(words)]))

    assert lists.vocabulary.to_pylist() == words
    assert len(tables[-1]) == 2 << 14
    assert longest_run(tables[-1][::2] != 0) < 200


@given(st.lists(mixed(), max_size=8), st.binary(min_size=1))
def test_terms_and_their_order_do_not_depend_on_the_seed(texts: list[str], other: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "process_seed", lambda: seed_of(np.frombuffer(other, np.uint8)))
        found = tokens.tokenise(pa.array(texts, pa.string()))
    expected = tokens.tokenise(pa.array(texts, pa.string()))
    assert found.vocabulary == expected.vocabulary
    assert (found.offsets.tolist(), found.codes.tolist()) == (expected.offsets.tolist(), expected.codes.tolist())


def test_a_long_term_and_a_long_text() -> None:
    texts = ["é" * 3_000_000, "word " * 1_000_000, "x" * 7 + " " + "x" * 8 + " " + "x" * 9]
    assert sets(tokens.tokenise(pa.array(texts))) == [["é" * 3_000_000], ["word"], ["x" * 7, "x" * 8, "x" * 9]]


def test_terms_of_seven_and_eight_bytes_that_begin_alike_differ() -> None:
    text = "abcdefg abcdefgh abcdefghi abcdefghijklmno abcdefghijklmnop abcdefghijklmnopq abécdef éééa éééé"
    assert tokens.tokenise(pa.array([text]))[0] == text.split()


@given(st.lists(st.lists(mixed(), max_size=4), max_size=6))
def test_groups_of_texts_are_one_set_each(groups: list[list[str]]) -> None:
    texts = [text.encode() for group in groups for text in group]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    starts = ends - np.array([len(text) for text in texts], np.int64)
    bounds = np.cumsum([0, *map(len, groups)], dtype=np.int64)
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    lists, found = tokens.tokenise_slices(data, starts, ends, bounds)
    expected = [list(dict.fromkeys(term for text in group for term in extract_terms(text))) for group in groups]
    assert sets(lists) == expected
    assert found.tolist() == [bool(extract_terms(text)) for group in groups for text in group]


def test_slices_of_columns() -> None:
    texts = ["zero", "one é", "e\u0301 two", "three"]
    column = pa.array(texts).slice(1, 2)
    assert sets(tokens.tokenise(column)) == [extract_terms(text) for text in texts[1:3]]
    assert sets(tokens.tokenise(pa.array([], pa.string()))) == []


def test_the_table_is_kept_on_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tokens, "cache_folder", lambda: tmp_path)
    built = tokens.character_table.__wrapped__()
    (file,) = tmp_path.iterdir()
    assert UNICODE in file.name
    monkeypatch.setattr(tokens, "_character", None)
    assert np.array_equal(tokens.character_table.__wrapped__(), built)


def test_a_damaged_table_is_made_anew(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(tokens, "cache_folder", lambda: tmp_path)
    (tmp_path / f"characters-{UNICODE}.npy").write_bytes(b"nonsense that is long enough")
    assert np.array_equal(tokens.character_table.__wrapped__(), tokens.character_table())

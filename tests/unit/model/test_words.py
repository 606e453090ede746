"""Folding of texts and cutting into words, over all of Unicode."""

import hashlib
import importlib.util
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spatialstream.model import unicode_data
from spatialstream.model.words import MARK, WORD, classes, fold, is_word, words

CHARACTERS = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
ROOT = Path(__file__).parents[3]
TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text("aÅéक\u093cढ़ \u0301\u0323\u0327\u0345\u00ad\u034f")


def points(ranges: str) -> set[int]:
    pairs = (each.partition("-") for each in ranges.split())
    return {point for first, _, last in pairs for point in range(int(first, 16), int(last or first, 16) + 1)}


def test_every_version_of_python_cuts_the_same_words() -> None:
    """The digest is the one of every Python from 3.11 on: a stream may go on under another one."""
    folded = fold("\n".join(f"{each} x{each}Y" for each in CHARACTERS))
    found = hashlib.sha256("\n".join(words(folded)).encode())
    assert found.hexdigest() == "d828d81dc38ffe3903902150665ccbfe466433fec8b39904cf74c69beef6431e"


def test_the_table_is_what_the_script_makes_of_this_version_of_unicode() -> None:
    """Under a newer one the script refuses to make it, and categories of a few characters may differ."""
    spec = importlib.util.spec_from_file_location("characters", ROOT / "scripts/characters.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.UNICODE == unicode_data.UNICODE
    if unicodedata.unidata_version == unicode_data.UNICODE:
        assert script.module() == script.FILE.read_text("utf-8")


def test_what_is_ignored_leaves_no_trace_and_separates_nothing() -> None:
    ignored = [chr(point) for point in sorted(points(unicode_data.IGNORED))]
    assert len(ignored) == 4174
    assert {"\u00ad", "\u034f", "\u200b", "\u200c", "\u200d", "\ufe0f", "\ufeff", "\U000e0067"} < set(ignored)
    assert fold("".join(f"x{each}y" for each in ignored)) == "xy" * len(ignored)


def test_a_mark_continues_a_word_and_begins_none() -> None:
    marks = [chr(point) for point in sorted(points(unicode_data.MARKS))]
    assert {each for each in CHARACTERS if unicodedata.category(each) in ("Mn", "Mc", "Me") and fold(each)} <= set(
        marks
    )
    lasting = [each for each in marks if set(classes(fold(each))) == {MARK}]
    assert words(fold(" ".join(f"{each}क{each}ख" for each in lasting))) == [fold(f"क{each}ख") for each in lasting]
    assert set(marks) - set(lasting) == {"\u0345"}


def test_what_is_no_character_yet_separates() -> None:
    unknown = [chr(point) for point in sorted(points(unicode_data.UNASSIGNED))]
    assert set(words(fold("".join(f"x{each}y" for each in unknown)))) == {"x", "yx", "y"}


@given(TEXTS)
def test_texts_that_are_canonically_equivalent_have_the_same_words(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(unicodedata.normalize("NFC", text)) == fold(text)


@given(TEXTS)
def test_what_is_folded_stays_so(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert set(classes(folded)) <= {WORD, MARK, "-"}
    assert all(is_word(word) and fold(word) == word for word in words(folded))


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("STRASSE straße", "strasse strasse"),
        ("ﬁ № ½", "fi no 1\u20442"),
        ("α\u0345\u0301", "άι"),
        ("ᾴ", "άι"),
        ("İ", "i\u0307"),
    ],
)
def test_folding(text: str, folded: str) -> None:
    assert fold(text) == folded

"""Case folding and word segmentation of texts, identical in every version of Python.

Folding is Unicode's NFKC_Casefold of the text's NFD, as for caseless matching of identifiers (Unicode Standard, D147):
NFKC, case folding and the removal of default ignorable code points are applied to each character until it no longer
changes, and the result is normalised to NFC. Words are the maximal runs of letters, digits, underscores and marks that
do not begin with a mark; marks are Extend and Format of UAX 29.

The classes of characters are those of the Unicode version in :mod:`.unicode_data`. Foldings come from Python, whose
Unicode version may be newer: normalisation and case folding of a version's characters are the same in all later
versions. A code point that is unassigned in the version of :mod:`.unicode_data` is a separator.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from spatialstream.model import unicode_data

__all__ = ["MARK", "UNASSIGNED", "WORD", "classes", "fold", "is_word", "words"]

WORD, MARK, UNASSIGNED, _IGNORED, _OTHER = "wmui-"
"""Classes of characters. Folded texts contain no ignored or unassigned ones."""


def _class_of_each() -> str:
    """The classes of all code points, in order."""
    cuts = [(0, 0, _OTHER)]
    for ranges, name in (
        (unicode_data.WORD, WORD),
        (unicode_data.MARKS, MARK),
        (unicode_data.IGNORED, _IGNORED),
        (unicode_data.UNASSIGNED, UNASSIGNED),
    ):
        for each in ranges.split():
            first, _, last = each.partition("-")
            cuts.append((int(first, 16), int(last or first, 16) + 1, name))
    cuts.sort()
    gaps = ((end, start) for (_, end, _), (start, _, _) in pairwise([*cuts, (0x110000, 0x110000, _OTHER)]))
    return "".join(
        name * (end - start) + _OTHER * (after - before)
        for (start, end, name), (before, after) in zip(cuts, gaps, strict=True)
    )


_CLASS = _class_of_each()
_RUN = re.compile(f"{WORD}[{WORD}{MARK}]*")


def classes(text: str) -> str:
    """The class of each character of a text."""
    return text.translate(_CLASS)


def _without(name: str, text: str, instead: str = "") -> str:
    """Replace all characters of a class in a text."""
    found = classes(text)
    if name not in found:
        return text
    return "".join(instead if each == name else letter for letter, each in zip(text, found, strict=True))


class _Folding(dict[int, str]):
    """NFKC_Casefold of each character by code point, computed on first use."""

    def __missing__(self, point: int) -> str:
        before, after = "", chr(point)
        while after != before:
            before, after = after, _without(_IGNORED, unicodedata.normalize("NFKC", after).casefold())
        self[point] = after
        return after


_FOLDING = _Folding()


def fold(text: str) -> str:
    """Fold a text: remove differences of case and of compatibility forms, and invisible characters.

    >>> fold("Straße, №7, ﬁre")
    'strasse, no7, fire'
    """
    known = _without(UNASSIGNED, text, " ")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", known).translate(_FOLDING))


def words(folded: str) -> list[str]:
    """The words of a folded text, in order."""
    return [folded[run.start() : run.end()] for run in _RUN.finditer(classes(folded))]


def is_word(folded: str) -> bool:
    """Whether a folded text consists of exactly one word."""
    return _RUN.fullmatch(classes(folded)) is not None

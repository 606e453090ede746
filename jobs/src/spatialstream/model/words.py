"""How a text is folded and cut into words, the same in every version of Python.

Folding is Unicode's NFKC_Casefold of the text's NFD, as for caseless matching of identifiers (Unicode Standard, D147):
each character becomes what NFKC, case folding and the removal of default ignorables make of it, over and over, and the
whole is brought to NFC. Words are then the maximal runs of letters, digits, underscores and marks that begin with no
mark; marks are Extend and Format of UAX 29.

Which characters are which is read from :mod:`.unicode_data`, in that version of Unicode. What a character is folded to
is asked of Python, whose Unicode may be a newer one: normalisation and case folding of the characters of a version are
the same in all later ones. A code point that the version has no character for is nothing but a separator.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from spatialstream.model import unicode_data

__all__ = ["MARK", "UNASSIGNED", "WORD", "classes", "fold", "is_word", "words"]

WORD, MARK, UNASSIGNED, _IGNORED, _OTHER = "wmui-"
"""Classes of characters. Folded texts have none that are ignored or unassigned."""


def _class_of_each() -> str:
    """The classes of all code points, in their order."""
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
    """A text with other characters in place of those of a class."""
    found = classes(text)
    if name not in found:
        return text
    return "".join(instead if each == name else letter for letter, each in zip(text, found, strict=True))


class _Folding(dict[int, str]):
    """NFKC_Casefold of each character that has been met, by code point."""

    def __missing__(self, point: int) -> str:
        before, after = "", chr(point)
        while after != before:
            before, after = after, _without(_IGNORED, unicodedata.normalize("NFKC", after).casefold())
        self[point] = after
        return after


_FOLDING = _Folding()


def fold(text: str) -> str:
    """The text without differences of case, of compatible forms, and of what is not seen.

    >>> fold("Straße, №7, ﬁre")
    'strasse, no7, fire'
    """
    known = _without(UNASSIGNED, text, " ")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", known).translate(_FOLDING))


def words(folded: str) -> list[str]:
    """The words of a folded text, in their order."""
    return [folded[run.start() : run.end()] for run in _RUN.finditer(classes(folded))]


def is_word(folded: str) -> bool:
    """Whether a folded text is a word, and nothing else."""
    return _RUN.fullmatch(classes(folded)) is not None

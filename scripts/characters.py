"""Write the table of characters that tokenization uses, from the Unicode data of the running Python.

Usage: python scripts/characters.py

The version of Unicode is that of the oldest Python that the project runs on. A newer Python folds these characters the
same way: Unicode never changes the normalisation or the case folding of a character that exists. What may change, the
categories, is in the table. Another version means other words, so existing streams cannot continue with it.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

UNICODE = "14.0.0"
FILE = Path(__file__).parents[1] / "jobs/src/spatialstream/model/unicode_data.py"

HEAD = '''"""Which characters words are made of, in one version of Unicode.

Made by scripts/characters.py; change that. Each set is of ranges of code points, in hexadecimal.
"""

__all__ = ["IGNORED", "MARKS", "UNASSIGNED", "UNICODE", "WORD"]

UNICODE = "{version}"
"""The version."""
'''

OTHER_DEFAULT_IGNORABLE = frozenset(
    [
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9)),
        *(point for point in range(0xE0000, 0xE1000) if point not in (0xE0001, *range(0xE0020, 0xE0080))),
    ]
)
"""Of PropList.txt, some of the variation selectors among them."""

VARIATION_SELECTORS = frozenset([*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)])
PREPENDED = frozenset([*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD])
"""Prepended_Concatenation_Mark."""

EMOJI_MODIFIERS = range(0x1F3FB, 0x1F400)


def is_ignored(point: int) -> bool:
    """Default_Ignorable_Code_Point, as DerivedCoreProperties.txt derives it."""
    shown = point in PREPENDED or 0xFFF9 <= point <= 0xFFFB or 0x13430 <= point <= 0x13440
    is_format = unicodedata.category(chr(point)) == "Cf" and not shown
    return is_format or point in OTHER_DEFAULT_IGNORABLE or point in VARIATION_SELECTORS


def is_mark(point: int) -> bool:
    """Word_Break=Extend or Format of UAX 29, but what is ignored (ZWJ is)."""
    category = unicodedata.category(chr(point))
    return (category in ("Mn", "Me", "Mc", "Cf") or point in EMOJI_MODIFIERS) and not is_ignored(point)


def is_word(point: int) -> bool:
    """A letter, a digit or another number, or the underscore; but no letter that is ignored."""
    return re.match(r"\w", chr(point)) is not None and not is_ignored(point)


def is_unassigned(point: int) -> bool:
    """No character yet, nor ignored whenever it becomes one."""
    return unicodedata.category(chr(point)) == "Cn" and not is_ignored(point)


SETS: dict[str, tuple[Callable[[int], bool], str]] = {
    "WORD": (is_word, "Letters, digits and other numbers, and the underscore."),
    "MARKS": (is_mark, "What continues a word and begins none: Extend and Format of UAX 29, but what is ignored."),
    "IGNORED": (is_ignored, "Default_Ignorable_Code_Point: what leaves no trace in a word."),
    "UNASSIGNED": (is_unassigned, "Code points that no character has, and that are not ignored either."),
}


def ranges(belongs: Callable[[int], bool]) -> list[str]:
    """The ranges of the code points of which that is so."""
    points = [point for point in range(sys.maxunicode + 1) if belongs(point)]
    firsts = [point for point, before in zip(points, [-1, *points], strict=False) if point != before + 1]
    lasts = [point for point, after in zip(points, [*points[1:], -1], strict=True) if point + 1 != after]
    return [f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in zip(firsts, lasts, strict=True)]


def module() -> str:
    """The module's text."""
    parts = [HEAD.format(version=unicodedata.unidata_version)]
    for name, (belongs, meaning) in SETS.items():
        lines, line = [], ""
        for each in ranges(belongs):
            if len(line) + len(each) > 112:
                lines.append(line)
                line = ""
            line += each + " "
        lines.append(line.rstrip())
        parts.append("\n".join([f"\n{name} = (", *(f'    "{each}"' for each in lines), ")", f'"""{meaning}"""', ""]))
    return "".join(parts)


if __name__ == "__main__":
    if unicodedata.unidata_version != UNICODE:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}; use one that has {UNICODE}")
    FILE.write_text(module(), "utf-8")

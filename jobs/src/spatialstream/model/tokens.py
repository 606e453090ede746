"""Term extraction in bulk: slices of UTF-8 text to sets of coded terms, equal to :func:`~.terms.extract_terms` for every text.

Characters are folded one at a time by a table (NFKC and casefold of each, and whether it is a word character). That equals
folding the whole text as long as no character can change or be changed by its neighbours; a text that holds any that can (the
table calls them complex) goes through ``extract_terms`` itself. A character is *simple* when

- it is the first of no reordering or composition with what stands before it: its decomposition begins with a starter
  (combining class 0) that is not the second half of any canonical composition (Unicode Standard Annex 15, section 9.1,
  "stable code points" and boundaries); casefolding has no context at all; or
- it is a mark that composes with nothing and is no word character, so that its place among other marks does not matter;

and it folds to word characters only or to none, in no more bytes than it has (so buffers never outgrow the text).

Terms are coded by an open-addressing hash table with linear probing. A term of up to seven bytes is its own key; a longer one is
keyed by a hash and then compared byte by byte. Cost: O(bytes) and one cache line for each term met.
"""

from __future__ import annotations

import functools
import re
import unicodedata

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.model.arrays import map_arrays, string_view, write_arrays
from spatialstream.model.errors import StateError
from spatialstream.model.kernels import cache_folder, kernel
from spatialstream.model.swar import TOPS, any_range, first_flag, lean_kernel, load, repeat, store
from spatialstream.model.terms import DEFAULT_RULE, TermLists, TermRule, extract_terms

__all__ = ["character_table", "prepare", "tokenise", "tokenise_slices"]

_COVERED = 0x40000
"""Code points that the table covers: planes 0 to 3. The others (tags, private use) are taken as complex."""

_SEPARATOR, _WORD, _COMPLEX = 0, 1, 2
_IS_WORD = re.compile(r"\w")
_FIRST_CAPACITY = 1 << 12

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_LONG = np.uint64(1 << 63)
"""Marks the key of a term of more than seven bytes; a shorter term's key is below 2^56."""
_CODE = np.uint64(0xFFFFFFFF)


# ------------------------------------------------------------------------------------------------------- characters


def _composing() -> frozenset[str]:
    """Every character that composition can join to one before it."""
    seconds = {chr(point) for point in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}  # Hangul vowels and finals
    for point in range(0x110000):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(chr(int(parts[1], 16)))
    return frozenset(seconds)


def _character(point: int, composing: frozenset[str]) -> int:
    """One entry of the table: class, then of a word character its bytes' and characters' number and the bytes."""
    character = chr(point)
    if 0xD800 <= point < 0xE000:
        return _COMPLEX
    decomposed = unicodedata.normalize("NFKD", character)
    folded = unicodedata.normalize("NFKC", character).casefold()
    words = sum(1 for each in folded if _IS_WORD.match(each))
    composes = any(each in composing for each in decomposed)
    if unicodedata.combining(decomposed[0]):
        lone = decomposed == character == folded and not composes and not words
        return _SEPARATOR if lone else _COMPLEX
    coded = folded.encode()
    if decomposed[0] in composing or 0 < words < len(folded) or len(coded) > len(character.encode()):
        return _COMPLEX
    if not words:
        return _SEPARATOR
    return _WORD | len(coded) << 2 | len(folded) << 5 | int.from_bytes(coded, "little") << 8


@functools.cache
def character_table() -> npt.NDArray[np.uint64]:
    """uint64[0x40000]: how each code point is folded, by the Unicode version of the running Python.

    Bits 0-1 hold the class (0 separator, 1 word, 2 complex), 2-4 the number of bytes, 5-7 of characters, and from 8 on
    the UTF-8 bytes, first byte lowest. Made once (about a second) and kept beside the compiled kernels.
    """
    path = cache_folder() / f"characters-{unicodedata.unidata_version}.arrays"
    try:
        return map_arrays(path)[0]["table"]
    except (OSError, StateError, ValueError, KeyError):
        composing = _composing()
        table = np.array([_character(point, composing) for point in range(_COVERED)], np.uint64)
        write_arrays(path, {"table": table})
        return table


@lean_kernel
def _entry(data: npt.NDArray[np.uint8], i: int, table: npt.NDArray[np.uint64]) -> tuple[int, np.uint64]:
    """(number of bytes, table entry) of the non-ASCII character at ``i`` of valid UTF-8."""
    c = np.int64(data[i])
    if c < 0xE0:
        return 2, table[(c & 0x1F) << 6 | np.int64(data[i + 1]) & 0x3F]
    if c < 0xF0:
        return 3, table[(c & 0x0F) << 12 | (np.int64(data[i + 1]) & 0x3F) << 6 | np.int64(data[i + 2]) & 0x3F]
    point = (
        (c & 0x07) << 18
        | (np.int64(data[i + 1]) & 0x3F) << 12
        | (np.int64(data[i + 2]) & 0x3F) << 6
        | np.int64(data[i + 3]) & 0x3F
    )
    if point >= _COVERED:
        return 4, np.uint64(_COMPLEX)
    return 4, table[point]


@lean_kernel
def _mark_complex(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    table: npt.NDArray[np.uint64],
    marked: npt.NDArray[np.bool_],
) -> None:
    for s in range(len(starts)):
        i = starts[s]
        end = ends[s]
        while i < end:
            if data[i] < 0x80:
                i += 1
                continue
            size, entry = _entry(data, i, table)
            if entry & np.uint64(3) == np.uint64(_COMPLEX):
                marked[s] = True
                break
            i += size


# ------------------------------------------------------------------------------------------------------- hash table


@kernel
def _grow(slots: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The same table with twice the capacity: uint64[2 * capacity] of (key, stamp << 32 | code); key 0 is a free slot."""
    bigger = np.zeros(2 * len(slots), np.uint64)
    mask = np.int64(len(slots) - 1)
    for at in range(0, len(slots), 2):
        key = slots[at]
        if key == np.uint64(0):
            continue
        slot = np.int64((key * _GOLDEN) >> np.uint64(32)) & mask
        while bigger[2 * slot] != np.uint64(0):
            slot = (slot + 1) & mask
        bigger[2 * slot] = key
        bigger[2 * slot + 1] = slots[at + 1]
    return bigger


@lean_kernel
def _place(
    slots: npt.NDArray[np.uint64],
    bounds: npt.NDArray[np.int32],
    letters: npt.NDArray[np.uint8],
    count: int,
    key: np.uint64,
    size: int,
) -> int:
    """The place in ``slots`` of the term whose ``size`` bytes stand behind the last known one in ``letters``; or a free one."""
    mask = np.int64((len(slots) >> 1) - 1)
    slot = np.int64((key * _GOLDEN) >> np.uint64(32)) & mask
    while True:
        found = slots[2 * slot]
        if found == np.uint64(0):
            return 2 * slot
        if found == key:
            if key < _LONG:
                return 2 * slot
            code = np.int64(slots[2 * slot + 1] & _CODE)
            old = np.int64(bounds[code])
            if np.int64(bounds[code + 1]) - old == size:
                new = np.int64(bounds[count])
                same = 0
                while same < size and letters[old + same] == letters[new + same]:
                    same += 1
                if same == size:
                    return 2 * slot
        slot = (slot + 1) & mask


@lean_kernel
def _mix(mixed: np.uint64, word: np.uint64) -> np.uint64:
    """The hash of a term's bytes so far, eight bytes on."""
    mixed = (mixed ^ word) * _MIX
    return mixed ^ (mixed >> np.uint64(32))


@lean_kernel
def _ascii_letters(word: np.uint64) -> tuple[int, np.uint64]:
    """(how many of the eight bytes, from the first, are ASCII word characters, the bytes in lower case)."""
    letters = any_range(word | repeat(0x20), 0x61, 0x7A)
    others = any_range(word, 0x30, 0x39) | any_range(word, 0x5F, 0x5F)
    return first_flag(~((letters | others) & ~word) & TOPS), word | letters >> np.uint64(2)


@kernel
def _tokenise(
    data: npt.NDArray[np.uint8],
    extra: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],
    folded: npt.NDArray[np.bool_],
    stops: int,
    minimum: int,
    ascii_fold: npt.NDArray[np.uint8],
    table: npt.NDArray[np.uint64],
    offsets: npt.NDArray[np.int32],
    codes: npt.NDArray[np.int32],
    found: npt.NDArray[np.bool_],
    bounds: npt.NDArray[np.int32],
    letters: npt.NDArray[np.uint8],
) -> tuple[int, int]:
    """Terms of every group of slices; returns how many codes and how many vocabulary terms were written.

    ``folded`` slices are of ``extra`` and hold terms already, a NUL between them; the others are text in ``data``. The first
    ``stops`` groups are the stop words, a term each, whose codes are therefore 0 to stops - 1.
    """
    slots = np.zeros(2 * _FIRST_CAPACITY, np.uint64)
    count = 0
    written = 0
    bounds[0] = 0
    for g in range(len(groups) - 1):
        stamp = np.uint64(g + 1) << np.uint64(32)
        for s in range(groups[g], groups[g + 1]):
            plain = not folded[s]
            text = data if plain else extra
            limit = len(text)
            i = starts[s]
            end = ends[s]
            while i < end:
                # one term: its bytes go behind the vocabulary, and eight at a time into the key
                top = np.int64(bounds[count])
                size = 0
                characters = 0
                pending = np.uint64(0)
                mixed = np.uint64(0)
                begin = i
                swift = plain
                while swift and i + 8 <= limit:
                    step, letters_here = _ascii_letters(load(text, i))
                    step = min(step, end - i)
                    i += step
                    store(letters, top + size, letters_here)
                    size += step
                    if step == 8:
                        mixed = _mix(mixed, letters_here)
                    else:
                        pending = letters_here & ((np.uint64(1) << np.uint64(8 * step)) - np.uint64(1))
                        swift = False
                characters = size
                if i < end:
                    if swift or not plain or text[i] >= 0x80:
                        # no pure ASCII, or too near the end of memory: again, a character at a time
                        i = begin
                        size = 0
                        characters = 0
                        pending = np.uint64(0)
                        mixed = np.uint64(0)
                        while i < end:
                            c = text[i]
                            if plain and c >= 0x80:
                                step, entry = _entry(text, i, table)
                                i += step
                                if entry & np.uint64(3) != np.uint64(_WORD):
                                    break
                                characters += np.int64(entry >> np.uint64(5)) & 7
                                for b in range(np.int64(entry >> np.uint64(2)) & 7):
                                    letter = (entry >> np.uint64(8 + 8 * b)) & np.uint64(0xFF)
                                    letters[top + size] = letter
                                    pending |= letter << np.uint64(8 * (size & 7))
                                    size += 1
                                    if size & 7 == 0:
                                        mixed = _mix(mixed, pending)
                                        pending = np.uint64(0)
                                continue
                            i += 1
                            if plain:
                                c = ascii_fold[c]
                            if c == 0:
                                break
                            characters += 1
                            letters[top + size] = c
                            pending |= np.uint64(c) << np.uint64(8 * (size & 7))
                            size += 1
                            if size & 7 == 0:
                                mixed = _mix(mixed, pending)
                                pending = np.uint64(0)
                    else:
                        i += 1
                if size == 0 or (plain and characters < minimum):
                    continue
                key = pending
                if size > 7:
                    key = (mixed ^ pending ^ np.uint64(size)) * _MIX
                    key = (key ^ (key >> np.uint64(29))) | _LONG
                if 4 * count >= len(slots):
                    slots = _grow(slots)
                place = _place(slots, bounds, letters, count, key, size)
                value = slots[place + 1]
                if slots[place] == np.uint64(0):
                    slots[place] = key
                    value = np.uint64(count)
                    count += 1
                    bounds[count] = top + size
                slots[place + 1] = stamp | (value & _CODE)
                code = np.int64(value & _CODE)
                if code >= stops:
                    found[s] = True
                    if value & ~_CODE != stamp:
                        codes[written] = code
                        written += 1
        offsets[g + 1] = written
    return written, count


# --------------------------------------------------------------------------------------------------------------- use

_ASCII_FOLD = np.array([ord(chr(c).lower()) if c < 128 and _IS_WORD.match(chr(c)) else 0 for c in range(256)], np.uint8)


def _fold_complex(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], rule: TermRule
) -> tuple[npt.NDArray[np.bool_], list[bytes]]:
    """Which slices hold complex characters, and the terms of each of those, joined by NUL."""
    marked = np.zeros(len(starts), np.bool_)
    if len(data) and data.max() >= 0x80:
        _mark_complex(data, starts, ends, character_table(), marked)
    texts = (data[starts[s] : ends[s]].tobytes().decode() for s in np.flatnonzero(marked))
    return marked, ["\0".join(extract_terms(text, rule)).encode() for text in texts]


def tokenise_slices(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],
    rule: TermRule = DEFAULT_RULE,
) -> tuple[TermLists, npt.NDArray[np.bool_]]:
    """The distinct terms of each group of texts, in order of first appearance.

    Args:
        data: uint8, writable and contiguous: valid UTF-8 wherever a text lies.
        starts, ends: int64[m]: text s is ``data[starts[s]:ends[s]]``.
        groups: int64[n + 1]: set i is of the texts ``groups[i]`` to ``groups[i + 1]``.
        rule: which terms count.

    Returns:
        n term sets, and bool[m]: whether the text has any term at all.
    """
    folded, terms = _fold_complex(data, starts, ends, rule)
    stops = sorted(word for word in rule.stop_words if re.fullmatch(r"\w+", word))
    extra = [word.encode() for word in stops] + terms
    sizes = np.array([len(each) for each in extra], np.int64)
    last = np.cumsum(sizes)
    if terms:
        starts, ends = starts.copy(), ends.copy()
        starts[folded], ends[folded] = (last - sizes)[len(stops) :], last[len(stops) :]
    if stops:
        starts, ends = (
            np.concatenate([(last - sizes)[: len(stops)], starts]),
            np.concatenate([last[: len(stops)], ends]),
        )
        folded = np.concatenate([np.ones(len(stops), np.bool_), folded])
        groups = np.concatenate([np.arange(len(stops)), groups + len(stops)])
    room = int((ends - starts).sum())
    most = (room + len(starts)) // 2 + 1
    offsets, codes = np.zeros(len(groups), np.int32), np.empty(most, np.int32)
    found = np.zeros(len(starts), np.bool_)
    bounds, letters = np.empty(most + 1, np.int32), np.empty(room + 8, np.uint8)
    written, count = _tokenise(
        data,
        np.frombuffer(bytearray(b"".join(extra)), np.uint8),
        starts,
        ends,
        groups,
        folded,
        len(stops),
        rule.minimum_length,
        _ASCII_FOLD,
        character_table(),
        offsets,
        codes,
        found,
        bounds,
        letters,
    )
    vocabulary = pa.StringArray.from_buffers(
        count, pa.py_buffer(bounds[: count + 1].copy()), pa.py_buffer(letters[: bounds[count]].copy())
    )
    return TermLists(offsets[len(stops) :], codes[:written].copy(), vocabulary), found[len(stops) :]


def tokenise(texts: pa.StringArray, rule: TermRule = DEFAULT_RULE) -> TermLists:
    """The terms of each text of an Arrow utf8 column without nulls; equals ``extract_terms`` of each."""
    offsets, data = string_view(texts)
    bounds = offsets.astype(np.int64)
    return tokenise_slices(data, bounds[:-1].copy(), bounds[1:].copy(), np.arange(len(bounds)), rule)[0]


def prepare() -> None:
    """Compile every kernel of this module and make the character table."""
    character_table()
    tokenise(
        pa.array(["Café e\u0301 extraordinary", *map(str, range(_FIRST_CAPACITY))]), TermRule(frozenset({"the"}), 2)
    )

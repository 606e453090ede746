"""Term extraction in bulk: turns slices of UTF-8 text into sets of coded terms, as :func:`~.terms.extract_terms` does.

The kernel looks up each character in a table, which has its folded form (:mod:`~spatialstream.model.words`) and says
whether it begins a word, continues one, or ends it. Folding character by character equals folding the whole text as
long as no character changes its neighbours or is changed by them. Texts with characters that could be are handed to
``extract_terms``. The table marks such characters as *complex*:

- characters that composition may join to the one before, because their decomposition begins with the second half of a
  canonical composition (Unicode Standard Annex 15, section 9.1); most combining marks are of this kind;
- characters that fold to both letters and separators, or to more than six bytes or twice their own length: buffers have
  a bound.

Other combining marks keep their places if they are in canonical order, by combining class (Unicode Standard, 3.11). So
a text is complex, too, if a mark follows a character that ends in a mark of a higher class; ignored characters between
them do not matter. Folding itself depends on no context.

A hash table with open addressing and linear probing codes the terms. A term of up to seven bytes is its own key; the
key of a longer one is a hash, and then its bytes are compared. The hash and the place in the table depend on the seed
of the process (:mod:`.hashing`), so nobody can write texts whose terms collide. Cost: O(bytes), eight ASCII bytes at a
time, and one cache line for each term that occurs; if occurrences are counted, two more for one that occurs again.
"""

from __future__ import annotations

import functools
import os
import re
import unicodedata

import numpy as np
import pyarrow as pa

from spatialstream.model.arrays import Bytes, Codes, Flags, Ints, Words, string_view
from spatialstream.model.eight_bytes import TOPS, first_flag, folded, in_range, load, repeat, signed, store
from spatialstream.model.hashing import Seed, process_seed
from spatialstream.model.kernels import cache_folder, inlined_kernel, lean_kernel
from spatialstream.model.terms import DEFAULT_RULE, MOST_OCCURRENCES, TermLists, TermRule, extract_terms, term_sequence
from spatialstream.model.unicode_data import UNICODE
from spatialstream.model.words import MARK, UNASSIGNED, WORD, classes, fold, is_word

__all__ = ["character_table", "prepare", "tokenise", "tokenise_slices"]

_COVERED = 0x40000
"""Number of code points in the table: planes 0 to 3. All others (tags, private use) count as complex."""

_SEPARATOR, _WORD, _COMPLEX, _MARK = 0, 1, 2, 3
"""Classes of characters. A mark continues a word and begins none; a mark of no bytes is ignored."""

_MOST_BYTES, _GROWTH = 6, 2
"""Maximum bytes of a folded character in the table: absolute, and as a multiple of the bytes of the character."""

_PATTERNS = {_MARK: f"{MARK}*", _WORD: f"{WORD}[{WORD}{MARK}]*", _SEPARATOR: f"[^{WORD}{MARK}][^{WORD}]*"}
"""The class of a character by the classes of the characters that it folds to; other combinations are complex."""

_FIRST_CAPACITY = 1 << 12

_LONG = np.uint64(1 << 63)
"""Marks the key of a term of more than seven bytes; a shorter term's key is below 2^56."""
_CODE = np.uint64(0xFFFFFFFF)


# ------------------------------------------------------------------------------------------------------- characters


def _composing() -> frozenset[str]:
    """All characters that composition can join to the character before them."""
    seconds = {chr(point) for point in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}  # Hangul vowels and finals
    for point in range(0x110000):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            seconds.add(chr(int(parts[1], 16)))
    return frozenset(seconds)


def _character(point: int, composing: frozenset[str]) -> int:
    """One entry of the table, see :func:`character_table`."""
    character = chr(point)
    if 0xD800 <= point < 0xE000:
        return _COMPLEX
    if classes(character) == UNASSIGNED:
        return _SEPARATOR
    folded = fold(character)
    coded = folded.encode()
    before, after = unicodedata.normalize("NFD", character), unicodedata.normalize("NFD", folded)
    if before[0] in composing or after[:1] in composing:
        return _COMPLEX
    if unicodedata.combining(before[0]) and not before == character == folded:
        return _COMPLEX
    if len(coded) > min(_MOST_BYTES, _GROWTH * len(character.encode())):
        return _COMPLEX
    order = max(unicodedata.combining(each[-1]) for each in (before, after) if each) << 56
    for name, pattern in _PATTERNS.items():
        if re.fullmatch(pattern, classes(folded)):
            if name == _SEPARATOR:
                return name | order
            return name | len(coded) << 2 | len(folded) << 5 | int.from_bytes(coded, "little") << 8 | order
    return _COMPLEX


@functools.cache
def character_table() -> Words:
    """uint64[0x40000]: how each code point is folded.

    Bits 0-1 hold the class (0 separator, 1 word, 2 complex, 3 mark), 2-4 the number of bytes, 5-7 of characters, from 8
    on the UTF-8 bytes, first byte lowest, and from 56 on the canonical combining class of the mark that it ends in.
    Made once (about a second) and kept beside the compiled kernels.
    """
    path = cache_folder() / f"characters-{UNICODE}.npy"
    try:
        known: Words = np.load(path)
        return known
    except (OSError, ValueError, EOFError):
        composing = _composing()
        table = np.array([_character(point, composing) for point in range(_COVERED)], np.uint64)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{os.getpid()}-{path.name}")
        np.save(aside, table)
        aside.replace(path)
        return table


@lean_kernel
def _entry(data: Bytes, i: int, table: Words) -> tuple[int, np.uint64]:
    """(number of bytes, table entry) of the non-ASCII character at ``i`` of valid UTF-8."""
    c = signed(data[i])
    if c < 0xE0:
        return 2, table[(c & 0x1F) << 6 | signed(data[i + 1]) & 0x3F]
    if c < 0xF0:
        return 3, table[(c & 0x0F) << 12 | (signed(data[i + 1]) & 0x3F) << 6 | signed(data[i + 2]) & 0x3F]
    point = (
        (c & 0x07) << 18
        | (signed(data[i + 1]) & 0x3F) << 12
        | (signed(data[i + 2]) & 0x3F) << 6
        | signed(data[i + 3]) & 0x3F
    )
    if point >= _COVERED:
        return 4, np.uint64(_COMPLEX)
    return 4, table[point]


@lean_kernel
def _mark_complex(data: Bytes, starts: Ints, ends: Ints, table: Words, marked: Flags) -> None:
    for s in range(len(starts)):
        i = starts[s]
        end = ends[s]
        order = np.uint64(0)
        while i < end:
            if data[i] < 0x80:
                order = np.uint64(0)
                i += 1
                continue
            size, entry = _entry(data, i, table)
            i += size
            name = signed(entry) & 3
            mark_order = entry >> np.uint64(56)
            if name == _MARK:
                if entry & np.uint64(0x1C) == np.uint64(0):
                    continue
                if mark_order != np.uint64(0) and mark_order < order:
                    name = _COMPLEX
            if name == _COMPLEX:
                marked[s] = True
                break
            order = mark_order


# ------------------------------------------------------------------------------------------------------- hash table


@lean_kernel
def _home(key: np.uint64, seed: Seed) -> int:
    """The preferred place of a key in a table, before reduction to the table's size."""
    return signed(folded(key ^ seed[0], seed[1]))


@lean_kernel
def _rehash(slots: Words, seed: Seed, bigger: Words) -> None:
    """Move a table's terms into one with more room."""
    mask = signed((len(bigger) >> 1) - 1)
    for at in range(0, len(slots), 2):
        key = slots[at]
        if key == np.uint64(0):
            continue
        slot = _home(key, seed) & mask
        while bigger[2 * slot] != np.uint64(0):
            slot = (slot + 1) & mask
        bigger[2 * slot] = key
        bigger[2 * slot + 1] = slots[at + 1]


@inlined_kernel
def _place(slots: Words, seed: Seed, bounds: Codes, letters: Bytes, count: int, key: np.uint64, size: int) -> int:
    """The place in ``slots``, used or free, of a term whose ``size`` bytes are in ``letters`` after all known terms."""
    mask = signed((len(slots) >> 1) - 1)
    slot = _home(key, seed) & mask
    while True:
        found = slots[2 * slot]
        if found == np.uint64(0):
            return 2 * slot
        if found == key:
            if key < _LONG:
                return 2 * slot
            code = signed(slots[2 * slot + 1] & _CODE)
            old = signed(bounds[code])
            if signed(bounds[code + 1]) - old == size:
                new = signed(bounds[count])
                same = 0
                while same < size and letters[old + same] == letters[new + same]:
                    same += 1
                if same == size:
                    return 2 * slot
        slot = (slot + 1) & mask


@lean_kernel
def _mix(mixed: np.uint64, word: np.uint64, seed: Seed) -> np.uint64:
    """Extend the hash of a term by its next eight bytes; the hash of no bytes is ``seed[0]``."""
    return folded(mixed ^ word, seed[1])


@lean_kernel
def _key(mixed: np.uint64, pending: np.uint64, size: int, seed: Seed) -> np.uint64:
    """The key of a term: its bytes, if they are at most seven, else their hash."""
    if size <= 7:
        return pending
    return folded(mixed ^ pending ^ np.uint64(size), seed[1]) | _LONG


@lean_kernel
def _ascii_letters(word: np.uint64) -> tuple[int, np.uint64]:
    """(number of ASCII word characters before the first other byte of these eight, the bytes in lower case)."""
    letters = in_range(word | repeat(0x20), 0x61, 0x7A)
    others = in_range(word, 0x30, 0x39) | in_range(word, 0x5F, 0x5F)
    return first_flag(~((letters | others) & ~word) & TOPS), word | letters >> np.uint64(2)


@inlined_kernel
def _swift_term(text: Bytes, i: int, end: int, seed: Seed, letters: Bytes, top: int) -> tuple[int, int, np.uint64]:
    """Read a term of ASCII characters at ``i``: (its end, number of bytes, key).

    The end is -1 if a character is not ASCII, or if fewer than eight bytes of memory follow.
    """
    begin = i
    mixed = seed[0]
    while i + 8 <= len(text):
        step, word = _ascii_letters(load(text, i))
        step = min(step, end - i)
        store(letters, top + i - begin, word)
        i += step
        if step < 8:
            if i < end and text[i] >= 0x80:
                break
            pending = word & ((np.uint64(1) << np.uint64(8 * step)) - np.uint64(1))
            return i, i - begin, _key(mixed, pending, i - begin, seed)
        mixed = _mix(mixed, word, seed)
    return -1, 0, mixed


@inlined_kernel
def _any_term(
    text: Bytes, i: int, end: int, plain: bool, ascii_fold: Bytes, table: Words, seed: Seed, letters: Bytes, top: int
) -> tuple[int, int, np.uint64, int]:
    """Read a term at ``i``, after marks that begin no term: (position, number of bytes, key, number of characters).

    The position is that after the separator which ends the term.
    """
    size = 0
    characters = 0
    pending = np.uint64(0)
    mixed = seed[0]
    while i < end:
        c = text[i]
        step, entry, width = 1, np.uint64(c), 1
        if plain and c >= 0x80:
            step, entry = _entry(text, i, table)
            name = entry & np.uint64(3)
            width = signed(entry >> np.uint64(2)) & 7
            if name == np.uint64(_MARK) and (size == 0 or width == 0):
                i += step
                continue
            characters += signed(entry >> np.uint64(5)) & 7
            entry >>= np.uint64(8)
        else:
            if plain:
                entry = np.uint64(ascii_fold[c])
            width = 1 if entry != np.uint64(0) else 0
            characters += width
        i += step
        if width == 0:
            break
        for b in range(width):
            letter = (entry >> np.uint64(8 * b)) & np.uint64(0xFF)
            letters[top + size] = letter
            pending |= letter << np.uint64(8 * (size & 7))
            size += 1
            if size & 7 == 0:
                mixed = _mix(mixed, pending, seed)
                pending = np.uint64(0)
    return i, size, _key(mixed, pending, size, seed), characters


@lean_kernel
def _tokenise(
    data: Bytes,
    extra: Bytes,
    starts: Ints,
    ends: Ints,
    groups: Ints,
    folded: Flags,
    stops: int,
    minimum: int,
    ascii_fold: Bytes,
    table: Words,
    seed: Seed,
    slots: Words,
    progress: Ints,
    offsets: Codes,
    codes: Codes,
    found: Flags,
    bounds: Codes,
    letters: Bytes,
    written_at: Codes,
    counts: Bytes,
) -> bool:
    """Code the terms of every group of slices; False if the table is half full and has to grow before it goes on.

    ``folded`` slices are of ``extra`` and hold terms already, a NUL between them; the others are text in ``data``. The
    first ``stops`` groups are the stop words, a term each, whose codes are therefore 0 to stops - 1. ``progress`` is
    (group, slice, position in it or -1, codes written, terms of the vocabulary); begin with (0, 0, -1, 0, 0).

    If occurrences are counted, ``counts`` are those of the codes that are written, and ``written_at`` has for each code
    where it was written last; otherwise ``counts`` is empty.
    """
    counted = len(counts) > 0
    written = progress[3]
    count = progress[4]
    for g in range(progress[0], len(groups) - 1):
        stamp = np.uint64(g + 1) << np.uint64(32)
        for s in range(max(groups[g], progress[1]), groups[g + 1]):
            plain = not folded[s]
            text = data if plain else extra
            end = ends[s]
            i = starts[s]
            if progress[2] >= 0:
                i = progress[2]
                progress[2] = -1
            while i < end:
                if 4 * count >= len(slots):
                    progress[0], progress[1], progress[2], progress[3], progress[4] = g, s, i, written, count
                    return False
                top = signed(bounds[count])
                after, size, key = _swift_term(text, i, end, seed, letters, top) if plain else (-1, 0, np.uint64(0))
                characters = size
                if after < 0:
                    after, size, key, characters = _any_term(text, i, end, plain, ascii_fold, table, seed, letters, top)
                elif after < end:
                    after += 1
                i = after
                if size == 0 or (plain and characters < minimum):
                    continue
                place = _place(slots, seed, bounds, letters, count, key, size)
                value = slots[place + 1]
                if slots[place] == np.uint64(0):
                    slots[place] = key
                    value = np.uint64(count)
                    count += 1
                    bounds[count] = top + size
                slots[place + 1] = stamp | (value & _CODE)
                code = signed(value & _CODE)
                if code >= stops:
                    found[s] = True
                    if value & ~_CODE != stamp:
                        codes[written] = code
                        if counted:
                            written_at[code] = written
                            counts[written] = 1
                        written += 1
                    elif counted and counts[written_at[code]] < MOST_OCCURRENCES:
                        counts[written_at[code]] += 1
        offsets[g + 1] = written
    progress[3], progress[4] = written, count
    return True


# --------------------------------------------------------------------------------------------------------------- use

_ASCII_FOLD = np.array([ord(fold(chr(c))) if c < 128 and is_word(chr(c)) else 0 for c in range(256)], np.uint8)


def _fold_complex(data: Bytes, starts: Ints, ends: Ints, rule: TermRule, counted: bool) -> tuple[Flags, list[bytes]]:
    """Which slices hold complex characters, and the terms of each of those, joined by NUL; ``counted``: all of them."""
    terms_of = term_sequence if counted else extract_terms
    marked = np.zeros(len(starts), np.bool_)
    if len(data) and data.max() >= 0x80:
        _mark_complex(data, starts, ends, character_table(), marked)
    texts = (data[starts[s] : ends[s]].tobytes().decode() for s in np.flatnonzero(marked))
    return marked, ["\0".join(terms_of(text, rule)).encode() for text in texts]


def tokenise_slices(
    data: Bytes, starts: Ints, ends: Ints, groups: Ints, rule: TermRule = DEFAULT_RULE, *, counted: bool = False
) -> tuple[TermLists, Flags]:
    """The distinct terms of each group of texts, in order of first appearance.

    Args:
        data: uint8, writable and contiguous: valid UTF-8 wherever a text lies.
        starts: int64[m]; text s is ``data[starts[s]:ends[s]]``.
        ends: int64[m].
        groups: int64[n + 1]: set i is of the texts ``groups[i]`` to ``groups[i + 1]``.
        rule: which terms count.
        counted: whether it is counted how often a group has each term.

    Returns:
        n term sets, and bool[m]: whether the text has any term at all.
    """
    folded, terms = _fold_complex(data, starts, ends, rule, counted)
    stops = sorted(word for word in rule.stop_words if is_word(word))
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
    bounds, letters = np.empty(most + 1, np.int32), np.empty(_GROWTH * room + 8, np.uint8)
    bounds[0] = 0
    written_at, counts = np.empty(most if counted else 0, np.int32), np.empty(most if counted else 0, np.uint8)
    slots, progress = np.zeros(2 * _FIRST_CAPACITY, np.uint64), np.array([0, 0, -1, 0, 0])
    seed = process_seed()
    while not _tokenise(
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
        seed,
        slots,
        progress,
        offsets,
        codes,
        found,
        bounds,
        letters,
        written_at,
        counts,
    ):
        bigger = np.zeros(4 * len(slots), np.uint64)
        _rehash(slots, seed, bigger)
        slots = bigger
    written, count = progress[3:].tolist()
    vocabulary = pa.StringArray.from_buffers(
        count, pa.py_buffer(bounds[: count + 1].copy()), pa.py_buffer(letters[: bounds[count]].copy())
    )
    said = counts[:written].copy() if counted else None
    return TermLists(offsets[len(stops) :], codes[:written].copy(), vocabulary, said), found[len(stops) :]


def tokenise(texts: pa.StringArray, rule: TermRule = DEFAULT_RULE) -> TermLists:
    """The terms of each text of an Arrow utf8 column without nulls; equals ``extract_terms`` of each."""
    offsets, data = string_view(texts)
    bounds = offsets.astype(np.int64)
    groups = np.arange(len(bounds))
    return tokenise_slices(data, bounds[:-1].copy(), bounds[1:].copy(), groups, rule, counted=rule.counts)[0]


def prepare() -> None:
    """Compile every kernel of this module and make the character table."""
    character_table()
    tokenise(
        pa.array(["Café e\u0301 extraordinary", *map(str, range(_FIRST_CAPACITY))]), TermRule(frozenset({"the"}), 2)
    )

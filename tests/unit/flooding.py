"""Words and numbers made to collide in tables with a fixed hash, and how to see that they do not.

A table with open addressing and linear probing is as fast as its runs of used places are short, whatever its hash: no
search takes more steps than the longest run has places. So tests count, and measure no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", np.uint8)

Letters = npt.NDArray[np.uint8]
Hash = Callable[[Letters], npt.NDArray[np.uint64]]


def longest_run(used: npt.NDArray[np.bool_]) -> int:
    """The most used places one after the other, in a table that goes round."""
    free = np.flatnonzero(~used)
    return len(used) if not len(free) else int(np.diff(np.append(free, free[0] + len(used))).max()) - 1


def colliding_words(n: int, size: int, place: Hash) -> list[str]:
    """n distinct words of ``size`` letters which ``place`` sends to a 512th part of a table.

    Args:
        n: how many.
        size: letters of each.
        place: from letters uint8[m, size] to m hashes, of which those with nine zeros at the top are taken.
    """
    rng, found = np.random.default_rng(1), dict[str, None]()
    while len(found) < n:
        letters = _LETTERS[rng.integers(0, len(_LETTERS), (1 << 19, size))]
        taken = letters[place(letters) >> np.uint64(55) == 0]
        found.update(dict.fromkeys(bytes(each).decode() for each in taken))
    return list(found)[:n]


def packed(letters: Letters, order: str) -> npt.NDArray[np.uint64]:
    """Each word as a number, its letters in ``order`` ("little" or "big")."""
    result = np.zeros(len(letters), np.uint64)
    for column in letters.T if order == "big" else letters.T[::-1]:
        result = result << np.uint64(8) | column.astype(np.uint64)
    return result


def fnv(letters: Letters) -> npt.NDArray[np.uint64]:
    """FNV-1a of each word, 64 bits."""
    state = np.full(len(letters), 0xCBF29CE484222325, np.uint64)
    for column in letters.T:
        state = (state ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
    return state


def low_bits(values: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint64]:
    """The ``bits`` lowest bits at the top, which a table of that many bits looks at first."""
    return np.asarray(values, np.uint64) << np.uint64(64 - bits)

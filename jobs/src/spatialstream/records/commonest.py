"""Bounded counts over an unbounded set of names: the most frequent names, and the rest as one.

So they stay small in records of the driver, however many names the input has. Counts that have been dropped belong to
the rest forever: a name's count may be too small, but never too large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

__all__ = ["MOST", "commonest"]

MOST = 32
"""Names that are kept, besides ``""`` for the rest."""

_LONGEST = 200
"""Characters of a name that are kept."""


def commonest(
    counts: Iterable[Mapping[str, int]], alike: Callable[[str], str] = lambda name: name, most: int = MOST
) -> dict[str, int]:
    """Several counts as one, the commonest names first, and under ``""`` all for which there is no room.

    Args:
        counts: how often, by name.
        alike: names of which it gives the same count together, under the first of them.
        most: names to keep.
    """
    total, firsts = Counter[str](), dict[str, str]()
    for each in counts:
        for name, count in each.items():
            total[firsts.setdefault(alike(name), name[:_LONGEST])] += count
    rest = total.pop("", 0)
    kept = total.most_common(most)
    rest += total.total() - sum(count for _, count in kept)
    return dict(kept) | ({"": rest} if rest else {})

"""What happens in a social stream: a flood that spreads along a coast, a festival, a blackout, again and again.

An event takes the place of a share of the posts, which grows to its height and falls off again: so the number of posts
and their times stay what they were. Where and what events are is fixed, so that there are questions to which they are
the answer. Cost: O(1) an object.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Floats, Ints

__all__ = ["EVENTS", "Event", "Happening", "happening", "said_words"]

SAID = 3
"""Words of its event that a post has, besides the event's own."""
_NONE = -1


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens once in a cycle.

    Attributes:
        words: what is said of it; every post has the first, and some of the others.
        path: longitudes and latitudes that it comes to one after the other; it is still where it has been.
        sigma: how far posts spread around, in degrees of latitude.
        begins, ends: in shares of the cycle.
        rises: share of that time in which it grows to its height.
        share: of the posts, at its height.
    """

    words: tuple[str, ...]
    path: tuple[tuple[float, float], ...]
    sigma: float
    begins: float
    ends: float
    rises: float
    share: float


EVENTS = (
    Event(
        ("flood", "water", "dike", "rising", "storm", "evacuated", "coast", "road", "help"),
        # along the North Sea, from Calais to Husum
        ((1.9, 51.0), (3.7, 51.5), (4.2, 52.0), (4.7, 52.9), (6.0, 53.4), (7.2, 53.6), (8.6, 53.9), (8.9, 54.5)),
        0.12,
        begins=0.02,
        ends=0.6,
        rises=0.5,
        share=0.25,
    ),
    Event(
        ("festival", "music", "stage", "crowd", "dancing", "drums", "night", "band", "love"),
        ((-43.2, -22.93),),
        0.06,
        begins=0.3,
        ends=0.8,
        rises=0.6,
        share=0.2,
    ),
    Event(
        ("blackout", "power", "dark", "outage", "candles", "elevator", "trains", "grid", "battery"),
        ((139.7, 35.7),),
        0.25,
        begins=0.65,
        ends=0.98,
        rises=0.02,
        share=0.4,
    ),
)


@dataclass(frozen=True, slots=True)
class Happening:
    """Which posts of a chunk are about events.

    Attributes:
        event: int64[n], the number of the event; -1: none.
        x, y: float64[n], where; of no meaning without an event.
        words: int64[1 + SAID, n], numbers of words in :func:`said_words`; -1 without an event.
    """

    event: Ints
    x: Floats
    y: Floats
    words: Ints


def said_words() -> tuple[str, ...]:
    """The words of all events, one after the other."""
    return tuple(word for event in EVENTS for word in event.words)


def happening(settings: GenerateSettings, chunk: int, t: Ints) -> Happening:
    """What the objects of a chunk, at the times ``t``, are about."""
    random, n = settings.random("events", chunk), len(t)
    cycle = settings.objects * 1_000.0 / settings.rate / settings.events
    phase = (t - settings.start) / cycle % 1.0
    chance, shift = random.random(n), random.standard_normal((2, n))
    along, order = np.sqrt(random.random(n)), random.random((max(len(each.words) for each in EVENTS) - 1, n))
    event = np.full(n, _NONE, np.int64)
    x, y, words = np.zeros(n), np.zeros(n), np.full((1 + SAID, n), _NONE, np.int64)
    below, first = np.zeros(n), 0
    for number, each in enumerate(EVENTS):
        gone = (phase - each.begins) / (each.ends - each.begins)
        share = each.share * np.clip(np.minimum(gone / each.rises, (1 - gone) / (1 - each.rises)), 0.0, 1.0)
        about = np.flatnonzero((chance >= below) & (chance < below + share))
        below += share
        # most is said where it has come to, something where it has been
        at = np.minimum(gone / each.rises, 1.0)[about] * along[about] * (len(each.path) - 1)
        xs, ys = (np.interp(at, np.arange(len(each.path)), axis) for axis in np.array(each.path).T)
        event[about] = number
        y[about] = ys + each.sigma * shift[1, about]
        x[about] = xs + each.sigma / np.cos(np.radians(ys)) * shift[0, about]
        others = np.argsort(order[: len(each.words) - 1, about], axis=0)[:SAID]
        words[:, about] = first + np.vstack([np.zeros((1, len(about)), np.int64), 1 + others])
        first += len(each.words)
    return Happening(event, x, y, words)

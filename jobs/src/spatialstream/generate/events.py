"""The repeated events of a social stream: a flood that spreads along a coast, a festival, a blackout.

An event takes the place of a share of the posts, which grows to its height and falls off again: so the number of posts
and their times stay what they were. Where and what events are is fixed, so that there are queries to which they are
the answer. Cost: O(1) an object.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spatialstream.generate.settings import GenerateSettings
from spatialstream.model.arrays import Floats, Ints

__all__ = ["EVENTS", "Event", "Happening", "happening"]

_NONE = -1


@dataclass(frozen=True, slots=True)
class Event:
    """An event that happens once in each cycle.

    Attributes:
        word: what it is; every post about it has this word, and no other post.
        says: sentences about it, as in :mod:`~spatialstream.generate.phrases`.
        path: longitudes and latitudes that it comes to one after the other; it is still where it has been.
        sigma: how far posts spread around, in degrees of latitude.
        begins, ends: in shares of the cycle.
        rises: share of that time in which it grows to its height.
        share: of the posts, at its height.
    """

    word: str
    says: tuple[str, ...]
    path: tuple[tuple[float, float], ...]
    sigma: float
    begins: float
    ends: float
    rises: float
    share: float


EVENTS = (
    Event(
        "flood",
        (
            "flood warning for {name} stay away from the dike",
            "flood water is rising near {name} {venue}",
            "the flood has reached {name} street and our cellar",
            "flood at {name} they closed the road along our coast",
            "storm and flood here they are evacuating {name}",
            "we need help flood water stands in the kitchen",
            "sandbags at {name} {venue} help us against the flood",
            "dike at {name} holds but the flood keeps rising",
            "flood took our {thing} but {person} is safe",
            "evacuated because of the flood and sleeping at {name} school",
            "never saw a flood like this on our coast",
            "boats on {name} road flood everywhere please send help",
            "{person} drove into flood water near {name} do not try",
            "power is off since a flood came over the dike",
        ),
        # along the North Sea, from Calais to Husum
        ((1.9, 51.0), (3.7, 51.5), (4.2, 52.0), (4.7, 52.9), (6.0, 53.4), (7.2, 53.6), (8.6, 53.9), (8.9, 54.5)),
        0.12,
        begins=0.02,
        ends=0.6,
        rises=0.5,
        share=0.25,
    ),
    Event(
        "festival",
        (
            "festival night with {person} dancing to the drums",
            "music from every stage at the festival",
            "the band on {name} stage makes this festival",
            "festival crowd sings along what a night",
            "love this festival and the dancing never stops",
            "lost {person} in the crowd meet me at {name} stage festival people",
            "drums and {food} that is all a festival needs",
            "best festival band so far was from {name}",
            "sunrise after a festival night of music",
            "walking home from the festival with music in my ears",
            "first festival for my {relative} who is dancing by the stage",
            "queue for {food} at the festival is worth it great music",
        ),
        ((-43.2, -22.93),),
        0.06,
        begins=0.3,
        ends=0.8,
        rises=0.6,
        share=0.2,
    ),
    Event(
        "blackout",
        (
            "blackout in the whole street no power since noon",
            "power outage at {name} station all trains stand blackout",
            "stuck in an elevator blackout please call somebody",
            "dinner by candles with {person} blackout romance",
            "blackout and my phone battery is at four percent",
            "the grid is down they say this blackout may last all night",
            "dark windows everywhere around {name} blackout",
            "blackout at {name} hospital runs on its own power",
            "anyone in {name} with light or is the outage a blackout everywhere",
            "walking home because no trains run in this blackout",
            "blackout so dark that one sees the stars over {name}",
            "lend your neighbours candles and a battery blackout goes on",
        ),
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
    """The posts of a chunk that are about events.

    Attributes:
        event: int64[n], the number of the event; -1: none.
        x, y: float64[n], where; of no meaning without an event.
    """

    event: Ints
    x: Floats
    y: Floats


def happening(settings: GenerateSettings, chunk: int, t: Ints) -> Happening:
    """Choose the events that the objects of a chunk, at times ``t``, are about."""
    random, n = settings.random("events", chunk), len(t)
    cycle = settings.objects * 1_000.0 / settings.rate / settings.events
    phase = (t - settings.start) / cycle % 1.0
    chance, shift = random.random(n), random.standard_normal((2, n))
    along = np.sqrt(random.random(n))
    event = np.full(n, _NONE, np.int64)
    x, y, below = np.zeros(n), np.zeros(n), np.zeros(n)
    for number, each in enumerate(EVENTS):
        progress = (phase - each.begins) / (each.ends - each.begins)
        share = each.share * np.clip(np.minimum(progress / each.rises, (1 - progress) / (1 - each.rises)), 0.0, 1.0)
        about = np.flatnonzero((chance >= below) & (chance < below + share))
        below += share
        # most posts are at its front, some where it has passed
        at = np.minimum(progress / each.rises, 1.0)[about] * along[about] * (len(each.path) - 1)
        xs, ys = (np.interp(at, np.arange(len(each.path)), axis) for axis in np.array(each.path).T)
        event[about] = number
        y[about] = ys + each.sigma * shift[1, about]
        x[about] = xs + each.sigma / np.cos(np.radians(ys)) * shift[0, about]
    return Happening(event, x, y)

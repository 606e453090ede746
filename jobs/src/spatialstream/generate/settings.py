"""The settings of a synthetic stream, and its random generators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spatialstream.model.errors import SettingError
from spatialstream.model.lifetimes import MOST_STEPS
from spatialstream.model.properties.declared import NO_PROPERTIES, Properties
from spatialstream.model.schema import LARGEST_K
from spatialstream.model.space import WGS84, Space
from spatialstream.model.stored_fields import parse_fields

__all__ = ["KINDS", "GenerateSettings"]

KINDS = ("social", "uniform", "gaussian", "clusters")
"""How objects are spread, see :attr:`GenerateSettings.kind`."""

_SOCIAL_WORDS = 1_000
_PURPOSES = ("places", "words", "queries", "centres", "events", "properties", "conditions")


@dataclass(frozen=True, slots=True)
class GenerateSettings:
    """A synthetic stream.

    Attributes:
        kind: how objects are spread. ``social``: around real cities by population (WGS84 only), English sentences,
            which sometimes name the city. ``uniform`` and ``gaussian``: the Uni and Gau sets of the paper (SSTD,
            section 7.2).
            ``clusters``: 70 % in 40 Gaussian clusters with a sigma of 0.02 of the side, 30 % uniform.
        objects: number of objects.
        space: space of the objects.
        seed: seed of all random numbers.
        start: time of the first object, ms since 1970-01-01 UTC.
        rate: objects a second.
        diurnal: ``social`` only: people post by day, by the sun of their longitude; the rate stays the same.
        events: ``social`` only: number of times that a flood, a festival and a blackout happen, see
            :mod:`~spatialstream.generate.events`.
        sigma: ``gaussian`` only: standard deviation along both axes, in coordinates, around the middle of the space.
        terms: distinct terms an object; in ``social`` from half to one and a half times as many words.
        vocabulary: number of words ``w0``, ``w1``, ...; the frequency of the word of rank r is proportional to
            ``1 / r ** zipf``. In ``social`` these are the words of sentences and of their gaps, by the same law for
            each gap; all words beyond some 600 are names of places.
        zipf: exponent of Zipf's law.
        properties: those that the objects have, see :mod:`~spatialstream.generate.properties`.
        queries: number of queries of each type.
        region: size of regions, in percent of the space's area: (smallest, largest), spread evenly over its logarithm.
            In WGS84 that is a share of 360 by 180 degrees for boxes, and of the Earth's surface for circles.
        circles: share of regions that are circles; the others are boxes, as wide to high as the space.
        polygons: share of regions that are polygons in such boxes.
        margins: share of polygons that have a margin, of up to their size; every other one of them is a line.
        keywords: (fewest, most) keywords of the types SRQ, SKQ, CRQ and CKQ; the others have none.
        alternatives: keywords are groups of one each, of which an object needs one; otherwise it needs all.
        where: share of queries that have a condition on properties, of the types that take one.
        fields: those that the stream keeps: text and properties. Queries ask for some of them, each for half.
        frequent: keywords are the most frequent terms of the object; otherwise any of them.
        k: k.
        duration: τ of every query, ms.
        endless: whether continuous queries have no τ, and run until they are cancelled.
        window: T of every CTQ and of every second CKQ and CBQ, ms.
        step: δ of every CTQ, ms.
        asked: when snapshot queries are issued: between these two shares of the stream's time.
        registered: when continuous queries are, likewise.

    Raises:
        SettingError: a value makes no sense; names it.
    """

    kind: str = "social"
    objects: int = 100_000
    space: Space = WGS84
    seed: int = 0
    start: int = 1_735_689_600_000
    rate: float = 1_000.0
    diurnal: bool = False
    events: int = 0
    sigma: float = 1.0
    terms: int = 8
    vocabulary: int = 100_000
    zipf: float = 1.0
    properties: Properties = NO_PROPERTIES
    queries: Mapping[str, int] = field(default_factory=dict)
    region: tuple[float, float] = (0.01, 0.01)
    circles: float = 0.0
    polygons: float = 0.0
    margins: float = 0.0
    keywords: tuple[int, int] = (1, 3)
    where: float = 0.0
    fields: tuple[str, ...] = ()
    frequent: bool = False
    alternatives: bool = False
    k: int = 10
    duration: int = 600_000
    endless: bool = False
    window: int = 60_000
    step: int = 10_000
    asked: tuple[float, float] = (0.5, 1.0)
    registered: tuple[float, float] = (0.0, 0.5)

    def __post_init__(self) -> None:
        """Check the settings."""
        for setting, problem in self._problems():
            raise SettingError(setting, problem)
        parse_fields(self.fields, self.properties)

    def _problems(self) -> list[tuple[str, str]]:
        low, high = self.region
        fewest, most = self.keywords
        wrong = {
            ("kind", f"{self.kind!r} is not one of {', '.join(KINDS)}"): self.kind not in KINDS,
            ("space", "a social stream lives in wgs84"): self.kind == "social" and not self.space.geographic,
            ("objects", "give at least 0"): self.objects < 0,
            ("seed", "give at least 0"): self.seed < 0,
            ("rate", "give more than 0 objects a second"): not (self.rate > 0 and math.isfinite(self.rate)),
            ("events", "give at least 0"): self.events < 0,
            ("events", "happen in a social stream alone"): self.events > 0 and self.kind != "social",
            ("sigma", "give more than 0"): not self.sigma > 0,
            ("terms", "give 1 to 100"): not 1 <= self.terms <= 100,
            ("vocabulary", "give at least twice as many words as terms"): self.vocabulary < 2 * self.terms,
            ("vocabulary", f"a social stream has at least {_SOCIAL_WORDS:,} words"): (
                self.kind == "social" and self.vocabulary < _SOCIAL_WORDS
            ),
            ("zipf", "give an exponent from 0 to 2"): not 0 <= self.zipf <= 2,
            ("queries", "give at least 0"): any(count < 0 for count in self.queries.values()),
            ("queries", "need objects to be centred on"): self.objects == 0 and any(self.queries.values()),
            ("region", "give percents of the space with 0 < smallest <= largest <= 100"): not 0 < low <= high <= 100,
            ("circles", "give a share from 0 to 1"): not 0 <= self.circles <= 1,
            ("polygons", "give a share from 0 to 1"): not 0 <= self.polygons <= 1,
            ("margins", "give a share from 0 to 1"): not 0 <= self.margins <= 1,
            ("keywords", "give 0 <= fewest <= most"): not 0 <= fewest <= most,
            ("where", "give a share from 0 to 1"): not 0 <= self.where <= 1,
            ("where", "is about properties; declare them"): self.where > 0 and not self.properties,
            ("k", f"give 1 to {LARGEST_K}"): not 1 <= self.k <= LARGEST_K,
            ("duration", "give at least 0 ms"): self.duration < 0,
            ("window", "give at least 0 ms"): self.window < 0,
            ("step", "give at least 1 ms"): self.step < 1,
            ("step", f"give so much that a CTQ has at most {MOST_STEPS} steps in its duration"): (
                not self.endless and self.duration // max(1, self.step) > MOST_STEPS
            ),
            ("asked", "give two shares from 0 to 1, in order"): not 0 <= self.asked[0] <= self.asked[1] <= 1,
            ("registered", "give two shares from 0 to 1, in order"): (
                not 0 <= self.registered[0] <= self.registered[1] <= 1
            ),
        }
        return [what for what, applies in wrong.items() if applies]

    @property
    def decimals(self) -> int:
        """Digits after the point that coordinates are written with: a tenth of a metre, or a 10^8th of the side."""
        if self.space.geographic:
            return 6
        side = max(self.space.east - self.space.west, self.space.north - self.space.south)
        return max(0, 8 - math.floor(math.log10(side)))

    def random(self, purpose: str, chunk: int = 0) -> np.random.Generator:
        """The random generator of one purpose and chunk, independent of all others."""
        return np.random.default_rng([self.seed, _PURPOSES.index(purpose), chunk])

"""The objects of a synthetic stream, as columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.generate.places import cities, spread, spread_by_city
from spatialstream.generate.settings import GenerateSettings
from spatialstream.generate.words import Words
from spatialstream.model.arrays import Ints
from spatialstream.model.objects import ObjectBatch

__all__ = ["CHUNK", "object_batches", "object_times"]

CHUNK = 65_536
"""Objects a chunk."""


def object_batches(settings: GenerateSettings) -> Iterator[ObjectBatch]:
    """The objects ``o0``, ``o1``, ... in order of time, in batches of :data:`CHUNK` over one vocabulary."""
    social = settings.kind == "social"
    words = Words.of(settings, cities().names if social else ())
    for chunk, first in enumerate(range(0, settings.objects, CHUNK)):
        numbers = np.arange(first, min(first + CHUNK, settings.objects))
        t = object_times(settings, numbers)
        if social:
            (x, y), where = spread_by_city(settings, chunk, t)
            terms = words.draw(chunk, len(numbers), where)
        else:
            x, y = spread(settings, chunk, len(numbers))
            terms = words.draw(chunk, len(numbers), None)
        ids = pc.binary_join_element_wise("o", pa.array(numbers).cast(pa.string()), "")
        yield ObjectBatch(ids, t, x, y, terms)


def object_times(settings: GenerateSettings, numbers: Ints) -> Ints:
    """Timestamps of the objects with these numbers, in ms: one every ``1 / rate`` seconds."""
    times: Ints = settings.start + np.floor(numbers * (1_000.0 / settings.rate)).astype(np.int64)
    return times

"""The objects of a synthetic stream, as columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spatialstream.generate.events import happening
from spatialstream.generate.places import rounded, spread, spread_by_city
from spatialstream.generate.properties import property_columns
from spatialstream.generate.settings import GenerateSettings
from spatialstream.generate.words import Sentences, plain_terms
from spatialstream.model.arrays import Ints
from spatialstream.model.objects import ObjectBatch

__all__ = ["CHUNK", "object_batches", "object_times"]

CHUNK = 65_536
"""Objects a chunk."""


def object_batches(settings: GenerateSettings) -> Iterator[ObjectBatch]:
    """The objects ``o0``, ``o1``, ... in order of time, in batches of :data:`CHUNK` over one vocabulary."""
    vocabulary = None
    if settings.kind == "social":
        vocabulary = Sentences.of(settings.terms, settings.vocabulary, settings.zipf)
    for chunk, first in enumerate(range(0, settings.objects, CHUNK)):
        numbers = np.arange(first, min(first + CHUNK, settings.objects))
        t, random = object_times(settings, numbers), settings.random("words", chunk)
        if vocabulary is not None:
            (x, y), where = spread_by_city(settings, chunk, t)
            about = happening(settings, chunk, t) if settings.events else None
            if about is not None:
                x, y = (np.where(about.event >= 0, *each) for each in ((about.x, x), (about.y, y)))
                x, y = (rounded(settings.space, each, settings.decimals, axis) for axis, each in enumerate((x, y)))
            terms = vocabulary.draw(random, where, None if about is None else about.event)
        else:
            x, y = spread(settings, chunk, len(numbers))
            terms = plain_terms(settings, random, len(numbers))
        ids = pc.binary_join_element_wise("o", pa.array(numbers).cast(pa.string()), "")
        yield ObjectBatch(ids, t, x, y, terms, property_columns(settings, chunk, t))


def object_times(settings: GenerateSettings, numbers: Ints) -> Ints:
    """Timestamps of the objects with these numbers, in ms: one every ``1 / rate`` seconds."""
    times: Ints = settings.start + np.floor(numbers * (1_000.0 / settings.rate)).astype(np.int64)
    return times

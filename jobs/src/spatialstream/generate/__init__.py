"""Synthetic streams: a social stream over real cities, the papers' data sets, and queries that find something in them.

Everything is a function of :class:`GenerateSettings` alone: the same settings give the same bytes, on every run,
without downloading anything. Objects are made in chunks of fixed size, each from a random generator of its own (seed,
purpose, number of the chunk), so memory does not grow with the stream.

- :mod:`~spatialstream.generate.settings`: what can be chosen;
- :mod:`~spatialstream.generate.places`: where objects are;
- :mod:`~spatialstream.generate.words`: what they say, in words by Zipf's law;
- :mod:`~spatialstream.generate.phrases`: the sentences of a social stream, and all its words;
- :mod:`~spatialstream.generate.events`: what happens in a social stream;
- :mod:`~spatialstream.generate.objects`: :func:`object_batches`;
- :mod:`~spatialstream.generate.queries`: :func:`query_batch`, centred on objects, with keywords of theirs;
- :mod:`~spatialstream.generate.files`: :func:`write_stream`, both as JSON Lines.
"""

from spatialstream.generate.files import write_stream
from spatialstream.generate.objects import object_batches
from spatialstream.generate.queries import query_batch
from spatialstream.generate.settings import GenerateSettings

__all__ = ["GenerateSettings", "object_batches", "query_batch", "write_stream"]

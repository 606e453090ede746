"""Synthetic streams: a social stream over real cities, the papers' data sets, and queries that match their objects.

The output depends only on :class:`GenerateSettings`: the same settings give the same bytes on every run, without any
download. Objects are generated in chunks of fixed size, each with a random generator of its own (seed, purpose, number
of the chunk), so memory does not grow with the stream.

- :mod:`~spatialstream.generate.settings`: the settings;
- :mod:`~spatialstream.generate.places`: positions of objects;
- :mod:`~spatialstream.generate.words`: their texts, with words by Zipf's law;
- :mod:`~spatialstream.generate.phrases`: the sentences of a social stream, and all its words;
- :mod:`~spatialstream.generate.events`: the events of a social stream;
- :mod:`~spatialstream.generate.properties`: their properties, and conditions on them;
- :mod:`~spatialstream.generate.objects`: :func:`object_batches`;
- :mod:`~spatialstream.generate.queries`: :func:`query_batch`, centred on objects, with some of their terms as keywords;
- :mod:`~spatialstream.generate.files`: :func:`write_stream`, both as JSON Lines.
"""

from spatialstream.generate.files import write_stream
from spatialstream.generate.objects import object_batches
from spatialstream.generate.queries import query_batch
from spatialstream.generate.settings import GenerateSettings

__all__ = ["GenerateSettings", "object_batches", "query_batch", "write_stream"]

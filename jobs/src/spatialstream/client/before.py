"""What a stream has had before something is sent to it: how far its time has come, and where its objects lie.

Both are read from the ends of its topics, so they cost a moment, whatever the stream holds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from confluent_kafka import Message

from spatialstream.connectors.announcements import read_announcement
from spatialstream.connectors.kafka import Connection
from spatialstream.connectors.kafka_clients import offsets, read
from spatialstream.model.arrays import Flags, Floats
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.space import Space
from spatialstream.model.times import TIME_LIMIT
from spatialstream.records.decode import decode_objects
from spatialstream.stages.ingest import CLOCK

__all__ = ["latest_objects", "look_exchanged", "reached"]

_ANNOUNCEMENTS = 500
"""Messages at the end of the announcements, of which one at least is of an epoch where any is."""
_MESSAGES = 20
"""Messages at the end of each partition of objects."""
_NEARLY_ALL = 0.95


def reached(connection: Connection, stream: str) -> int | None:
    """The time in ms up to which the stream has answered; None: it has had nothing yet.

    Raises:
        Unavailable: the broker cannot be reached, or does not let anybody read.
        StateError: what was there has just gone.
    """
    found = map(
        read_announcement,
        (each.value() for each in _ends(connection, connection.topics(stream).epochs, _ANNOUNCEMENTS)),
    )
    times = [each["watermark"] for each in found if each is not None and "watermark" in each]
    return times[-1] if times and times[-1] >= -TIME_LIMIT else None  # before the first record it is below


def latest_objects(connection: Connection, stream: str, space: Space) -> ObjectBatch:
    """Some of the objects that have come last; what is none is left out.

    Raises:
        Unavailable: the broker cannot be reached, or does not let anybody read.
        StateError: what was there has just gone.
    """
    messages = _ends(connection, connection.topics(stream).objects, _MESSAGES)
    lines = [each.value() or b"" for each in messages if each.key() != CLOCK]
    return decode_objects(b"\n".join(lines), 2, space).batch


def _ends(connection: Connection, topic: str, most: int) -> Iterator[Message]:
    """The last messages of each partition of a topic, so many at most, if there is the topic."""
    known = offsets(connection)
    partitions = known.partitions([topic]).get(topic, 0)
    if partitions:
        first, end = (each[topic] for each in known.bounds({topic: partitions}))
        for partition in range(partitions):
            start = max(first[partition], end[partition] - most)
            for messages in read(connection, topic, partition, start, end[partition]):
                yield from messages


def look_exchanged(objects: ObjectBatch, earlier: ObjectBatch) -> bool:
    """Whether longitudes and latitudes look exchanged: no object lies in the box of earlier ones, and nearly all would.

    It is a guess, for a warning: objects of another region may lie so too.
    """
    if not len(objects) or not len(earlier):
        return False

    def inside(x: Floats, y: Floats) -> Flags:
        within = (x >= earlier.x.min()) & (x <= earlier.x.max())
        return np.asarray(within & (y >= earlier.y.min()) & (y <= earlier.y.max()))

    return not inside(objects.x, objects.y).any() and bool(inside(objects.y, objects.x).mean() >= _NEARLY_ALL)

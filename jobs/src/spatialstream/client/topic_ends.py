"""State of a stream before records are sent to it: its clock, and where its latest objects lie.

Both are read from the ends of its topics, so they are fast however long the topics are.
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
"""Messages read from the end of the announcements: if an epoch was announced at all, one of them announces one."""
_MESSAGES = 20
"""Messages read from the end of each partition of objects."""
_NEARLY_ALL = 0.95


def reached(connection: Connection, stream: str) -> int | None:
    """Return the stream's watermark in ms; None if no records have arrived yet.

    Raises:
        Unavailable: the broker cannot be reached, or denies reading.
        StateError: the messages have been deleted meanwhile.
    """
    found = map(
        read_announcement,
        (each.value() for each in _ends(connection, connection.topics(stream).epochs, _ANNOUNCEMENTS)),
    )
    times = [each["watermark"] for each in found if each is not None and "watermark" in each]
    return times[-1] if times and times[-1] >= -TIME_LIMIT else None  # before the first record it is below the limit


def latest_objects(connection: Connection, stream: str, space: Space) -> ObjectBatch:
    """Read some of the stream's latest objects, without invalid ones.

    Raises:
        Unavailable: the broker cannot be reached, or denies reading.
        StateError: the messages have been deleted meanwhile.
    """
    messages = _ends(connection, connection.topics(stream).objects, _MESSAGES)
    lines = [each.value() or b"" for each in messages if each.key() != CLOCK]
    return decode_objects(b"\n".join(lines), 2, space).batch


def _ends(connection: Connection, topic: str, most: int) -> Iterator[Message]:
    """Read the last ``most`` messages of each partition of a topic; none if there is no such topic."""
    known = offsets(connection)
    partitions = known.partitions([topic]).get(topic, 0)
    if partitions:
        first, end = (each[topic] for each in known.bounds({topic: partitions}))
        for partition in range(partitions):
            start = max(first[partition], end[partition] - most)
            for messages in read(connection, topic, partition, start, end[partition]):
                yield from messages


def look_exchanged(objects: ObjectBatch, earlier: ObjectBatch) -> bool:
    """Whether longitudes and latitudes look exchanged.

    They do if no object lies in the bounding box of the earlier ones, and nearly all would after a swap. This is a
    guess, good for a warning: objects of another region may satisfy it too.
    """
    if not len(objects) or not len(earlier):
        return False

    def inside(x: Floats, y: Floats) -> Flags:
        within = (x >= earlier.x.min()) & (x <= earlier.x.max())
        return np.asarray(within & (y >= earlier.y.min()) & (y <= earlier.y.max()))

    return not inside(objects.x, objects.y).any() and bool(inside(objects.y, objects.x).mean() >= _NEARLY_ALL)

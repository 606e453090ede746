"""Which topics a stream has created itself, and from which it continues.

A topic that was created by others, or recreated under its name, may hold data that is not the stream's to delete. So
the router records the ids of topics as it creates them, in the checkpoint, beside the identity and the incarnation
of the stream. A removal deletes this file last, so that an interrupted removal can be continued from it.

The ids of the topics from which the stream continues are there too, even of topics that others created: offsets that it
has stored mean nothing in another topic of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.owned import CREATED_TOPICS
from spatialstream.model.errors import StateError
from spatialstream.stages.state import get_json, put_json
from spatialstream.stream.router import EPOCHS

__all__ = ["CreatedTopics", "TopicRecorder", "read_created_topics", "record_topics"]


@dataclass(frozen=True, slots=True)
class CreatedTopics:
    """What a checkpoint records about topics.

    Attributes:
        stream: the stream's name.
        incarnation: id of the stream's incarnation that created the topics, or took them over.
        topics: ids of the topics that the stream has created, by name; only these may be deleted with it.
        continued: ids of the topics from whose offsets it continues, by name.
    """

    stream: str
    incarnation: str
    topics: Mapping[str, str] = field(default_factory=dict)
    continued: Mapping[str, str] = field(default_factory=dict)


def read_created_topics(storage: Storage) -> CreatedTopics | None:
    """What a checkpoint records about topics; None if it records nothing.

    Raises:
        StateError: the file is damaged.
    """
    if find(storage, CREATED_TOPICS) is None:
        return None
    record = get_json(storage, CREATED_TOPICS)
    try:
        topics, continued = (
            {str(name): str(each) for name, each in ids.items()}
            for ids in (record["topics"], record.get("continued", {}))
        )
        return CreatedTopics(str(record["stream"]), str(record["incarnation"]), topics, continued)
    except (AttributeError, KeyError, TypeError) as error:
        raise StateError(
            f"{storage.place}/{CREATED_TOPICS} is damaged, so the topics that the stream owns are unknown"
        ) from error


class TopicRecorder:
    """Records topics as they are created."""

    def __init__(self, storage: Storage, created: CreatedTopics) -> None:
        self._storage, self._created = storage, created

    def add(self, ids: Mapping[str, str]) -> None:
        """Record that the stream has created topics with these ids, by name."""
        self._created = replace(self._created, topics={**self._created.topics, **ids})
        self.save()

    def check(self, ids: Mapping[str, str]) -> None:
        """Make sure that the topics from which a stream continues are those that it had before.

        Args:
            ids: their ids, by name.

        Raises:
            StateError: one has been deleted and created again.
        """
        continued = self._created.continued if self._storage.list(EPOCHS) else {}
        for name, found in ids.items():
            if continued.get(name, found) != found:
                raise StateError(
                    f"{name} was deleted and created again, so the stream cannot continue: its state refers to "
                    "messages of the deleted topic. Build the stream anew under another name, or remove its state"
                )
        if {**continued, **ids} != self._created.continued:
            self._created = replace(self._created, continued={**continued, **ids})
            self.save()

    def save(self) -> None:
        """Save what is known, even if it is nothing."""
        created = self._created
        record = {"stream": created.stream, "incarnation": created.incarnation}
        topics = {"topics": dict(created.topics), "continued": dict(created.continued)}
        put_json(self._storage, CREATED_TOPICS, record | topics)


def record_topics(
    storage: Storage, stream: str, incarnation: str, between: Collection[str], ids: Callable[[], Mapping[str, str]]
) -> TopicRecorder:
    """Start to record which topics a stream creates, before it creates any.

    The topics between the jobs of an earlier incarnation that could not be removed are this incarnation's to remove;
    those that it shared with others are not. A stream of an earlier release recorded nothing: those between its jobs
    are its own.

    Args:
        storage: the checkpoint.
        stream: the stream's name.
        incarnation: id of its incarnation.
        between: names of the topics between the jobs.
        ids: returns the ids of those that exist, by name.

    Raises:
        StateError: the existing file is damaged.
    """
    known = read_created_topics(storage)
    if known is not None and known.incarnation == incarnation:
        return TopicRecorder(storage, known)
    if known is not None:
        found = {name: each for name, each in known.topics.items() if name in between}
    else:
        found = dict(ids()) if storage.list(EPOCHS) else {}
    recorder = TopicRecorder(storage, CreatedTopics(stream, incarnation, found))
    recorder.save()
    return recorder

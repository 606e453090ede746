"""Which topics a stream has created itself, and from which it continues.

A topic that was created by others, or recreated under its name, may hold data that is not the stream's to delete. So
the router writes down the ids of topics as it creates them, in the checkpoint, beside the identity and the incarnation
of the stream. A removal deletes this file last, so that an interrupted removal can be continued from it.

The ids of the topics from which the stream continues are there too, whoever created them: offsets that it has stored
mean nothing in another topic of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.owned import MADE
from spatialstream.model.errors import StateError
from spatialstream.stages.state import get_json, put_json
from spatialstream.stream.router import EPOCHS

__all__ = ["Made", "Notes", "note_topics", "read_made"]


@dataclass(frozen=True, slots=True)
class Made:
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


def read_made(storage: Storage) -> Made | None:
    """What a checkpoint records about topics; None if it records nothing.

    Raises:
        StateError: the file is damaged.
    """
    if find(storage, MADE) is None:
        return None
    record = get_json(storage, MADE)
    try:
        topics, continued = (
            {str(name): str(each) for name, each in ids.items()}
            for ids in (record["topics"], record.get("continued", {}))
        )
        return Made(str(record["stream"]), str(record["incarnation"]), topics, continued)
    except (AttributeError, KeyError, TypeError) as error:
        raise StateError(
            f"{storage.place}/{MADE} is damaged, so the topics that the stream owns are unknown"
        ) from error


class Notes:
    """Writes down topics as they are created."""

    def __init__(self, storage: Storage, made: Made) -> None:
        self._storage, self._made = storage, made

    def add(self, ids: Mapping[str, str]) -> None:
        """Record that the stream has created topics with these ids, by name."""
        self._made = replace(self._made, topics={**self._made.topics, **ids})
        self.save()

    def check(self, ids: Mapping[str, str]) -> None:
        """Make sure that the topics from which a stream continues are those that it had before.

        Args:
            ids: their ids, by name.

        Raises:
            StateError: one has been deleted and created again.
        """
        continued = self._made.continued if self._storage.list(EPOCHS) else {}
        for name, found in ids.items():
            if continued.get(name, found) != found:
                raise StateError(
                    f"{name} was deleted and created again, so the stream cannot continue: its state refers to "
                    "messages of the deleted topic. Build the stream anew under another name, or remove its state"
                )
        if {**continued, **ids} != self._made.continued:
            self._made = replace(self._made, continued={**continued, **ids})
            self.save()

    def save(self) -> None:
        """Write down what is known, even if it is nothing."""
        made = self._made
        topics = {"topics": dict(made.topics), "continued": dict(made.continued)}
        put_json(self._storage, MADE, {"stream": made.stream, "incarnation": made.incarnation, **topics})


def note_topics(
    storage: Storage, stream: str, incarnation: str, between: Collection[str], ids: Callable[[], Mapping[str, str]]
) -> Notes:
    """Start to write down which topics a stream creates, before it creates any.

    The topics between the jobs of an earlier incarnation that could not be removed are this incarnation's to remove;
    those that it shared with others are not. A stream of an earlier release wrote nothing down: those between its jobs
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
    known = read_made(storage)
    if known is not None and known.incarnation == incarnation:
        return Notes(storage, known)
    if known is not None:
        found = {name: each for name, each in known.topics.items() if name in between}
    else:
        found = dict(ids()) if storage.list(EPOCHS) else {}
    notes = Notes(storage, Made(stream, incarnation, found))
    notes.save()
    return notes

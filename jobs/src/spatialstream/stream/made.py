"""Which topics a stream has made itself: those alone may be deleted with it.

A topic that somebody else has made, or that has been made anew under its name, holds what is not the stream's to
delete. So the router writes down the ids of topics as it creates them, in the checkpoint, beside what says whose that
is and of which incarnation. It is the last that a removal takes away, so that one that could not be finished goes on by
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from spatialstream.connectors.contracts import Storage, find
from spatialstream.connectors.owned import MADE
from spatialstream.model.errors import StateError
from spatialstream.stages.state import get_json, put_json
from spatialstream.stream.router import EPOCHS

__all__ = ["Made", "Notes", "note_topics", "read_made"]


@dataclass(frozen=True, slots=True)
class Made:
    """What a checkpoint says of topics.

    Attributes:
        stream: the stream's name.
        incarnation: id of the stream's incarnation that made them, or went on with them.
        topics: ids of the topics that the stream has made, by their names.
    """

    stream: str
    incarnation: str
    topics: Mapping[str, str] = field(default_factory=dict)


def read_made(storage: Storage) -> Made | None:
    """What a checkpoint says of topics; None if it says nothing.

    Raises:
        StateError: what it says is damaged.
    """
    if find(storage, MADE) is None:
        return None
    known = get_json(storage, MADE)
    try:
        topics = {str(name): str(each) for name, each in known["topics"].items()}
        return Made(str(known["stream"]), str(known["incarnation"]), topics)
    except (AttributeError, KeyError, TypeError) as error:
        raise StateError(
            f"{storage.place}/{MADE} is damaged; the stream's topics cannot be told from others'"
        ) from error


class Notes:
    """Writes down topics as they are made."""

    def __init__(self, storage: Storage, made: Made) -> None:
        self._storage, self._made = storage, made

    def add(self, ids: Mapping[str, str]) -> None:
        """The stream has made topics with these ids, by their names."""
        self._made = Made(self._made.stream, self._made.incarnation, {**self._made.topics, **ids})
        self.save()

    def save(self) -> None:
        """Write down what is known, though it be nothing."""
        made = self._made
        put_json(
            self._storage, MADE, {"stream": made.stream, "incarnation": made.incarnation, "topics": dict(made.topics)}
        )


def note_topics(
    storage: Storage, stream: str, incarnation: str, between: Collection[str], ids: Callable[[], Mapping[str, str]]
) -> Notes:
    """Begin to write down which topics a stream makes; before it makes any.

    The topics between the jobs of an earlier incarnation that could not be removed are this incarnation's to remove;
    those that it shared with others are not. A stream of an earlier release wrote nothing down: those between its jobs
    are its own.

    Args:
        storage: the checkpoint.
        stream: the stream's name.
        incarnation: id of its incarnation.
        between: names of the topics between the jobs.
        ids: gives their ids, of those that are there, by their names.

    Raises:
        StateError: what was written down is damaged.
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

"""Whether a stream may have the topics that it names: one that another stream uses, it may only read as that one does.

Several streams may read the same objects and the same queries. Whatever else is shared is a mistake: a topic of queries
read as objects gives rejected records alone, and rows in a topic that somebody else reads are not what he expects.
Of two streams the one that has begun keeps the topic, and else the one that was made first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Claim", "conflict"]

_SHARED = frozenset({"objects", "queries"})
"""Kinds that are only read: other streams may read them too, as the same kind."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The topics of a stream.

    Attributes:
        stream: its name, with its namespace.
        made: when it was made and its uid: what is lower was first.
        servers: brokers, ``host:port``; streams that have one in common have the same Kafka.
        topics: their names by kind.
        begun: whether the stream has been begun, and so has them.
    """

    stream: str
    made: tuple[str, str]
    servers: frozenset[str]
    topics: Mapping[str, str]
    begun: bool = False


def conflict(ours: Claim, others: Iterable[Claim]) -> tuple[str, str] | None:
    """The kind of a topic that belongs to another stream, and what to say of it; None if there is none.

    A stream that may not have its topics itself keeps nobody else from them.

    Args:
        ours: of the stream that is judged.
        others: of all streams; ours may be among them.
    """
    taken: dict[str, list[tuple[Claim, str]]] = {}
    # times of making are whole seconds: who has begun has a topic, whichever of two seems to be the older
    first = [each for each in others if each.made != ours.made and (each.begun or each.made < ours.made)]
    for each in sorted(first, key=lambda each: (not each.begun, each.made)):
        if each.begun or _conflict(each, taken) is None:
            for kind, topic in each.topics.items():
                taken.setdefault(topic, []).append((each, kind))
    return _conflict(ours, taken)


def _conflict(ours: Claim, taken: Mapping[str, Sequence[tuple[Claim, str]]]) -> tuple[str, str] | None:
    for kind, topic in ours.topics.items():
        for other, theirs in taken.get(topic, ()):
            if other.servers & ours.servers and not (theirs == kind and kind in _SHARED):
                return kind, f"{topic} is the topic of {theirs} of the stream {other.stream}"
    return None

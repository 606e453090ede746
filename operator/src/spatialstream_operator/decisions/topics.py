"""Whether a stream may have the topics that it names, and which of them stay when it goes.

A topic that another stream uses, it may only read as that one does.

Several streams may read the same objects and the same queries. Whatever else is shared is a mistake: a topic of queries
read as objects gives rejected records alone, and rows in a topic that somebody else reads are not what he expects.
Of two streams the one that has begun keeps the topic, and else the one that was made first. Topics whose names begin
with another namespace are that one's. When a stream goes, topics that another one names stay.

Two streams have the same Kafka if its id says so. A stream that has not run yet does not know the id: then it is by
addresses, which one Kafka may have several of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Claim", "conflict", "foreign", "spared"]

_SHARED = frozenset({"objects", "queries"})
"""Kinds that are only read: other streams may read them too, as the same kind."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The topics of a stream.

    Attributes:
        stream: its name, with its namespace.
        made: when it was made and its uid: what is lower was first.
        servers: brokers, ``host:port``.
        topics: their names by kind.
        begun: whether the stream has been begun, and so has them.
        cluster: the id of its Kafka; "": it is not known yet.
        going: whether it is being deleted, and its topics with it.
    """

    stream: str
    made: tuple[str, str]
    servers: frozenset[str]
    topics: Mapping[str, str]
    begun: bool = False
    cluster: str = ""
    going: bool = False

    @property
    def namespace(self) -> str:
        """That the stream is in."""
        return self.stream.partition(".")[0]

    def shares_kafka(self, other: Claim) -> bool:
        """Whether both are known to have the same Kafka."""
        if self.cluster and other.cluster:
            return self.cluster == other.cluster
        return bool(self.servers & other.servers)


def foreign(ours: Claim, namespaces: Iterable[str]) -> tuple[str, str] | None:
    """The kind of a topic whose name begins with another namespace, and what to say of it; None if there is none.

    Args:
        ours: of the stream that is judged.
        namespaces: whose streams are looked after.
    """
    others = {*namespaces} - {ours.namespace}
    for kind, topic in ours.topics.items():
        namespace, dot, _ = topic.partition(".")
        if dot and namespace in others:
            return kind, f"{topic} is a name for topics of streams in the namespace {namespace}"
    return None


def spared(ours: Claim, others: Iterable[Claim]) -> list[str]:
    """Topics of a stream that stay when it goes, because others name them, on what is or may be the same Kafka.

    Args:
        ours: of the stream that goes.
        others: of all streams; ours may be among them.
    """
    used = set[str]()
    for each in others:
        elsewhere = ours.cluster and each.cluster and ours.cluster != each.cluster
        if each.made != ours.made and not (each.going or elsewhere):
            used |= set(each.topics.values())
    return sorted(used & set(ours.topics.values()))


def conflict(ours: Claim, others: Iterable[Claim]) -> tuple[str, str] | None:
    """The kind of a topic that belongs to another stream, and what to say of it; None if there is none.

    A stream that may not have its topics itself keeps nobody else from them.

    Args:
        ours: of the stream that is judged.
        others: of all streams; ours may be among them.
    """
    taken: dict[str, list[tuple[Claim, str]]] = {}
    # times of making are whole seconds: who has begun has a topic, whichever of two seems to be the older
    first = [
        each for each in others if each.made != ours.made and (each.made < ours.made or (each.begun and not ours.begun))
    ]
    for each in sorted(first, key=lambda each: (not each.begun, each.made)):
        if each.begun or _conflict(each, taken) is None:
            for kind, topic in each.topics.items():
                taken.setdefault(topic, []).append((each, kind))
    return _conflict(ours, taken)


def _conflict(ours: Claim, taken: Mapping[str, Sequence[tuple[Claim, str]]]) -> tuple[str, str] | None:
    for kind, topic in ours.topics.items():
        for other, theirs in taken.get(topic, ()):
            if other.shares_kafka(ours) and not (theirs == kind and kind in _SHARED):
                return kind, f"{topic} is the topic of {theirs} of the stream {other.stream}"
    return None

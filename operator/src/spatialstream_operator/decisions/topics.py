"""Whether a stream may use the topics in its spec, and which of them are kept when it is deleted.

A stream may use another stream's topic only to read it, and only as the same kind.

Several streams may read the same objects, the same queries and the same areas. Any other sharing is an error: a topic
of queries that is read as objects only yields rejected records, and rows in a topic that somebody else reads are
unexpected there.
Of two streams with a conflict the one that has started keeps the topic, otherwise the one that was created first.
Topics whose names begin with another namespace belong to that namespace. When a stream is deleted, topics that another
stream names are kept.

Two streams use the same Kafka if the cluster ids are equal. A stream that has not run yet does not know the id; then
addresses are compared, of which one Kafka cluster may have several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Claim", "conflict", "foreign", "spared"]

_SHARED = frozenset({"objects", "queries", "areas"})
"""Kinds that the jobs only read; other streams may read them too, as the same kind."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The topics of a stream.

    Attributes:
        stream: its name, with its namespace.
        made: creation time and uid; the lower one was first.
        servers: brokers, ``host:port``.
        topics: names of the topics by kind.
        begun: whether the stream has been started, and so owns its topics.
        cluster: id of its Kafka cluster; "" if unknown yet.
        going: whether it is being deleted together with its topics.
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
        """The namespace of the stream."""
        return self.stream.partition(".")[0]

    def shares_kafka(self, other: Claim) -> bool:
        """Whether both are known to use the same Kafka."""
        if self.cluster and other.cluster:
            return self.cluster == other.cluster
        return bool(self.servers & other.servers)


def foreign(ours: Claim, namespaces: Iterable[str]) -> tuple[str, str] | None:
    """The kind of a topic whose name begins with another namespace, and a message; None if there is none.

    Args:
        ours: claim of the stream that is checked.
        namespaces: the namespaces whose streams are managed.
    """
    others = {*namespaces} - {ours.namespace}
    for kind, topic in ours.topics.items():
        namespace, dot, _ = topic.partition(".")
        if dot and namespace in others:
            return kind, f"{topic} is reserved for streams in the namespace {namespace}"
    return None


def spared(ours: Claim, others: Iterable[Claim]) -> list[str]:
    """Topics of a stream that are kept when it is deleted, because others name them on what may be the same Kafka.

    Args:
        ours: claim of the stream that is deleted.
        others: claims of all streams; ours may be among them.
    """
    used = set[str]()
    for each in others:
        elsewhere = ours.cluster and each.cluster and ours.cluster != each.cluster
        if each.made != ours.made and not (each.going or elsewhere):
            used |= set(each.topics.values())
    return sorted(used & set(ours.topics.values()))


def conflict(ours: Claim, others: Iterable[Claim]) -> tuple[str, str] | None:
    """The kind of a topic that belongs to another stream, and a message; None if there is none.

    A stream that itself has a conflict does not block others.

    Args:
        ours: claim of the stream that is checked.
        others: claims of all streams; ours may be among them.
    """
    claimed: dict[str, list[tuple[Claim, str]]] = {}
    # creation times have whole seconds: a stream that has started owns its topics, whichever seems to be the older
    first = [
        each for each in others if each.made != ours.made and (each.made < ours.made or (each.begun and not ours.begun))
    ]
    for each in sorted(first, key=lambda each: (not each.begun, each.made)):
        if each.begun or _conflict(each, claimed) is None:
            for kind, topic in each.topics.items():
                claimed.setdefault(topic, []).append((each, kind))
    return _conflict(ours, claimed)


def _conflict(ours: Claim, taken: Mapping[str, Sequence[tuple[Claim, str]]]) -> tuple[str, str] | None:
    for kind, topic in ours.topics.items():
        for other, theirs in taken.get(topic, ()):
            if other.shares_kafka(ours) and not (theirs == kind and kind in _SHARED):
                return kind, f"{topic} is the {theirs} topic of the stream {other.stream}"
    return None

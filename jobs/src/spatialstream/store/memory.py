"""A store in memory, for simulation: several clients of one memory, which can be cut off or lose an answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Array
from spatialstream.model.errors import StateError, Unavailable
from spatialstream.store.base import Arrays, RoutingStore
from spatialstream.store.codec import checked_name, digest
from spatialstream.store.state import RoutingState, Stage

__all__ = ["Failure", "Memory", "MemoryStore"]

Failure = Literal["before", "after"]
"""When the connection breaks, relative to a change: before it is made, or before its answer arrives."""


@dataclass(slots=True, eq=False)
class Memory:
    """The data that the clients share.

    Attributes:
        state: the stream's state; None before it is created.
        versions: the versions by number.
        statistics: arrays and meta (as JSON) by name.
        lock: held while one of these is read or written.
    """

    state: RoutingState | None = None
    versions: dict[int, RoutingVersion] = field(default_factory=dict)
    statistics: dict[str, tuple[dict[str, Array], str]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)


class MemoryStore(RoutingStore):
    """One client.

    Args:
        memory: shared with other clients; None for a new one.

    Attributes:
        memory: the memory.
        reachable: whether this client can reach it now. May be set.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory if memory is not None else Memory()
        self.reachable = True
        self._failure: Failure | None = None

    def fail_next_write(self, when: Failure) -> None:
        """Let this client's next change raise Unavailable, before or after it is made."""
        self._failure = when

    def create(self, version: RoutingVersion, incarnation: str = "", reason: str = "") -> None:
        """See :class:`RoutingStore`."""
        origin = digest(version)

        def change(state: RoutingState | None) -> RoutingState:
            if state is not None:
                return state.recreated(origin, incarnation)
            self.memory.versions[version.number] = version
            new = version.number, version.slots
            return RoutingState.created(*new, origin, incarnation, version.index.kind, reason)

        self._change(change)

    def publish(self, version: RoutingVersion, base: int, proposal: str, record: Mapping[str, Any]) -> None:
        """See :class:`RoutingStore`."""

        def change(state: RoutingState | None) -> RoutingState:
            before = _existing(state)
            after = before.published(version.number, version.slots, base, proposal, record)
            if after is not before:
                self.memory.versions[version.number] = version
            return after

        self._change(change)

    def state(self) -> RoutingState:
        """See :class:`RoutingStore`."""
        self._reach()
        return _existing(self.memory.state)

    def latest(self) -> RoutingState | None:
        """See :class:`RoutingStore`."""
        return self.memory.state if self.reachable else None

    def acknowledge(self, number: int, stage: Stage, slots: Iterable[int]) -> None:
        """See :class:`RoutingStore`."""
        self._change(lambda state: _existing(state).acknowledged(number, stage, slots))

    def activate(self, number: int, epoch: int) -> None:
        """See :class:`RoutingStore`."""
        self._change(lambda state: _existing(state).activated(number, epoch))

    def withdraw(self, number: int, proposal: str) -> None:
        """See :class:`RoutingStore`."""

        def change(state: RoutingState | None) -> RoutingState:
            before = _existing(state)
            after = before.withdrawn(number, proposal)
            if after is not before:
                del self.memory.versions[number]
            return after

        self._change(change)

    def versions(self) -> tuple[int, ...]:
        """See :class:`RoutingStore`."""
        self._reach()
        with self.memory.lock:
            return tuple(sorted(self.memory.versions))

    def load(self, number: int) -> RoutingVersion:
        """See :class:`RoutingStore`."""
        self._reach()
        version = self.memory.versions.get(number)
        if version is None:
            raise StateError(f"version {number} is not in the store")
        return version

    def remove(self, numbers: Iterable[int]) -> None:
        """See :class:`RoutingStore`."""
        numbers = frozenset(numbers)

        def change(state: RoutingState | None) -> RoutingState:
            after = _existing(state).without(numbers, self.memory.versions)
            for number in numbers:
                self.memory.versions.pop(number, None)
            return after

        self._change(change)

    def save_statistics(self, name: str, arrays: Arrays, meta: Mapping[str, Any]) -> None:
        """See :class:`RoutingStore`."""
        kept = {key: np.array(array) for key, array in arrays.items()}, json.dumps(meta)

        def change(state: RoutingState | None) -> RoutingState | None:
            self.memory.statistics[checked_name(name)] = kept
            return state

        self._change(change)

    def load_statistics(self, name: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """See :class:`RoutingStore`."""
        self._reach()
        kept = self.memory.statistics.get(checked_name(name))
        return None if kept is None else (dict(kept[0]), json.loads(kept[1]))

    def erase(self) -> None:
        """See :class:`RoutingStore`."""

        def change(state: RoutingState | None) -> None:
            self.memory.versions.clear()
            self.memory.statistics.clear()

        self._change(change)

    def _reach(self) -> None:
        if not self.reachable:
            raise Unavailable("the routing store cannot be reached")

    def _change(self, change: Callable[[RoutingState | None], RoutingState | None]) -> None:
        self._reach()
        failure, self._failure = self._failure, None
        if failure != "before":
            with self.memory.lock:
                self.memory.state = change(self.memory.state)
        if failure is not None:
            raise Unavailable("the connection to the routing store was lost")


def _existing(state: RoutingState | None) -> RoutingState:
    if state is None:
        raise StateError("there is no such stream in the routing store")
    return state

"""The routing state of a stream, and which changes of it are allowed (rebalancing in two steps; SSTD, section 5.2).

::

            publish                  activate
    active ─────────> active+pending ─────────> active (the new one)
       ^                    │
       └────────────────────┘ withdraw

A state is a value; a change makes another one, or is refused. All stores apply the same changes, and differ only in
how they make one of them replace the state that it was computed from. A change that has been made already gives the
state that is there, so whoever does not know whether it was made asks for it again.

Cost: O(versions within retention + slots) for each change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from spatialstream.model.errors import Conflict, StateError

__all__ = ["STAGES", "Binding", "Pending", "RoutingState", "Stage"]

Stage = Literal["exported", "loaded"]
"""What a slot confirms about the pending version: its leaving queries are written; the arriving ones are registered."""

_REBUILD = "rebuild"
"""The strategy, as a proposal's record says it, that builds the tree anew; the others adjust the one that is there."""

STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """A version and the first epoch that it routes.

    Attributes:
        number: the version's number.
        epoch: the epoch.
    """

    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A version that is being prepared.

    Attributes:
        number: the version's number.
        base: number of the active version that it was computed from.
        proposal: id of the proposal that it carries out.
        record: what is to be known about the proposal, as JSON has it.
    """

    number: int
    base: int
    proposal: str
    record: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RoutingState:
    """Which versions route which epochs of a stream, and which one is being prepared.

    Attributes:
        active: the version in force.
        pending: the version that is being prepared, if one is.
        bindings: versions and their first epochs, ascending in both; the last one is ``active``. The earliest are gone
            when their versions have been removed.
        exported: slots that have confirmed this stage for the pending version.
        loaded: likewise.
        last: the highest number that a version ever had; numbers are never used again.
        slots: number of slots, fixed for the stream's lifetime.
        origin: digest of the version that the stream was created with.
        adopted: id of the proposal that the active version carries out; empty for the first version.
        incarnation: id of the stream's incarnation, which its checkpoint bears too; empty where there is none.
        rebuilt: number of the version whose tree was last built anew, from what the stream has brought; None while it
            has the tree that it began with, however often that was adjusted.
    """

    active: Binding
    pending: Pending | None
    bindings: tuple[Binding, ...]
    exported: frozenset[int]
    loaded: frozenset[int]
    last: int
    slots: int
    origin: str = ""
    adopted: str = ""
    incarnation: str = ""
    rebuilt: int | None = None

    @classmethod
    def created(cls, number: int, slots: int, origin: str, incarnation: str = "") -> RoutingState:
        """The state of a new stream: its first version is active from epoch 0 on."""
        first = Binding(number, 0)
        return cls(first, None, (first,), frozenset(), frozenset(), number, slots, origin, incarnation=incarnation)

    def at(self, epoch: int) -> int:
        """Number of the version that routes an epoch.

        Raises:
            StateError: the epoch is so old that its version has been removed.
        """
        for binding in reversed(self.bindings):
            if binding.epoch <= epoch:
                return binding.number
        raise StateError(f"the routing version of epoch {epoch} has been removed")

    def confirmed(self, stage: Stage) -> bool:
        """Whether all slots have confirmed a stage of the pending version; False if none is pending."""
        return self.pending is not None and len(self.acknowledgements(stage)) == self.slots

    def acknowledgements(self, stage: Stage) -> frozenset[int]:
        """The slots that have confirmed a stage of the pending version."""
        return self.exported if stage == "exported" else self.loaded

    # ------------------------------------------------------------------------------------------------------- changes

    def recreated(self, origin: str, incarnation: str = "") -> RoutingState:
        """The stream is created once more, with a version of that digest and for that incarnation.

        Raises:
            Conflict: it was created with another one, or for another incarnation.
        """
        if incarnation != self.incarnation:
            raise Conflict(
                f"the stream exists, and its incarnation is "
                f"{self.incarnation or 'without an id'}, not {incarnation or 'that'}"
            )
        if origin != self.origin:
            raise Conflict("the stream exists, and was created with another routing version")
        return self

    def published(self, number: int, slots: int, base: int, proposal: str, record: Mapping[str, Any]) -> RoutingState:
        """A new version is being prepared.

        Raises:
            Conflict: ``base`` is not active, another version is pending, or the number has been used before.
            StateError: the version has another number of slots than the stream.
        """
        if self.pending is not None and replace(self.pending, record={}) == Pending(number, base, proposal):
            return self
        if (number, proposal) == (self.active.number, self.adopted):
            return self
        if slots != self.slots:
            raise StateError(f"version {number} has {slots} slots, and the stream has {self.slots}")
        if base != self.active.number:
            raise Conflict(
                f"version {number} was computed from version {base}, but version {self.active.number} is active"
            )
        if self.pending is not None:
            raise Conflict(f"version {self.pending.number} is pending (proposal {self.pending.proposal})")
        if number <= self.last:
            raise Conflict(f"version number {number} has been used before; the next one is {self.last + 1}")
        pending = Pending(number, base, proposal, json.loads(json.dumps(record)))
        return replace(self, pending=pending, exported=frozenset(), loaded=frozenset(), last=number)

    def acknowledged(self, number: int, stage: Stage, slots: Iterable[int]) -> RoutingState:
        """Slots confirm a stage of a version; what concerns another than the pending one is out of date, and ignored.

        Raises:
            ValueError: there is no such slot or stage.
        """
        slots = frozenset(slots)
        if stage not in STAGES or not slots <= frozenset(range(self.slots)):
            raise ValueError(f"not a stage and slots of this stream: {stage}, {sorted(slots)}")
        if self.pending is None or self.pending.number != number or slots <= self.acknowledgements(stage):
            return self
        if stage == "exported":
            return replace(self, exported=self.exported | slots)
        return replace(self, loaded=self.loaded | slots)

    def activated(self, number: int, epoch: int) -> RoutingState:
        """The pending version routes from an epoch on.

        Raises:
            Conflict: the version is not pending, or the epoch is not later than the active version's first.
        """
        binding = Binding(number, epoch)
        if binding in self.bindings:
            return self
        if self.pending is None or self.pending.number != number:
            raise Conflict(f"version {number} is not pending, so it cannot become active in epoch {epoch}")
        if epoch <= self.active.epoch:
            raise Conflict(f"version {number} cannot become active in epoch {epoch}: {self.active} is later")
        rebuilt = number if self.pending.record.get("strategy") == _REBUILD else self.rebuilt
        bindings, adopted = (*self.bindings, binding), self.pending.proposal
        return self._settled(active=binding, bindings=bindings, adopted=adopted, rebuilt=rebuilt)

    def withdrawn(self, number: int, proposal: str) -> RoutingState:
        """The pending version is given up; nothing changes if it has been, or never was published.

        Raises:
            Conflict: it has become active.
        """
        if any(binding.number == number for binding in self.bindings):
            raise Conflict(f"version {number} cannot be withdrawn: it has become active")
        if self.pending is None or (self.pending.number, self.pending.proposal) != (number, proposal):
            return self
        return self._settled()

    def without(self, numbers: Iterable[int], versions: Iterable[int]) -> RoutingState:
        """Versions are removed; nothing changes for numbers that are not there.

        Args:
            numbers: the versions to remove.
            versions: those that are there until then.

        Raises:
            Conflict: one of them is active or pending.
        """
        numbers = frozenset(numbers)
        kept = {self.active.number} | ({self.pending.number} if self.pending else set())
        if numbers & kept:
            raise Conflict(f"versions {sorted(numbers & kept)} are active or pending and cannot be removed")
        first = 0  # bindings between those of versions that stay must stay: they bound the epochs of the earlier ones
        remaining = frozenset(versions) - numbers
        while self.bindings[first].number not in remaining:
            first += 1
        return self if first == 0 else replace(self, bindings=self.bindings[first:])

    def _settled(self, **changes: Any) -> RoutingState:
        return replace(self, pending=None, exported=frozenset(), loaded=frozenset(), **changes)

"""The routing state of a stream, and its allowed changes (rebalancing in two steps; SSTD, section 5.2).

::

            publish                  activate
    active ─────────> active+pending ─────────> active (the new one)
       ^                    │
       └────────────────────┘ withdraw

A state is a value; a change returns another one, or is rejected. All stores apply the same changes, and differ only in
how they replace the state from which the change was computed. A change that has been made already returns the existing
state, so a client that does not know whether it was made requests it again.

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
"""What a slot confirms about the pending version: leaving queries are exported; arriving ones are registered."""

_REBUILD = "rebuild"
"""The strategy in a proposal's record that rebuilds the tree; the others adjust the existing one."""

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
        base: number of the active version from which it was computed.
        proposal: id of the proposal that it implements.
        record: JSON-able information about the proposal.
    """

    number: int
    base: int
    proposal: str
    record: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RoutingState:
    """Which versions route which epochs of a stream, and which one is being prepared.

    Attributes:
        active: the active version.
        pending: the version that is being prepared, if there is one.
        bindings: versions and their first epochs, ascending in both; the last one is ``active``. The earliest are
            dropped when their versions have been removed.
        exported: slots that have confirmed this stage for the pending version.
        loaded: likewise.
        last: the highest number that a version ever had; numbers are never reused.
        slots: number of slots, fixed for the stream's lifetime.
        origin: digest of the version with which the stream was created.
        adopted: id of the proposal that the active version implements; empty for the first version.
        incarnation: id of the stream's incarnation, which its checkpoint has too; empty if it has none.
        rebuilt: number of the version whose tree was last rebuilt from the stream's data; None while the stream has its
            original tree, however often that was adjusted.
        kind: kind of the active version's index; empty if an earlier release made it active.
        reason: why the planner chose this kind, a sentence; empty if it did not choose.
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
    kind: str = ""
    reason: str = ""

    @classmethod
    def created(
        cls, number: int, slots: int, origin: str, incarnation: str = "", kind: str = "", reason: str = ""
    ) -> RoutingState:
        """The state of a new stream: its first version is active from epoch 0 on."""
        first, nobody = Binding(number, 0), frozenset[int]()
        bare = cls(first, None, (first,), nobody, nobody, number, slots, origin, incarnation=incarnation)
        return replace(bare, kind=kind, reason=reason)

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
        """The state if the stream is created again, with a version of that digest and for that incarnation.

        Raises:
            Conflict: it was created with another version, or for another incarnation.
        """
        if incarnation != self.incarnation:
            raise Conflict(
                f"the stream exists, with the incarnation {self.incarnation or 'without an id'}, "
                f"not {incarnation or 'that'}"
            )
        if origin != self.origin:
            raise Conflict("the stream exists, and was created with another routing version")
        return self

    def published(self, number: int, slots: int, base: int, proposal: str, record: Mapping[str, Any]) -> RoutingState:
        """The state after a new version was published, which is being prepared.

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
        """The state after slots have confirmed a stage; confirmations of versions that are not pending are ignored.

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
        """The state after the pending version has become active from an epoch on.

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
        record = self.pending.record
        changes: dict[str, Any] = {"bindings": (*self.bindings, binding), "adopted": self.pending.proposal}
        if record.get("strategy") == _REBUILD:
            changes |= {"rebuilt": number, "reason": record.get("reason", "")}
        return self._settled(active=binding, kind=record.get("kind", self.kind), **changes)

    def withdrawn(self, number: int, proposal: str) -> RoutingState:
        """The state without the pending version; unchanged if it has been withdrawn, or was never published.

        Raises:
            Conflict: it has become active.
        """
        if any(binding.number == number for binding in self.bindings):
            raise Conflict(f"version {number} cannot be withdrawn: it has become active")
        if self.pending is None or (self.pending.number, self.pending.proposal) != (number, proposal):
            return self
        return self._settled()

    def without(self, numbers: Iterable[int], versions: Iterable[int]) -> RoutingState:
        """The state after versions were removed; unchanged for numbers that do not exist.

        Args:
            numbers: the versions to remove.
            versions: the existing versions.

        Raises:
            Conflict: one of them is active or pending.
        """
        numbers = frozenset(numbers)
        kept = {self.active.number} | ({self.pending.number} if self.pending else set())
        if numbers & kept:
            raise Conflict(f"versions {sorted(numbers & kept)} are active or pending and cannot be removed")
        first = 0  # bindings between those of remaining versions must remain: they bound the epochs of the earlier ones
        remaining = frozenset(versions) - numbers
        while self.bindings[first].number not in remaining:
            first += 1
        return self if first == 0 else replace(self, bindings=self.bindings[first:])

    def _settled(self, **changes: Any) -> RoutingState:
        return replace(self, pending=None, exported=frozenset(), loaded=frozenset(), **changes)

"""How the router adopts a new routing version: a state machine, advanced once an epoch.

::

    idle ──pending N appears──> preparing ──all slots have exported──> loading ──all slots have loaded──> active
      ^                            │                                     │
      └────────────── N is withdrawn, or another is active ──────────────┘

The step to *active* is a transaction in the routing store (:class:`spatialstream.store.base.RoutingStore`): either the
version becomes active from this epoch on, or it was withdrawn before. The state of the machine is part of each epoch's
record, so a replayed epoch gives the same controls. While the store is unreachable the state does not change, and the
stream continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spatialstream.stages.turns import ABORT, LOAD, PREPARE, Control
from spatialstream.store.state import RoutingState

__all__ = ["Adoption"]


@dataclass(frozen=True, slots=True)
class Adoption:
    """The state of the machine after an epoch.

    Attributes:
        active: number of the version of the epoch.
        pending: number of the version that is being prepared.
        proposal: id of the proposal of the pending version.
        stage: the last control that was sent for it: PREPARE or LOAD.
    """

    active: int
    pending: int | None = None
    proposal: str = ""
    stage: str = ""

    def next(self, view: RoutingState | None, activate: Callable[[int], bool]) -> tuple[Adoption, tuple[Control, ...]]:
        """The state after one more epoch, and the controls that the slots get in it.

        Args:
            view: the latest known state of the store; None while it is unreachable.
            activate: makes a version active from this epoch on; returns whether it succeeded.
        """
        if view is None:
            return self, ()
        coming = view.pending
        if self.pending is not None and (coming is None or coming.proposal != self.proposal):
            if view.active.number == self.pending:
                return Adoption(self.pending), ()  # activated before a crash, which came before the record
            return Adoption(self.active), ((ABORT, self.pending),)
        if coming is None:
            return self, ()
        if self.pending is None:
            if coming.base != self.active:
                return self, ()
            return Adoption(self.active, coming.number, coming.proposal, PREPARE), ((PREPARE, coming.number),)
        if self.stage == PREPARE and view.confirmed("exported"):
            return Adoption(self.active, self.pending, self.proposal, LOAD), ((LOAD, self.pending),)
        if self.stage == LOAD and view.confirmed("loaded") and activate(self.pending):
            return Adoption(self.pending), ()
        return self, ()

    def wants(self, view: RoutingState | None) -> bool:
        """Whether one more epoch would change something."""
        return self.next(view, lambda number: True)[0] != self

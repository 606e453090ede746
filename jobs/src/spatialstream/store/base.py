"""What every store of routing versions can do.

A store belongs to one stream. Routers, workers, the rebalancer and the operator each have one of their own; changes
that they make at the same time take effect one after the other, or one of them is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Array
from spatialstream.model.errors import Conflict, Unavailable
from spatialstream.store.state import Binding, Pending, RoutingState, Stage

__all__ = ["Arrays", "Binding", "Conflict", "Pending", "RoutingState", "RoutingStore", "Stage", "Unavailable"]

Arrays = Mapping[str, Array]
"""Named arrays."""


class RoutingStore(ABC):
    """The contract of a store.

    Every method but :meth:`latest` waits for an answer, for a bounded time, and raises
    :class:`~spatialstream.model.errors.Unavailable` if there is none. A change may then have been made or not, or may
    still be made; asking for it again is right in any case.
    """

    @abstractmethod
    def create(self, version: RoutingVersion, incarnation: str = "") -> None:
        """Create the stream: its first version is active from epoch 0 on. Nothing changes if this has been done.

        Args:
            version: the first version.
            incarnation: id of the stream's incarnation, by which it is told from one of its name that was there before.

        Raises:
            Conflict: the stream exists, created with another version, or for another incarnation.
        """

    @abstractmethod
    def publish(self, version: RoutingVersion, base: int, proposal: str, record: Mapping[str, Any]) -> None:
        """Add a version and make it pending, both or neither.

        Args:
            version: the version; its number is higher than that of every version before (``state().last``).
            base: number of the version that it was computed from.
            proposal: id of the proposal.
            record: what is to be known about the proposal; JSON-able, and small beside the version.

        Raises:
            Conflict: see :meth:`RoutingState.published`.
            StateError: the stream does not exist, or the version does not fit it.
        """

    @abstractmethod
    def state(self) -> RoutingState:
        """The state, read at one moment; it contains all changes that were made before the call.

        Raises:
            StateError: the stream does not exist.
        """

    @abstractmethod
    def latest(self) -> RoutingState | None:
        """The newest state that is known here, at once.

        It may be behind by the moment that a message takes. The same object is returned until something changes. None
        while the store is out of reach, and while the stream does not exist.
        """

    @abstractmethod
    def acknowledge(self, number: int, stage: Stage, slots: Iterable[int]) -> None:
        """Slots confirm a stage of the pending version; see :meth:`RoutingState.acknowledged`."""

    @abstractmethod
    def activate(self, number: int, epoch: int) -> None:
        """Make the pending version active from an epoch on; see :meth:`RoutingState.activated`.

        Raises:
            Conflict: it is not pending, or the epoch is too early.
        """

    @abstractmethod
    def withdraw(self, number: int, proposal: str) -> None:
        """Give the pending version up and remove it; see :meth:`RoutingState.withdrawn`.

        Raises:
            Conflict: it has become active.
        """

    @abstractmethod
    def versions(self) -> tuple[int, ...]:
        """Numbers of the versions that can be loaded, ascending; none if the stream does not exist."""

    @abstractmethod
    def load(self, number: int) -> RoutingVersion:
        """A version.

        Raises:
            StateError: it is not there, or damaged.
        """

    @abstractmethod
    def remove(self, numbers: Iterable[int]) -> None:
        """Remove versions that retention has passed; see :meth:`RoutingState.without`.

        Raises:
            Conflict: one of them is active or pending; none is removed then.
        """

    @abstractmethod
    def save_statistics(self, name: str, arrays: Arrays, meta: Mapping[str, Any]) -> None:
        """Keep named arrays and a JSON-able meta under a name, in place of what was there; readers see all or nothing.

        Args:
            name: letters, digits, ``-``, ``_`` and ``.``.
            arrays: the arrays.
            meta: what else there is to say.
        """

    @abstractmethod
    def load_statistics(self, name: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """What is kept under a name: (arrays, meta), or None.

        Raises:
            StateError: it is damaged.
        """

    @abstractmethod
    def erase(self) -> None:
        """Remove the stream with all that is kept of it; nothing happens if there is none."""

    def close(self) -> None:  # noqa: B027 (most stores hold nothing open)
        """Let go of connections; the store is not used any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

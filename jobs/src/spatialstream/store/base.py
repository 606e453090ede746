"""The interface of stores of routing versions.

A store belongs to one stream. Routers, workers, the rebalancer and the operator each have a client of their own;
concurrent changes take effect one after the other, or one of them is rejected.
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
    """The interface of a store.

    Every method except :meth:`latest` waits for an answer, for a bounded time, and raises
    :class:`~spatialstream.model.errors.Unavailable` if there is none. A change may then have been made or not, or may
    still be made; requesting it again is correct in any case.
    """

    @abstractmethod
    def create(self, version: RoutingVersion, incarnation: str = "", reason: str = "") -> None:
        """Create the stream: its first version is active from epoch 0 on. Nothing changes if this has been done.

        Args:
            version: the first version.
            incarnation: id of the stream's incarnation, which distinguishes it from an earlier stream of its name.
            reason: why the planner chose its kind of index; "" if it did not choose.

        Raises:
            Conflict: the stream exists, created with another version, or for another incarnation.
        """

    @abstractmethod
    def publish(self, version: RoutingVersion, base: int, proposal: str, record: Mapping[str, Any]) -> None:
        """Add a version and make it pending, atomically.

        Args:
            version: the version; its number is higher than that of every version before (``state().last``).
            base: number of the version from which it was computed.
            proposal: id of the proposal.
            record: information about the proposal; JSON-able, and small compared with the version.

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
        """The newest state known to this client, without waiting.

        It may lag by the duration of a message. The same object is returned until something changes. None while the
        store is unreachable, and while the stream does not exist.
        """

    @abstractmethod
    def acknowledge(self, number: int, stage: Stage, slots: Iterable[int]) -> None:
        """Confirm a stage of the pending version for slots; see :meth:`RoutingState.acknowledged`."""

    @abstractmethod
    def activate(self, number: int, epoch: int) -> None:
        """Make the pending version active from an epoch on; see :meth:`RoutingState.activated`.

        Raises:
            Conflict: it is not pending, or the epoch is too early.
        """

    @abstractmethod
    def withdraw(self, number: int, proposal: str) -> None:
        """Give up the pending version and remove it; see :meth:`RoutingState.withdrawn`.

        Raises:
            Conflict: it has become active.
        """

    @abstractmethod
    def versions(self) -> tuple[int, ...]:
        """Numbers of the versions that can be loaded, ascending; none if the stream does not exist."""

    @abstractmethod
    def load(self, number: int) -> RoutingVersion:
        """Load a version.

        Raises:
            StateError: it does not exist, or is damaged.
        """

    @abstractmethod
    def remove(self, numbers: Iterable[int]) -> None:
        """Remove versions that retention has passed; see :meth:`RoutingState.without`.

        Raises:
            Conflict: one of them is active or pending; none is removed then.
        """

    @abstractmethod
    def save_statistics(self, name: str, arrays: Arrays, meta: Mapping[str, Any]) -> None:
        """Save named arrays and a JSON-able meta under a name, atomically replacing what was there.

        Args:
            name: letters, digits, ``-``, ``_`` and ``.``.
            arrays: the arrays.
            meta: other information.
        """

    @abstractmethod
    def load_statistics(self, name: str) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Load what is saved under a name: (arrays, meta), or None.

        Raises:
            StateError: it is damaged.
        """

    @abstractmethod
    def erase(self) -> None:
        """Remove the stream and everything saved for it; nothing happens if there is none."""

    def close(self) -> None:  # noqa: B027 (most stores hold nothing open)
        """Close connections; the store must not be used any more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

"""Leases in memory: a counter and a name in one place, which is what the others are compared with."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from spatialstream.model.errors import SettingError, Unavailable
from spatialstream.store.lease import Lease


@dataclass(slots=True, eq=False)
class Leases:
    """What the leases of one job share in memory.

    Attributes:
        number: of the last holder.
        holder: the holder; None if there is none.
    """

    number: int = 0
    holder: MemoryLease | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def expire(self) -> None:
        """The holder has not been heard of for too long."""
        with self.changed:
            self.holder = None
            self.changed.notify_all()


class MemoryLease(Lease):
    """One process's view of a lease in memory.

    Args:
        leases: shared with other processes.
        job: its name, for messages.

    Attributes:
        reachable: whether this process can see it now. May be set.
    """

    def __init__(self, leases: Leases, job: str = "job") -> None:
        self.reachable = True
        self.leases, self._job = leases, job
        self._number = 0
        self._wanted = False

    @property
    def number(self) -> int:
        return self._number

    @property
    def held(self) -> bool:
        with self.leases.changed:
            return self._take()

    @property
    def superseded(self) -> bool:
        with self.leases.changed:
            return self._wanted and self.reachable and not self._take()

    def _take(self) -> bool:
        """Become the holder, or stay it, if that is possible now."""
        leases = self.leases
        if not self._wanted or not self.reachable:
            return False
        if leases.holder is None and self._number in (0, leases.number):
            leases.holder = self
            leases.number += self._number == 0
            self._number = leases.number
        return leases.holder is self

    def acquire(self, patience: float) -> None:
        with self.leases.changed:
            self._wanted = True
            if self.leases.changed.wait_for(self._take, patience):
                return
            if not self.reachable:
                raise Unavailable("the lease cannot be reached")
            self._wanted = False
            raise SettingError("stream", f"another {self._job} is running")

    def release(self) -> None:
        with self.leases.changed:
            self._wanted = False
            if self.leases.holder is self:
                self.leases.holder = None
                self.leases.changed.notify_all()

"""The stream's watermark: the timestamp up to which all records have arrived, over many topic partitions.

Records of one partition are taken to be in time order; between partitions nothing is known. A partition's *clock* is
the largest timestamp that it has delivered. All records before the smallest clock have arrived; more records with that
very ms may follow. Epochs end there, and later records wait; so the order of the stream is that of time, in whatever
order topics are read, and the answers are those of a single ordered input.

A partition that stays silent would hold the others back indefinitely. It is ignored after ``idle`` ms, until it
delivers something again. Those records may have timestamps before the end of an epoch: such a record is *late*, and
counts from its arrival. A producer that sends watermarks (``{"clock": t}``: nothing earlier than t follows in this
partition) advances its partitions' clocks without records.

Pure: the time of day is an argument. Decisions are written down before an epoch runs, so a replay decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spatialstream.stages.turns import NEVER

__all__ = ["Clock", "Clocks"]


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one partition.

    Attributes:
        t: the largest timestamp or watermark that it has delivered, ms.
        heard: when it last delivered anything, ms of the time of day.
    """

    t: int
    heard: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of all partitions.

    Attributes:
        end: of the last epoch; never decreases.
        partitions: the clock of each partition by its name, such as ``"objects/0"``.
    """

    end: int = NEVER
    partitions: Mapping[str, Clock] = field(default_factory=dict)

    @classmethod
    def start(cls, names: list[str], now: int) -> Clocks:
        """Clocks of partitions that have not delivered anything yet."""
        return cls(NEVER, {name: Clock(NEVER, now) for name in names})

    def heard(self, watermarks: Mapping[str, int], now: int) -> Clocks:
        """The clocks after partitions have delivered records or watermarks with these largest timestamps."""
        partitions = dict(self.partitions)
        for name, t in watermarks.items():
            before = partitions.get(name)
            partitions[name] = Clock(t if before is None else max(before.t, t), now)
        return Clocks(self.end, partitions)

    def watermark(self, now: int, idle: int) -> int:
        """The timestamp up to which an epoch may reach now.

        Args:
            now: ms of the time of day.
            idle: ms after which a silent partition is ignored.
        """
        active = [clock.t for clock in self.partitions.values() if now - clock.heard < idle]
        latest = max((clock.t for clock in self.partitions.values()), default=NEVER)
        return max(self.end, min(active) - 1 if active else latest)

    def at(self, end: int) -> Clocks:
        """The clocks after an epoch that reaches up to ``end``."""
        return Clocks(max(self.end, end), self.partitions)

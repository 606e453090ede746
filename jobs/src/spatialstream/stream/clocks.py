"""The stream's clock: up to which timestamp everything has come, when input arrives through many topic partitions.

Records of one partition are taken to be in time order; between partitions nothing is known. A partition's *clock* is
the largest timestamp that it has given. Everything up to the smallest clock has come, except that more records of that
very ms may follow. Epochs end there, and what is later waits; so the order of the stream is that of time, whatever the
order in which topics are read, and the answers are those of a single ordered input.

A partition that has been silent for a while would hold the others back for ever. It is left out after ``idle`` ms,
until it gives something again. What it gives then may be earlier than the end of an epoch: such a record is *late*, and
counts from when it comes. A producer that sends watermarks (``{"clock": t}``: nothing earlier than t follows in this
partition) keeps its partitions' clocks going without records.

Pure: the time of day is an argument. What has been decided is written down before an epoch runs, so a replay decides
the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spatialstream.stages.turns import NEVER

__all__ = ["Clock", "Clocks"]


@dataclass(frozen=True, slots=True)
class Clock:
    """One partition.

    Attributes:
        t: the largest timestamp or watermark that it has given, ms.
        heard: when it last gave anything, ms of the day's clock.
    """

    t: int
    heard: int


@dataclass(frozen=True, slots=True)
class Clocks:
    """All partitions.

    Attributes:
        end: of the last epoch; never goes back.
        partitions: each by its name, such as ``"objects/0"``.
    """

    end: int = NEVER
    partitions: Mapping[str, Clock] = field(default_factory=dict)

    @classmethod
    def start(cls, names: list[str], now: int) -> Clocks:
        """Clocks of partitions that have not given anything yet."""
        return cls(NEVER, {name: Clock(NEVER, now) for name in names})

    def heard(self, given: Mapping[str, int], now: int) -> Clocks:
        """The clocks after partitions have given records or watermarks with these largest timestamps."""
        partitions = dict(self.partitions)
        for name, t in given.items():
            before = partitions.get(name)
            partitions[name] = Clock(t if before is None else max(before.t, t), now)
        return Clocks(self.end, partitions)

    def watermark(self, now: int, idle: int) -> int:
        """Up to which timestamp an epoch may reach now.

        Args:
            now: ms of the day's clock.
            idle: ms after which a silent partition is left out.
        """
        active = [clock.t for clock in self.partitions.values() if now - clock.heard < idle]
        latest = max((clock.t for clock in self.partitions.values()), default=NEVER)
        return max(self.end, min(active) - 1 if active else latest)

    def at(self, end: int) -> Clocks:
        """The clocks after an epoch that reaches up to ``end``."""
        return Clocks(max(self.end, end), self.partitions)

"""The stream's watermark: the timestamp up to which all records have arrived, over many topic partitions.

Records of one partition are assumed to be in time order; between partitions nothing is known. A partition's watermark
is the largest timestamp that it has delivered. All records before the smallest one have arrived; more records with that
very ms may follow. Epochs end there, and later records wait; so the order of the stream is that of time, in whatever
order topics are read, and the answers are those of a single ordered input.

A partition that stays silent would hold the others back indefinitely. It is ignored after ``idle`` ms, until it
delivers something again. Those records may have timestamps before the end of an epoch: such a record is *late*, and
counts from its arrival. A producer that sends watermarks (``{"clock": t}``: nothing earlier than t follows in this
partition) advances its partitions' watermarks without records.

Pure: the time of day is an argument. Decisions are written down before an epoch runs, so a replay decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spatialstream.stages.turns import NEVER

__all__ = ["PartitionWatermark", "Watermarks"]


@dataclass(frozen=True, slots=True)
class PartitionWatermark:
    """The watermark of one partition.

    Attributes:
        t: the largest timestamp or watermark that it has delivered, ms.
        heard: when it last delivered anything, ms of the time of day.
    """

    t: int
    heard: int


@dataclass(frozen=True, slots=True)
class Watermarks:
    """The watermarks of all partitions.

    Attributes:
        end: of the last epoch; never decreases.
        partitions: the watermark of each partition by its name, such as ``"objects/0"``.
    """

    end: int = NEVER
    partitions: Mapping[str, PartitionWatermark] = field(default_factory=dict)

    @classmethod
    def start(cls, names: list[str], now: int) -> Watermarks:
        """Watermarks of partitions that have not delivered anything yet."""
        return cls(NEVER, {name: PartitionWatermark(NEVER, now) for name in names})

    def heard(self, watermarks: Mapping[str, int], now: int) -> Watermarks:
        """The watermarks after partitions have delivered records or watermarks with these largest timestamps."""
        partitions = dict(self.partitions)
        for name, t in watermarks.items():
            before = partitions.get(name)
            partitions[name] = PartitionWatermark(t if before is None else max(before.t, t), now)
        return Watermarks(self.end, partitions)

    def watermark(self, now: int, idle: int) -> int:
        """The timestamp up to which an epoch may reach now.

        Args:
            now: ms of the time of day.
            idle: ms after which a silent partition is ignored.
        """
        active = [each.t for each in self.partitions.values() if now - each.heard < idle]
        latest = max((each.t for each in self.partitions.values()), default=NEVER)
        return max(self.end, min(active) - 1 if active else latest)

    def at(self, end: int) -> Watermarks:
        """The watermarks after an epoch that reaches up to ``end``."""
        return Watermarks(max(self.end, end), self.partitions)

"""The settings of a stream, and its claim to a checkpoint."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from spatialstream.balance.settings import DKM, EVERYWHERE, NEAREST, SETTLE
from spatialstream.connectors.contracts import Channel, Sink, Storage, find
from spatialstream.connectors.owned import STREAM
from spatialstream.model.errors import SettingError, StateError
from spatialstream.model.space import Space
from spatialstream.model.terms import EVERYTHING, SUBSCRIPTIONS, TermRule, check_counts
from spatialstream.model.unicode_data import UNICODE
from spatialstream.stages.division import BUCKETS
from spatialstream.stages.state import FORMAT, get_json
from spatialstream.stages.tasks import World
from spatialstream.stages.turns import Counted
from spatialstream.stages.work import WorkSettings
from spatialstream.store.codec import checked_name

__all__ = ["CHECKPOINT_SECONDS", "NOT_STORED", "StreamSettings"]

CHECKPOINT_SECONDS = 10.0
"""Approximate interval of checkpoints of a job's state: at most so much is done again after the state is lost."""

NOT_STORED = f"a stream that serves {SUBSCRIPTIONS} stores no objects"
"""Why a setting about stored objects is refused."""

_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The settings that both jobs of a stream share, and what must not change during the stream's incarnation.

    Attributes:
        name: of the stream.
        slots: number of worker slots.
        space: WGS84 or planar.
        partitions: number of router partitions.
        interval: Δ, ms.
        retention: ms that snapshot queries can look back; None keeps everything.
        rule: term extraction.
        idle: ms after which a silent topic partition no longer holds the others back.
        disorder: ms by which records of a partition may be out of order.
        epoch_records: approximate maximum of records per epoch.
        longest: maximum bytes of a record; longer ones are rejected.
        ahead: ms by which a record's timestamp may be ahead of the time of day; None: unlimited.
        two_phase: whether an SKQ asks the nearest slot first; otherwise it asks all slots at once.
        measured: whether load is measured, for a rebalancer.
        mergers: number of parts of MERGE, see :mod:`~spatialstream.stages.division`.
        nearest: where CKQs are, one of :data:`~spatialstream.balance.settings.NEAREST`; it may change, but not from or
            to DKM.
    """

    name: str
    slots: int = 4
    space: Space = field(default_factory=lambda: Space.parse("wgs84"))
    partitions: int = 2
    interval: int = 300_000
    retention: int | None = None
    rule: TermRule = field(default_factory=TermRule)
    idle: int = 500
    disorder: int = 0
    epoch_records: int = 250_000
    longest: int = 1 << 20
    ahead: int | None = None
    two_phase: bool = True
    measured: bool = True
    mergers: int = 1
    nearest: str = SETTLE

    def validate(self) -> None:
        """Check the settings.

        Raises:
            SettingError: names the invalid setting and says what would be right.
        """
        try:
            checked_name(self.name)
        except ValueError as error:
            raise SettingError("stream", str(error)) from None
        if len(self.name) > _LONGEST_NAME:
            raise SettingError("stream", f"{self.name!r} is longer than {_LONGEST_NAME} characters")
        for name, value, low, high in (
            ("slots", self.slots, 1, 1024),
            ("partitions", self.partitions, 1, 1024),
            ("mergers", self.mergers, 1, BUCKETS),
            ("epoch-records", self.epoch_records, 1, 2**31),
            ("interval", self.interval, 1, 2**62),
            ("idle", self.idle, 0, 2**62),
            ("disorder", self.disorder, 0, 2**62),
            ("longest", self.longest, 1024, 8 << 20),
        ):
            if not low <= value <= high:
                raise SettingError(name, f"{value} is out of range; give {low} to {high}")
        if self.nearest not in NEAREST:
            raise SettingError("nearest", f"{self.nearest!r} is not one of {', '.join(NEAREST)}")
        check_counts(self.rule)
        if self.retention is not None and self.retention < self.interval:
            raise SettingError("retention", f"{self.retention} ms is shorter than the interval of {self.interval} ms")
        if self.filtered and self.retention is not None:
            raise SettingError("retention", f"{NOT_STORED}; leave it out, or serve {EVERYTHING}")

    @property
    def counted(self) -> Counted | None:
        """How words are counted for ranked queries; None: they are not."""
        if not self.rule.ranking:
            return None
        return Counted(self.interval, 0 if self.retention is None else -(-self.retention // self.interval))

    @property
    def settling(self) -> bool:
        """Whether CKQs leave slots that they do not need (:mod:`~spatialstream.stages.settling`)."""
        return self.slots > 1 and self.nearest == SETTLE

    @property
    def placing(self) -> bool:
        """Whether each CKQ is on one slot (:mod:`~spatialstream.index.query_partition`)."""
        return self.nearest == DKM

    @property
    def has_words(self) -> bool:
        """Whether the jobs know words of continuous queries (:mod:`~spatialstream.stages.words`)."""
        return self.filtered or self.placing

    @property
    def filtered(self) -> bool:
        """Whether the stream serves subscriptions only: it drops objects that none can match, and stores none."""
        return self.rule.serves == SUBSCRIPTIONS

    def world(
        self, storage: Storage, channel: Channel, sink: Sink, archive: Storage | None = None, **more: Any
    ) -> World:
        """The environment of the stream's tasks.

        Args:
            storage: of the stream's state.
            channel: between router and worker.
            sink: of rows and dead letters.
            more: see :class:`~spatialstream.stages.tasks.World`.
            archive: storage of the objects that retention drops; None: they are deleted.
        """
        given = self.space, self.interval, self.retention, archive, self.mergers
        work = WorkSettings(*given, stores=not self.filtered, placing=self.placing)
        own: dict[str, Any] = {"settings": work, "rule": self.rule, "longest": self.longest}
        return World(storage=storage, channel=channel, sink=sink, **own, **more)

    def identity(self) -> dict[str, Any]:
        """The settings that must not change while there is state of the stream."""
        return {
            "format": FORMAT,
            "stream": self.name,
            "slots": self.slots,
            "space": str(self.space),
            "partitions": self.partitions,
            "mergers": self.mergers,
            "interval": self.interval,
            "retention": self.retention,
            "stop_words": sorted(self.rule.stop_words),
            "minimum_length": self.rule.minimum_length,
            "query_words": self.rule.query_words,
            "polygon_vertices": self.rule.polygon_vertices,
            "ranking": self.rule.ranking,
            "term_counts": self.rule.counts or None,
            "serves": self.rule.serves,
            "nearest": DKM if self.placing else f"{SETTLE} or {EVERYWHERE}",
            "properties": self.rule.properties.declarations or None,
            "fields": [*(self.rule.fields or ())] or None,
            "unicode": UNICODE,
        }

    def claim(self, storage: Storage) -> str:
        """Claim a checkpoint for this stream, or verify that it is this stream's.

        Returns:
            The id of the stream's incarnation, created with its first state and never again; empty if the stream was
            created before incarnations had ids.

        Raises:
            StateError: it belongs to a stream with other settings, is damaged, or contains files that are no stream's.
        """
        identity = self.identity()
        if find(storage, STREAM.marker) is None:
            if taken := STREAM.taken(storage):
                raise StateError(
                    f"{storage.place}/{taken} already exists and does not belong to a stream; give another checkpoint"
                )
            storage.create(STREAM.marker, json.dumps({**identity, "incarnation": uuid.uuid4().hex[:12]}).encode())
        way_out = "start again with another checkpoint"
        marker = get_json(storage, STREAM.marker, way_out)
        if not isinstance(marker, dict):
            raise StateError(f"{storage.place}/{STREAM.marker} is damaged; {way_out}")
        if marker.get("format") != FORMAT:
            raise StateError(f"{storage.place} was written by an incompatible version of this program; {way_out}")
        for name, value in identity.items():
            if marker.get(name) != value:
                raise StateError(f"{storage.place} belongs to a stream with {name} {marker.get(name)!r}, not {value!r}")
        return str(marker.get("incarnation", ""))

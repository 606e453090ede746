"""Copies of objects in a slot: what the slot stores, and which matches it reports.

An index that replicates (:mod:`spatialstream.index.base`) sends an object to the slot of its home and, for CRQs alone,
to the slots of other leaves. A version that puts each CKQ on one slot (:mod:`~spatialstream.index.query_partition`)
sends it, for CKQs alone, to other slots that have some. A slot receives it once, even if several of these leaves are
its own. In a block of objects the column ``leaf`` has the home, or ``~leaf`` of another leaf of the slot's (of the home
if there is none) in a row that is a copy; the schema's metadata has the version under which they were routed, because
which slot reports a match depends on it and a round may mix epochs of two versions. Blocks of other versions have
neither, and cost nothing.

- The slot of the home stores an object. It alone serves snapshot queries, CTQs and CBQs with it, and CKQs unless each
  is on one slot: then the slot that has a CKQ under the object's version reports the object for it.
- If an index replicates, all slots that have an object match it with their CRQs. Of a match that several find, the slot
  of its :meth:`~spatialstream.index.base.GlobalIndex.reporter` keeps it, and the others drop it.

While the version changes, a query is in the slots of both versions, so also where an object comes for another reason.
That does no harm: the reporter under the object's version has the query too.

Cost: none without copies; else that of finding the reporter of each match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spatialstream.connectors.contracts import Storage
from spatialstream.index.version import RoutingVersion
from spatialstream.model.arrays import Floats, Words
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.terms import TermLists
from spatialstream.stages.messages import numbers
from spatialstream.stages.versions import load_version

__all__ = ["Delivery", "leaves_of", "routed_under"]

_VERSION = b"version"
"""The key of the metadata."""

_PLAIN = -1
"""In place of a version's number: one whose index does not replicate."""

Codes = npt.NDArray[np.int32]


def routed_under(block: pa.RecordBatch, version: RoutingVersion) -> pa.RecordBatch:
    """A block of objects that says under which version they were routed, if that matters."""
    if not version.replicates:
        return block
    return block.replace_schema_metadata({**(block.schema.metadata or {}), _VERSION: str(version.number)})


def _version_of(block: pa.RecordBatch) -> int:
    return int((block.schema.metadata or {}).get(_VERSION, _PLAIN))


def leaves_of(blocks: Sequence[pa.RecordBatch]) -> Codes:
    """The leaf of each row of blocks of objects, of its home or of the copy, int32[n]."""
    leaf: Codes = np.concatenate([numbers(block, "leaf") for block in blocks])
    return np.where(leaf < 0, ~leaf, leaf)


@dataclass(frozen=True, slots=True, eq=False)
class Delivery:
    """How n objects came to a slot, of which some may be copies.

    Attributes:
        slot: the slot.
        home: bool[n], whether its home is in this slot; otherwise it is a copy.
        under: int64[n], the number of the version under which it was routed; -1: of one that does not replicate.
        versions: the versions that replicate, by number.
    """

    slot: int
    home: npt.NDArray[np.bool_]
    under: npt.NDArray[np.int64]
    versions: Mapping[int, RoutingVersion]

    @classmethod
    def of(cls, slot: int, blocks: Sequence[pa.RecordBatch], storage: Storage) -> Self | None:
        """That of blocks of objects; None if none of them was routed by an index that replicates.

        Args:
            slot: this slot.
            blocks: with the columns ``seq`` and ``leaf``.
            storage: of the versions.
        """
        versions = [_version_of(block) for block in blocks]
        if max(versions, default=_PLAIN) == _PLAIN:
            return None
        home = np.concatenate([numbers(block, "leaf") for block in blocks]) >= 0
        under = np.repeat(versions, [block.num_rows for block in blocks])
        return cls(slot, home, under, {number: load_version(storage, number) for number in set(versions) - {_PLAIN}})

    def take(self, rows: npt.NDArray[np.int64]) -> Delivery:
        """That of some of the objects."""
        return Delivery(self.slot, self.home[rows], self.under[rows], self.versions)

    def slice(self, first: int, last: int) -> Delivery:
        """That of the objects from ``first`` up to ``last`` (exclusive)."""
        return Delivery(self.slot, self.home[first:last], self.under[first:last], self.versions)

    @property
    def for_ranges(self) -> bool:
        """Whether there may be copies for CRQs."""
        return any(version.index.replicates for version in self.versions.values())

    @property
    def for_nearest(self) -> bool:
        """Whether there may be copies for CKQs, of which each is on one slot."""
        return any(version.nearest is not None for version in self.versions.values())

    def nearest_reported(self, position: Codes, at: Floats, key: Words) -> npt.NDArray[np.bool_]:
        """Which of m pairs of an object and a CKQ this slot reports: those of CKQs that are its own under the version.

        Args:
            position: int32[m], the object of each.
            at: float64[m, 2], the place of the CKQ.
            key: uint64[m], its key (:mod:`~spatialstream.index.query_partition`).
        """
        mine = self.home[position]
        for number, version in self.versions.items():
            some = np.flatnonzero(self.under[position] == number)
            if version.nearest is not None and len(some):
                subset = version.nearest.subsets_of(at[some], key[some])
                mine[some] = version.nearest.slot[subset] == self.slot
        return mine

    def reported(self, objects: ObjectBatch, row: Codes, keywords: TermLists, query: Codes) -> npt.NDArray[np.bool_]:
        """Which of m matches this slot reports, bool[m]; arguments as those of :meth:`GlobalIndex.reporter`."""
        mine = np.ones(len(row), np.bool_)
        for number, version in self.versions.items():
            some = np.flatnonzero(self.under[row] == number)
            if len(some):
                leaf = version.index.reporter(objects, row[some], keywords, query[some])
                mine[some] = version.mapping[leaf] == self.slot
        return mine

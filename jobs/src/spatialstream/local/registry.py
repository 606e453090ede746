"""The query registry: which ids are in use, and until when.

Every query is assigned a *number*, by which all structures identify it; numbers ascend in the order of registration. An
id is in use from the query's t until its lifetime ends: for a continuous query while now < min(t + τ, cancellation), or
for one that reports at steps, such as a CTQ, while now <= t + τ and now < cancellation (its last step may fall on
t + τ); for a snapshot query at its own t only.

If an identical query arrives while its id is in use, it is not an error but a repetition, because producers retry. For
this the registry stores a digest of each query (:mod:`spatialstream.local.contents`).

The registry is a log-structured set: tiers of (sorted 64-bit hashes of ids, ids, number, until, digest of the content),
each four times smaller than the previous one, and a table of lifetimes that were shortened by cancellations. Looking up
a batch of n ids costs a vectorised binary search in each tier; ids are also compared as bytes, not only by hash. The
hashes of a tier are keyed with the tier's own seed (:mod:`spatialstream.model.hashing`), so that an attacker cannot
choose ids that all have to be compared. Ids that are no longer in use are dropped when tiers merge. Cost: O(n log N)
per batch, O(log N) rewrites of an entry over its lifetime; 40 bytes and the id for each query whose id is in use, or
was within the last five minutes. A query without a duration stays until it is cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spatialstream.local.arrays import Array, Ints, Words
from spatialstream.local.contents import content_digests
from spatialstream.local.state import Manifest, ReadFile, WriteFile
from spatialstream.local.wordtable import from_arrow, to_arrow
from spatialstream.model.hashing import Seed, distinct, keyed_hashes, seed_of
from spatialstream.model.kinds import CANCEL, IS_CONTINUOUS, having
from spatialstream.model.queries import QueryBatch
from spatialstream.model.times import TIME_LIMIT

__all__ = ["Admission", "QueryRegistry", "last_instant"]

_STEPS = having(lambda kind: kind.steps)
_TIER_RATIO = 4
_SHORTENED_LIMIT = 4096

_KEPT_AFTERWARDS = 300_000
"""How long a query is remembered after its id was last in use, in ms of stream time. Until then, a producer may safely
send it again; later, it would be answered twice or registered again, and without a duration stay active forever."""


def last_instant(queries: QueryBatch) -> Ints:
    """The last ms at which each query's id is in use, without cancellation."""
    end = queries.t + queries.duration
    return np.where(IS_CONTINUOUS[queries.code], np.where(_STEPS[queries.code], end, end - 1), queries.t)


@dataclass(frozen=True, slots=True)
class _Tier:
    name: str | None  # of its file; None while it is only in memory
    seed: Seed
    hashes: Words
    ids: pa.StringArray
    number: Ints
    until: Ints
    content: Words

    @classmethod
    def of(cls, ids: pa.StringArray, number: Any, until: Any, content: Any) -> _Tier:
        seed = seed_of(*from_arrow(ids))
        hashes = keyed_hashes(ids, seed)
        order = np.lexsort((number, hashes))
        return cls(None, seed, hashes[order], ids.take(pa.array(order)), number[order], until[order], content[order])


@dataclass(frozen=True, slots=True)
class Admission:
    """The outcome of admitting a batch of queries and cancellations.

    Attributes:
        number: int64[n], the number of each row: of a query, its own; of a cancellation, that of the cancelled query;
            -1 if the row is rejected or repeats a query.
        reasons: the reason of each rejected row, by row.
        repeated: number of rows that repeat queries admitted before.
    """

    number: Ints
    reasons: dict[int, str] = field(default_factory=dict)
    repeated: int = 0


class _Holder(NamedTuple):
    """The latest query of an id.

    Attributes:
        number: its number.
        until: the last instant at which the id is in use.
        continuous: whether it is a continuous query.
        content: the digest of its content.
    """

    number: int
    until: int
    continuous: bool
    content: bytes


class QueryRegistry:
    """Admits queries and cancellations in stream order and numbers them."""

    def __init__(self) -> None:
        self._tiers: list[_Tier] = []
        self._shortened: dict[int, int] = {}  # number -> last instant of a cancelled query

    @property
    def nbytes(self) -> int:
        """Memory of the tiers, O(tiers)."""
        return sum(
            tier.hashes.nbytes + tier.ids.nbytes + tier.number.nbytes + tier.until.nbytes + tier.content.nbytes
            for tier in self._tiers
        )

    def admit(self, queries: QueryBatch, number: Ints) -> Admission:
        """Admit a batch, in order.

        Each row is checked against the rows admitted before it, even if these have a later t: a late query is rejected
        if the last use of its id ends at its t or later. An id whose use ended five minutes before the earliest t of a
        later batch may have been dropped when a late query claims it; then the id is free.

        Args:
            queries: n queries and cancellations.
            number: int64[n], the number to assign to each row if admitted: ascending, and above all previous ones.
        """
        n, number = len(queries), number.copy()
        until, content = last_instant(queries), content_digests(queries)
        reasons: dict[int, str] = {}
        repeated = 0
        if n == 0:
            return Admission(number)
        earlier = self._find(queries.ids)
        same, _ = distinct(queries.ids)
        # rows with a known id, rows that share an id and cancellations are processed one by one; all others are new
        special = (np.bincount(same)[same] > 1) | (queries.code == CANCEL)
        special[list(earlier)] = True
        current: dict[str, _Holder] = {}  # of this batch
        for i in np.flatnonzero(special).tolist():
            name = queries.ids[i].as_py()
            t, code = int(queries.t[i]), int(queries.code[i])
            holder = current.get(name) or earlier.get(i)
            if holder is not None and holder.number in self._shortened:
                holder = holder._replace(until=min(holder.until, self._shortened[holder.number]))
            active = holder is not None and t <= holder.until
            if code == CANCEL:
                if holder is None or not active or not holder.continuous:
                    reasons[i] = f"id: no continuous query {name!r} is active"
                    number[i] = -1
                    continue
                number[i] = holder.number
                self._shortened[holder.number] = t - 1
            elif holder is not None and active:
                number[i] = -1
                if holder.content == content[i].tobytes():
                    repeated += 1
                    continue
                last = "it is cancelled" if holder.until > TIME_LIMIT else holder.until
                reasons[i] = f"id: {name!r} is in use until {last}; give another id, or cancel that query first"
            else:
                current[name] = _Holder(int(number[i]), int(until[i]), bool(IS_CONTINUOUS[code]), content[i].tobytes())
        admitted = np.flatnonzero((number >= 0) & (queries.code != CANCEL))
        if len(admitted):
            kind = IS_CONTINUOUS[queries.code[admitted]].astype(np.int64)
            ids = queries.ids.take(pa.array(admitted))
            # the last bit of the stored number marks continuous queries, the only ones that can be cancelled
            self._tiers.append(_Tier.of(ids, number[admitted] * 2 + kind, until[admitted], content[admitted]))
        self._merge(int(queries.t.min()))
        return Admission(number, reasons, repeated)

    def _find(self, ids: pa.StringArray) -> dict[int, _Holder]:
        """The latest holder of each known id, by row."""
        holders: dict[int, _Holder] = {}
        for tier in self._tiers:
            hashes = keyed_hashes(ids, tier.seed)
            low = np.searchsorted(tier.hashes, hashes, "left")
            high = np.searchsorted(tier.hashes, hashes, "right")
            for i in np.flatnonzero(high > low).tolist():
                name = ids[i].as_py()
                for j in range(int(high[i]) - 1, int(low[i]) - 1, -1):
                    if tier.ids[j].as_py() == name:  # the latest of this name, which may have been in use many times
                        stored = int(tier.number[j])
                        if i not in holders or stored >> 1 > holders[i].number:
                            content = tier.content[j].tobytes()
                            holders[i] = _Holder(stored >> 1, int(tier.until[j]), bool(stored & 1), content)
                        break
        return holders

    def _merge(self, now: int) -> None:
        """Merge small tiers into larger ones, without ids whose use ended long before ``now``."""
        total = sum(len(tier.hashes) for tier in self._tiers)
        # the table of shortened lifetimes is written with every manifest, so it must stay small relative to the tiers
        everything = len(self._shortened) > _SHORTENED_LIMIT + total // 16
        first, size = len(self._tiers), 0
        while first and (everything or not size or size * _TIER_RATIO >= len(self._tiers[first - 1].hashes)):
            first -= 1
            size += len(self._tiers[first].hashes)
        if everything or len(self._tiers) - first > 1:
            self._tiers[first:] = [self._merged(self._tiers[first:], now)]
        if everything:
            self._shortened.clear()  # the remaining entries belong to ids that have been dropped

    def _merged(self, tiers: list[_Tier], now: int) -> _Tier:
        """Merge several tiers, applying shortened lifetimes and dropping ids that are no longer in use."""
        columns = ("number", "until", "content")
        number, until, content = (np.concatenate([getattr(tier, name) for tier in tiers]) for name in columns)
        ids = pa.concat_arrays([tier.ids for tier in tiers])
        shortened = np.fromiter(self._shortened, np.int64, len(self._shortened))
        for i in np.flatnonzero(np.isin(number >> 1, shortened)).tolist():
            until[i] = min(int(until[i]), self._shortened.pop(int(number[i]) >> 1))
        live = np.flatnonzero(until + _KEPT_AFTERWARDS >= now)
        return _Tier.of(ids.take(pa.array(live)), number[live], until[live], content[live])

    def checkpoint(self, write: WriteFile) -> Manifest:
        """See :mod:`spatialstream.local.state`."""
        for i, tier in enumerate(self._tiers):
            if tier.name is None:
                offsets, data = from_arrow(tier.ids)
                arrays: dict[str, Array] = {
                    "seed": tier.seed,
                    "hashes": tier.hashes,
                    "offsets": offsets,
                    "data": data,
                    "number": tier.number,
                    "until": tier.until,
                    "content": tier.content,
                }
                self._tiers[i] = replace(tier, name=write("registry", arrays))
        return {"tiers": [tier.name for tier in self._tiers], "shortened": sorted(self._shortened.items())}

    @classmethod
    def restore(cls, manifest: Manifest, read: ReadFile) -> QueryRegistry:
        """See :mod:`spatialstream.local.state`."""
        self = cls()
        for name in manifest["tiers"]:
            arrays, _ = read(name)
            ids = to_arrow(arrays["offsets"], arrays["data"])
            columns = (arrays[column] for column in ("number", "until", "content"))
            self._tiers.append(_Tier(name, arrays["seed"], arrays["hashes"], ids, *columns))
        self._shortened = {int(number): int(t) for number, t in manifest["shortened"]}
        return self

"""What CKQs cost that settle, beside those that stay on all slots.

``python -m tests.benchmarks.bench_settling [queries [objects]]``: eight slots and MERGE in one process. Each CKQ has k
= 10 and three words of which an object must have one. Objects come in epochs of 10,000. After the last epoch the memory
of the slots' queries is added up; over the later half, the pairs that slots send to MERGE, and the CPU time of all
slots.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.index.version import RoutingVersion, build
from spatialstream.local.nearest import ckq, skyband
from spatialstream.local.nearest.ckq import ContinuousNearestIndex
from spatialstream.local.nearest.skyband import Arrivals, NearestMerger
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.queries import QueryBatch
from spatialstream.model.terms import TermLists
from spatialstream.stages.settling import drop_distant
from tests.benchmarks.bench_ckq_ctq import EPOCH, arrivals_of, query_batch
from tests.benchmarks.workload import SPACE, objects, queries

SLOTS = 8
FLOOR = 0.25
"""Share of state and of pairs that may be left."""


def workload(count: int) -> QueryBatch:
    """CKQs, of whose three words one suffices."""
    columns = queries(objects(100_000, seed=1), count, seed=2, keywords=(3, 3))
    words = columns.keywords
    n, sizes = len(words.vocabulary), np.diff(words.offsets)
    place = np.arange(len(words.codes)) - np.repeat(words.offsets[:-1], sizes)
    literals = [f"{group}|{word}" for group in range(int(sizes.max())) for word in words.vocabulary.to_pylist()]
    keywords = TermLists(words.offsets, (words.codes + n * place).astype(np.int32), pa.array(literals, pa.string()))
    batch = query_batch(columns, code=4, k=10, window=-1, step=-1)
    return replace(batch, keywords=keywords.compact())


def streamed(batch: QueryBatch, version: RoutingVersion, stream: ObjectBatch, *, settling: bool) -> dict[str, float]:
    """State in bytes, pairs, seconds, and rows."""
    number = np.arange(len(batch), dtype=np.int64)
    slots, merger = [ContinuousNearestIndex(SPACE) for _ in range(SLOTS)], NearestMerger(SPACE)
    for index in (*slots, merger):
        index.register(number, batch)
    pairs = seconds = rows = 0.0
    radii = merger.radii()
    for first in range(0, len(stream), EPOCH):
        part = stream.take(np.arange(first, min(len(stream), first + EPOCH)))
        home, late, arrivals = version.route_objects(part), first >= len(stream) // 2, list[Arrivals]()
        for slot, index in enumerate(slots):
            mine, began = part.take(np.flatnonzero(home == slot)), time.process_time()
            if settling and len(radii[0]):
                index.shrink(*radii, await_others=False)
                drop_distant(slot, index, radii[0], [version])
            found = list(index.match(mine))
            index.expire(int(part.t[-1]))
            seconds += late * (time.process_time() - began)
            arrivals += [arrivals_of(mine, each) for each in found]
        sent = Arrivals.concat(arrivals)
        pairs += late * len(sent)
        rows += sum(len(each) for each in merger.changes(sent, int(part.t[-1])))
        radii = merger.radii()
    return {"state": float(sum(index.nbytes for index in slots)), "pairs": pairs, "seconds": seconds, "rows": rows}


def run(count: int = 100_000, n: int = 400_000) -> list[dict[str, Any]]:
    """Every figure as (name, value, unit, floor, note)."""
    for module in (ckq, skyband):
        module.prepare()
    batch, stream = workload(count), objects(n, seed=3)
    version = build(SPACE, objects(20_000, seed=4), batch.take(np.arange(2_000)), 64, SLOTS)
    apart = streamed(batch, version, stream, settling=True)
    everywhere = streamed(batch, version, stream, settling=False)
    if apart["rows"] != everywhere["rows"]:
        raise AssertionError(f"{apart['rows']} rows of queries that settle, {everywhere['rows']} of others")
    found = []
    for what, unit in (("state", "MB"), ("pairs", "pairs"), ("seconds", "s")):
        scale = 1e6 if what == "state" else 1.0
        note = f"{apart[what] / scale:,.4g} of {everywhere[what] / scale:,.4g} {unit}"
        floor = "" if what == "seconds" else FLOOR
        name = f"CKQ {count:,} on {SLOTS} slots: {what} of those that settle"
        found.append({"name": name, "value": apart[what] / everywhere[what], "unit": "s", "floor": floor, "note": note})
    return found


def main() -> None:
    """Print the figures."""
    for row in run(*map(int, sys.argv[1:])):
        print(f"{row['name']:<60} {row['value']:>8.3f} {row['note']}")


if __name__ == "__main__":
    main()

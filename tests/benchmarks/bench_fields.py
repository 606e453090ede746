"""What keeping fields (``--fields``) costs, on one core: ``python -m tests.benchmarks.bench_fields [objects]``.

Objects are those of the other benchmarks, but with texts of 24 words, and one of 5 priorities. Each figure is there
without fields and with two, text and priority. Figures are CPU times.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spatialstream.local.range.crq import ContinuousRangeIndex
from spatialstream.local.snapshot import segments
from spatialstream.local.snapshot.segments import SegmentStore
from spatialstream.model.kinds import CODE
from spatialstream.model.objects import ObjectBatch
from spatialstream.model.properties.declared import Properties
from spatialstream.model.queries import Everything, Lifetime, Predicate, Query, QueryBatch, nobody
from spatialstream.model.regions import Box
from spatialstream.model.terms import TermRule
from spatialstream.records.decode import decode_objects, prepare
from spatialstream.stages.kinds import CONTINUOUS, SNAPSHOT
from spatialstream.stages.kinds.base import Arrived
from spatialstream.stages.load import Load
from tests.benchmarks.workload import SIDE, SPACE, objects, queries

Row = dict[str, Any]

PLAIN = TermRule(properties=Properties.parse(["priority:number"]))
KEEPING = replace(PLAIN, fields=("text", "priority"))
EPOCH = 50_000
CRQS = 200_000
ASKED = 2_000
WIDE = 0.05
"""Side of the regions of SRQs whose rows are many: 0.25 % of the space."""


def lines_of(batch: ObjectBatch) -> bytes:
    """The objects as JSON Lines."""
    made, every = [], [batch[i] for i in range(len(batch))]
    for i, each in enumerate(every):
        said = " ".join(word for other in (each, every[i - 1], every[i - 2]) for word in other.terms)
        record = {"id": each.id, "t": each.t, "x": each.x, "y": each.y, "text": said, "priority": i % 5}
        made.append(json.dumps(record))
    return "\n".join(made).encode()


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def run(n: int = 400_000) -> list[Row]:
    """Every figure as (name, value, unit, floor, note)."""
    prepare()
    segments.prepare()
    blocks = [lines_of(objects(EPOCH, seed=1 + start, start=start)) for start in range(0, n, EPOCH)]
    asked = queries(objects(EPOCH, seed=1), CRQS, seed=3)
    return [row for rule in (PLAIN, KEEPING) for row in figures(blocks, asked, rule)]


def figures(blocks: list[bytes], asked: Any, rule: TermRule) -> list[Row]:
    """The figures with one rule."""
    name, result = "with fields" if rule.fields else "without", list[Row]()

    def row(what: str, value: float, unit: str, note: str = "") -> None:
        result.append({"name": f"{what}, {name}", "value": round(value, 3), "unit": unit, "floor": None, "note": note})

    decode_objects(blocks[0], 1, SPACE, rule)
    batches = list[ObjectBatch]()
    spent = cpu(lambda: batches.extend(decode_objects(each, 1, SPACE, rule).batch for each in blocks))
    n = sum(map(len, batches))
    row("decode JSON Lines", n / spent, "objects/s")
    kept = [each.stored.column for each in batches if each.stored.column is not None]
    if kept:
        row("fields of an object as JSON", sum(each.nbytes - 8 * len(each) for each in kept) / n, "bytes/object")
    row("block between stages", sum(each.to_arrow().nbytes for each in batches) / n, "bytes/object")
    store = SegmentStore(SPACE)
    row("keep in segments, with merges", n / cpu(lambda: [store.append(each) for each in batches]), "objects/s")
    row("kept", store.nbytes / n, "bytes/object", f"{store.segments} segments")
    row(*snapshot_rows(store, asked, SIDE))
    row(*snapshot_rows(store, asked, WIDE))
    row(*continuous_rows(batches[0], asked))
    return result


def snapshot_rows(store: SegmentStore, asked: Any, side: float) -> tuple[str, float, str, str]:
    """Objects in rows of SRQs without keywords."""
    stage, found, count = SNAPSHOT["SRQ"], 0, ASKED if side == SIDE else ASKED // 20
    made = []
    for x, y in asked.centres[:count].tolist():
        box = Box(x - side / 2, y - side / 2, x + side / 2, y + side / 2)
        made.append(Query("q", 2**40, Predicate(box), Everything(), Lifetime(2**41)))

    def ask() -> None:
        nonlocal found
        for query in made:
            part = {"number": np.zeros(0), **stage.search(store, query, -1, alone=True, within=np.inf)}
            found += len(part["t"])
            stage.answer(query, [part], SPACE)

    ask()
    found = 0
    spent = cpu(ask)
    return f"SRQ of {100 * side**2:g} %", found / spent, "objects/s", f"{found / count:.0f} objects a row"


def continuous_rows(batch: ObjectBatch, asked: Any) -> tuple[str, float, str, str]:
    """Rows of CRQs, with their matching."""
    index, m = ContinuousRangeIndex(SPACE), len(asked)
    zeros, absent = np.zeros(m, np.int64), np.full(m, -1)
    times = zeros, np.full(m, 2**41), absent, absent
    ids = pa.array([f"q{i}" for i in range(m)])
    code, k = np.full(m, CODE["CRQ"], np.int8), np.zeros(m, np.int32)
    columns = asked.regions, asked.keywords, nobody(m), nobody(m)
    index.register(np.arange(m), QueryBatch(ids, code, *times, k, np.zeros((m, 2)), *columns))
    rows = 0

    def match() -> None:
        nonlocal rows
        arrived = Arrived(batch, np.arange(len(batch)), SPACE, 1, False, Load())
        rows = sum(len(content) for kind, content in CONTINUOUS["CRQ"].match(index, arrived) if kind == "lines")

    match()
    spent = cpu(match)
    return f"CRQ, {m:,} queries, matched", rows / spent, "rows/s", f"{rows / len(batch):.1f} rows an object"


def main() -> None:
    for each in run(*map(int, sys.argv[1:])):
        print(f"{each['name']:<60} {each['value']:>15,.1f} {each['unit']:<14} {each['note']}")


if __name__ == "__main__":
    main()

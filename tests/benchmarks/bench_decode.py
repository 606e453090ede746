"""Speed of decoding on one core: JSON Lines to terms, and to queries: ``python -m tests.benchmarks.bench_decode``.

Figures are CPU times of one thread, the best of several runs, for the default workload as JSON Lines. pyarrow, which
parses the same bytes into columns without term extraction, is measured in the same run.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from spatialstream.model.kinds import QueryType
from spatialstream.records import decode, decode_queries
from spatialstream.records.tokens import tokenise
from tests.benchmarks.workload import SPACE, objects, queries

Row = dict[str, Any]

_RUNS = 7
_SCHEMA = pa.schema(
    [("id", pa.string()), ("t", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("text", pa.string())]
)


def best(run: Callable[[], object]) -> float:
    """CPU seconds of the fastest of several runs."""
    seconds = []
    for _ in range(_RUNS):
        start = time.thread_time()
        run()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def object_lines(n: int, digits: int = 6) -> tuple[bytes, pa.StringArray]:
    """n objects of the default workload as JSON Lines, and their texts."""
    batch = objects(n, seed=1)
    vocabulary = batch.terms.vocabulary.to_pylist()
    codes = batch.terms.codes.reshape(n, -1).tolist()
    texts = [" ".join(vocabulary[code] for code in row) for row in codes]
    records = zip(batch.ids.to_pylist(), batch.t.tolist(), batch.x.tolist(), batch.y.tolist(), texts, strict=True)
    lines = (
        json.dumps({"id": i, "t": t, "x": round(x, digits), "y": round(y, digits), "text": s})
        for i, t, x, y, s in records
    )
    return ("\n".join(lines) + "\n").encode(), pa.array(texts)


def query_lines(n: int) -> bytes:
    """n continuous range-keyword queries of the default workload as JSON Lines."""
    columns = queries(objects(100_000, seed=1), n, seed=2)
    kind = QueryType.CRQ.value
    lines = (
        json.dumps(
            {
                "id": f"q{i}",
                "type": kind,
                "t": 0,
                "region": {"box": columns.regions.shape[i].tolist()},
                "keywords": columns.keywords[i],
                "duration": "2h",
            }
        )
        for i in range(n)
    )
    return ("\n".join(lines) + "\n").encode()


def parse_with_pyarrow(data: bytes) -> pa.Table:
    """The same bytes as columns of pyarrow, on one thread."""
    reading = pj.ReadOptions(use_threads=False, block_size=len(data))
    return pj.read_json(io.BytesIO(data), reading, pj.ParseOptions(explicit_schema=_SCHEMA))


def split_with_pyarrow(texts: pa.StringArray) -> pa.ListArray:
    """Terms by pyarrow's own functions (ASCII lower case, no sets, no codes)."""
    return pc.split_pattern_regex(pc.utf8_lower(pc.utf8_normalize(texts, form="NFKC")), r"\W+")


def spoil(data: bytes, every: int) -> bytes:
    """The same lines, each ``every``-th cut short."""
    lines = data.split(b"\n")
    lines[::every] = [line[: len(line) // 2] for line in lines[::every]]
    return b"\n".join(lines)


def run(n: int = 50_000) -> list[Row]:
    """All figures, for n records."""
    decode.prepare()
    data, texts = object_lines(n)
    exact, _ = object_lines(n, digits=17)
    spoilt, asked = spoil(data, 100), query_lines(n)
    german = pa.array([text.replace("a", "ä").replace("o", "Ö") for text in texts.to_pylist()])
    measured: list[tuple[str, str, Callable[[], object], int, str]] = [
        ("JSON to terms", "objects/s", lambda: decode.decode_objects(data, 1, SPACE), 400_000, "6 decimals"),
        ("JSON to terms, exact doubles", "objects/s", lambda: decode.decode_objects(exact, 1, SPACE), 0, "17 digits"),
        ("JSON to terms, 1 % malformed", "objects/s", lambda: decode.decode_objects(spoilt, 1, SPACE), 0, ""),
        ("pyarrow.json, columns only", "objects/s", lambda: parse_with_pyarrow(data), 0, "for comparison"),
        ("tokeniser", "objects/s", lambda: tokenise(texts), 0, "8 terms each"),
        ("tokeniser, a third of the letters not ASCII", "objects/s", lambda: tokenise(german), 0, ""),
        ("pyarrow.compute, NFKC, lower, split", "objects/s", lambda: split_with_pyarrow(texts), 0, "for comparison"),
        ("JSON to CRQs", "queries/s", lambda: decode_queries.decode_queries(asked, 1, SPACE), 300_000, "exact doubles"),
    ]
    return [
        {"name": name, "value": float(f"{n / best(work):.4g}"), "unit": unit, "floor": floor or "", "note": note}
        for name, unit, work, floor, note in measured
    ]


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:<45}{row['value']:>12,.0f} {row['unit']:<10} {row['floor']!s:>8}  {row['note']}")

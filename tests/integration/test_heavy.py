"""Turns that once worked for so long that they never ended: few queries with much work for each object, long answers.

At length they have the sizes with which that was found; with each change the same shapes are small.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spatialstream.model.space import Space
from spatialstream.model.terms import ANY_WORDS, TermRule
from spatialstream.spark.run import RunSettings, RunSummary, run
from tests.lengths import AT_LENGTH

SQUARE = Space.planar(0.0, 0.0, 1.0, 1.0)
EVERYWHERE = {"box": [0, 0, 1, 1]}


def ran(
    spark: SparkSession, folder: Path, objects: list[dict[str, Any]], queries: list[dict[str, Any]], rule: TermRule
) -> tuple[RunSummary, list[dict[str, Any]]]:
    """Run a stream in one epoch; returns the rows as well."""
    for name, records in (("objects", objects), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    given = (folder / "objects.jsonl",), (folder / "queries.jsonl",), folder / "out"
    summary = run(RunSettings(*given, slots=2, space=SQUARE, rule=rule, epoch_records=10**9), spark)
    lines = (
        line for path in sorted((folder / "out/results").glob("*.jsonl")) for line in path.read_text().splitlines()
    )
    return summary, [json.loads(line) for line in lines]


@pytest.mark.timeout(3_600)
def test_queries_of_thousands_of_words_over_objects_that_have_nearly_all_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    asked, count = (400, 1_000) if AT_LENGTH else (12, 60)
    groups = [[f"g{group}w{word}" for word in range(61)] for group in range(64)]
    lacking = " ".join(word for group in groups for word in group[:-1])  # no group is complete: all words are looked at
    objects = [
        {"id": f"o{i}", "t": 1_000 + i, "x": i / count, "y": 0.5, "text": f"{lacking} g63w60" if i == 7 else lacking}
        for i in range(count)
    ]
    queries = [
        {"id": f"q{i}", "type": "CRQ", "t": 1, "region": EVERYWHERE, "any": groups[i % 64 :] + groups[: i % 64]}
        for i in range(asked)
    ]
    summary, rows = ran(spark, tmp_path, objects, queries, ANY_WORDS)
    assert summary.complete
    assert summary.rejected == 0
    assert sorted((row["query"], row["object"]["id"]) for row in rows) == sorted((f"q{i}", "o7") for i in range(asked))


@pytest.mark.timeout(3_600)
def test_all_words_of_many_megabytes_of_text_asked_for_by_many_queries(spark: SparkSession, tmp_path: Path) -> None:
    megabytes, words = (32, 100_000) if AT_LENGTH else (1, 10_000)
    chance = random.Random(4)
    objects, counts = list[dict[str, Any]](), Counter[str]()
    for i in range(megabytes * 1_000):
        text = {f"word{chance.randrange(words)}" for _ in range(110)}
        counts.update(text)
        objects.append({"id": f"o{i}", "t": 1_000, "x": chance.random(), "y": 0.5, "text": " ".join(sorted(text))})
    objects.append({"id": "last", "t": 2_500, "x": 0.5, "y": 0.5, "text": "after all steps"})
    times = {"t": 500, "duration": 1_500, "window": 1_000, "step": 500}
    queries = [{"id": f"q{i}", "type": "CTQ", "region": EVERYWHERE, "k": 2**31 - 1, **times} for i in range(20)]
    summary, rows = ran(spark, tmp_path, objects, queries, TermRule())
    assert summary.complete
    assert summary.rejected == 0
    expected = [
        {"term": term, "count": count} for term, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]
    assert sorted((row["query"], row["t"]) for row in rows) == sorted(
        (f"q{i}", t) for i in range(20) for t in (1_000, 1_500, 2_000)
    )
    wrong = [(row["query"], row["t"]) for row in rows if row["terms"] != (expected if row["t"] < 2_000 else [])]
    assert not wrong

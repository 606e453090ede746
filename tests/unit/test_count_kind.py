"""A kind of query that is not in the product works in all ways in which queries are answered.

Tables of kinds are read when they are imported, so these tests run in a process that begins with the kind in its
environment: this file once more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from spatialstream.local.indexes import INDEXES
from spatialstream.model.kinds import KINDS
from spatialstream.model.plugins import VARIABLE
from spatialstream.model.queries import Query, QueryBatch, parse_query
from spatialstream.model.schema import QUERY_JSON, RESULT_JSON
from spatialstream.model.space import WGS84
from spatialstream.oracle.kinds import ORACLES
from spatialstream.records.decode_queries import decode_queries
from spatialstream.report.answer import answer_html
from spatialstream.report.payload import payload, sentence
from spatialstream.stages.kinds import CONTINUOUS, SNAPSHOT
from spatialstream.stream.settings import StreamSettings
from tests.lengths import examples
from tests.simulation import IDLE
from tests.streams import PLANE, Stream, query_record, random_stream, streams
from tests.unit.stages import test_exactness
from tests.unit.stages.test_exactness import SHAPES, run
from tests.unit.stream.test_asked import Asked
from tests.unit.stream.test_stream import differences, in_order, simulated

PACKAGE = "tests.count_kind"
COUNTS = ("SCQ", "CCQ")
here = pytest.mark.skipif(os.environ.get(VARIABLE) != PACKAGE, reason="runs in a process that has the kind")


@pytest.mark.skipif(os.environ.get(VARIABLE) == PACKAGE, reason="is this process")
@pytest.mark.timeout(900)
def test_a_kind_in_a_package_of_its_own() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", __file__]
    done = subprocess.run(command, env=os.environ | {VARIABLE: PACKAGE}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed, 1 skipped" in done.stdout


def test_each_table_has_a_row_for_each_kind() -> None:
    once = {kind.type for kind in KINDS if not kind.continuous}
    always = {kind.type for kind in KINDS if kind.continuous}
    assert (set(SNAPSHOT), set(CONTINUOUS), set(ORACLES)) == (once, always, once | always)
    assert {kind.index for kind in KINDS} == set(INDEXES)
    assert len({kind.index for kind in KINDS if kind.continuous}) == len(always)
    assert len({(kind.selection, kind.continuous) for kind in KINDS}) == len(KINDS)
    assert len({stage.partial for stage in SNAPSHOT.values()}) == len(once)


@here
@settings(max_examples=examples(60, 600), suppress_health_check=[HealthCheck.too_slow])
@given(streams(types=[*COUNTS, "SRQ", "CTQ"]), SHAPES)
def test_embedded(stream: Stream, shape: test_exactness.Shape) -> None:
    assert test_exactness.differences(stream, run(stream, shape)) == []


@here
def test_the_rows_are_what_they_say() -> None:
    stream = random_stream(5, 300, 20, PLANE, types=COUNTS)
    rows = run(stream, test_exactness.Shape(slots=3, leaves=16)).rows
    assert {row["type"] for row in rows} == {*COUNTS}
    assert max(row["count"] for row in rows) > 10
    assert {tuple(row) for row in rows} == {("query", "type", "t", "count")}


@here
@pytest.mark.parametrize("seed", range(4))
def test_live_while_versions_change_and_processes_die(seed: int) -> None:
    stream = in_order(random_stream(seed, 200, 40, [WGS84, PLANE][seed % 2], types=[*COUNTS, "CRQ"]))
    simulation = simulated(stream, 15 + seed, chaos=0.005, rebalances=0.5, disturbances=0.02)
    assert differences(stream, simulation) == []


@here
def test_asked_while_versions_change(tmp_path: Path) -> None:
    drawn = random_stream(3, 500, 40, WGS84, types=["SCQ"])
    objects = sorted(drawn.objects, key=lambda each: each.t)
    queries = [query for query in drawn.queries if isinstance(query, Query)]
    setup = StreamSettings("s", slots=3, space=WGS84, idle=IDLE, retention=600_000, interval=60_000, epoch_records=100)
    simulation = Asked(tmp_path, WGS84, objects, queries, setup, 3, chaos=0.004)
    simulation.run(rebalances=0.6)
    assert simulation.wrong == []
    assert simulation.answered > 100


@here
def test_records_and_columns() -> None:
    stream = random_stream(1, 50, 30, PLANE, types=COUNTS)
    queries = [query for query in stream.queries if isinstance(query, Query)]
    batch = QueryBatch.from_arrow(QueryBatch.of(queries).to_arrow())
    assert [batch[i] for i in range(len(batch))] == queries
    lines = [json.dumps(query_record(query)) for query in queries]
    decoded = decode_queries("\n".join(lines).encode() + b"\n", space=PLANE)
    assert [decoded.batch[i] for i in range(len(decoded.batch))] == queries
    assert [parse_query(json.loads(line), PLANE) for line in lines] == queries


@here
def test_a_report_has_the_counts() -> None:
    stream = random_stream(5, 100, 10, PLANE, types=COUNTS)
    queries = [query_record(query) for query in stream.queries]
    rows = run(stream, test_exactness.Shape()).rows
    page = payload(PLANE, queries, [], rows)
    assert page["totals"] == {kind: sum(row["type"] == kind for row in rows) for kind in COUNTS}
    shown = {(query["id"], row["t"], row["value"]) for query in page["queries"] for row in query["rows"]}
    assert shown == {(row["query"], row["t"], row["count"]) for row in rows}
    record = next(each for each in queries if each["id"] == rows[-1]["query"] and "region" in each)
    assert f"count: {rows[-1]['count']}, as of" in answer_html(rows[-1:], record, PLANE)


@here
def test_people_and_programs_are_told() -> None:
    assert {*COUNTS} <= {*QUERY_JSON["properties"]["type"]["enum"]}
    assert {"required": ["count"]} in RESULT_JSON["oneOf"]
    query = parse_query({"id": "q", "t": 0, "type": "SCQ", "region": {"box": [0, 0, 1, 1]}, "duration": "1m"}, WGS84)
    assert isinstance(query, Query)
    assert sentence(query, 0, WGS84).startswith("How many objects in the box from")

"""Pastri's figures (``tests/benchmarks/paper/pastri.py``): a tiny run of some, and what is judged."""

from __future__ import annotations

import pytest

from spatialstream.model.space import WGS84
from spatialstream.oracle import answers
from tests.benchmarks.paper import page, pastri
from tests.benchmarks.paper.__main__ import DOCS
from tests.benchmarks.peers import workload
from tests.benchmarks.peers.workload import World
from tests.lengths import AT_LENGTH

SMALL = 0.001


@pytest.mark.parametrize("figure", [*pastri.FIGURES] if AT_LENGTH else ["12", "18", "20"])
def test_a_figure_is_measured_and_judged(figure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pastri.lucene, "jars", lambda: None)
    for panel, found in pastri.FIGURES[figure](SMALL).items():
        measure = pastri.CLAIMS[panel][0]
        assert all(counts[measure] > 0 for points in found.values() for counts in points.values())
        assert pastri.verdict(panel, found).startswith(panel)
        assert len(pastri.table(panel, found).splitlines()) > 2


def test_rows_are_the_oracle_s_with_one_table_of_all_objects() -> None:
    world = World(workload.objects(400))
    queries = workload.asked(world.batch, 40, selectivity=0.8, radius=1e6)
    _, ids, looked = workload.answers(world.store, queries, 1)
    batch, t = world.batch, int(world.batch.t[-1])
    rows, _ = answers([batch[i] for i in range(len(batch))], queries, WGS84, None, t)  # whose last multiple is t
    right = {row["query"]: [each["id"] for each in row["objects"]] for row in rows}
    assert ids == [right[query.id] for query in queries]
    assert looked > 0
    assert sum(map(len, ids)) > 20


def test_weights_and_norms_for_other_systems_are_those_of_the_table() -> None:
    world = World(workload.objects(300))
    for i in range(0, 300, 7):
        weights = world.corpus.weights_of(world.batch.terms[i])
        assert world.squares[i] == (weights * weights).sum()


def test_two_actors_have_to_be_as_fast_as_the_figure_claims() -> None:
    found = {name: {1.0: {"rate": 100.0}, 2.0: {"rate": rate}} for name, rate in (("200k", 180.0), ("2mi", 150.0))}
    assert pastri.judged("14", found) == ["2mi has 1.50 times as much at 2, 1.7 are wanted"]
    found["2mi"][2.0]["rate"] = 180.0
    assert pastri.judged("14", found) == []


def test_what_is_slower_than_the_other_system_disagrees() -> None:
    found = {"segments": {2e5: {"s": 3.0}}, "Lucene": {2e5: {"s": 2.0}}}
    (said,) = pastri.judged("12", found)
    assert "segments costs 1.5 times what Lucene does" in said


def test_the_page_has_a_line_for_each_figure() -> None:
    text = page.PASTRI.read_text()
    assert text in DOCS.joinpath("paper.md").read_text()
    assert all(f"\n| {figure} |" in text for figure in pastri.FIGURES)

"""The paper's experiments (``tests/benchmarks/paper``): the rule of verdicts, resuming, a tiny run of each figure."""

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from tests.benchmarks.paper import __main__ as command
from tests.benchmarks.paper import engine
from tests.benchmarks.paper.engine import Results, name_of
from tests.benchmarks.paper.specs import FIGURES, OWN
from tests.benchmarks.paper.verdicts import UNEXPLAINED, Claims, Finding, cause, goes, judge, summary
from tests.lengths import AT_LENGTH


def curve(*values):
    return {float(x): float(value) for x, value in enumerate(values)}


ORDER = Claims(orders=(("a", "b", "c"),))


def test_methods_that_keep_their_order_agree():
    assert judge({"a": curve(1, 2), "b": curve(2, 3), "c": curve(9, 9)}, ORDER, lower=True) == []


def test_a_tie_within_ten_percent_breaks_no_order():
    assert judge({"a": curve(1.09), "b": curve(1), "c": curve(1)}, ORDER, lower=True) == []


def test_a_method_that_is_worse_than_one_behind_it_is_found_with_both():
    found = judge({"a": curve(1, 3), "b": curve(2, 2), "c": curve(4, 4)}, ORDER, lower=True)

    assert [(each.x, each.pair) for each in found] == [(1.0, ("a", "b"))]


def test_where_more_is_better_the_largest_comes_first():
    values = {"a": curve(9), "b": curve(5), "c": curve(1)}

    assert judge(values, ORDER, lower=False) == []
    assert len(judge(values, ORDER, lower=True)) == 3


def test_a_series_that_lacks_the_measure_is_not_judged():
    assert judge({"a": curve(1), "c": curve(2)}, ORDER, lower=True) == []


def test_what_mostly_holds_may_fail_at_less_than_half_of_the_points():
    claims = Claims(mostly=(("a", "b"),))

    assert judge({"a": curve(1, 1, 9), "b": curve(2, 2, 2)}, claims, lower=True) == []
    assert len(judge({"a": curve(1, 9, 9), "b": curve(2, 2, 2)}, claims, lower=True)) == 1


@pytest.mark.parametrize(("ratio", "agrees"), [(1.9, False), (2.0, True), (4.0, True), (8.0, True), (8.1, False)])
def test_the_ratio_of_the_best_to_the_next_is_within_a_factor_of_two(ratio, agrees):
    claims = Claims(orders=(("a", "b"),), ratios={0.0: 4.0, 7.0: 1.0})

    assert (judge({"a": curve(1), "b": curve(ratio)}, claims, lower=True) == []) == agrees


@pytest.mark.parametrize(("value", "agrees"), [(3.9, False), (4.1, True), (100.0, True)])
def test_who_is_far_behind_is_at_least_half_as_far_behind_the_next(value, agrees):
    claims = Claims(behind={"c": 4.0})

    assert (judge({"a": curve(1), "b": curve(2), "c": curve(value)}, claims, lower=True) == []) == agrees


@pytest.mark.parametrize(
    ("points", "ways"),
    [
        ([1, 2, 3], {"rises"}),
        ([1, 3, 2.8], {"rises"}),
        ([1, 3, 2], set()),
        ([3, 2, 1], {"falls"}),
        ([1, 1.05, 1.02], {"flat"}),
        ([1, 1.2, 1.4], {"rises", "flat"}),
    ],
)
def test_the_way_of_a_curve(points, ways):
    assert {trend for trend in ("rises", "falls", "flat") if goes(points, trend)} == ways


def test_the_paper_s_choice_is_within_a_tie_of_the_best():
    claims = Claims(chosen=1.0)

    assert judge({"a": curve(2, 1.09, 1)}, claims, lower=True) == []
    assert len(judge({"a": curve(2, 1.2, 1)}, claims, lower=True)) == 1


def test_a_measure_may_be_zero():
    assert len(judge({"a": curve(3), "b": curve(0)}, Claims(orders=(("a", "b"),)), lower=True)) == 1


def test_the_cause_is_the_ratio_of_the_counts():
    counts = {"a": {1.0: {"slots": 3.0, "candidates": 5.0}}, "b": {1.0: {"slots": 2.0, "candidates": 0.0}}}

    assert cause(Finding("", 1.0, ("a", "b")), counts, {}) == "a by b: slots asked x1.50"
    assert cause(Finding("a rises"), counts, {}) == ""


@pytest.mark.parametrize(
    ("trend", "points", "span"),
    [
        ("flat", [2, 1, 3, 2], (1.0, 2.0)),
        ("flat", [2, 3, 1, 2], (1.0, 2.0)),
        ("rises", [1, 3, 2, 9], (1.0, 2.0)),
        ("rises", [1, 1.05, 1.02], (0.0, 2.0)),
        ("falls", [9, 2, 3, 1], (1.0, 2.0)),
        ("falls", [1, 0.98, 0.95], (0.0, 2.0)),
    ],
)
def test_a_curve_that_goes_another_way_is_found_with_where(trend, points, span):
    (found,) = judge({"a": curve(*points)}, Claims(trends={"a": trend}), lower=True)

    assert (found.series, found.span) == ("a", span)


def test_a_choice_that_is_not_the_best_is_found_with_the_best():
    (found,) = judge({"a": curve(1, 3, 2)}, Claims(chosen=2.0), lower=True)

    assert (found.series, found.span) == ("a", (0.0, 2.0))


def why(first, last, skew=(1.0, 1.0), **more):
    """The cause of a curve with so many slots and candidates, of 10 and 1 µs, at its two x."""
    points = {}
    for x, each, times in ((1.0, first, skew[0]), (5.0, last, skew[1])):
        work = 10.0 * each[0] + each[1]
        points[x] = {"slots": each[0], "candidates": each[1], "work": work, "work_slowest": times * work / 8} | {
            name: values[x > 1.0] for name, values in more.items()
        }
    return cause(Finding("", series="a", span=(1.0, 5.0)), {"a": points}, {"slots": 10.0, "candidates": 1.0})


def test_the_cause_of_a_curve_is_the_count_that_makes_its_work_change():
    assert why((2.0, 50.0), (2.0, 90.0), leaves=(4.0, 4.08), visited=(10.0, 90.0)) == (
        "its work rises from 1 to 5 because of candidates checked x1.80 (100 % of the change), "
        "while slots asked x1.00, leaves reached x1.02 stay"
    )
    fallen = why((9.0, 10.0), (3.0, 10.0))
    assert fallen == "its work falls from 1 to 5 because of slots asked x0.33 (100 % of the change)"


def test_a_count_that_grows_much_and_costs_little_is_no_cause():
    assert why((1.0, 1.0), (4.0, 9.0)) == "its work rises from 1 to 5 because of slots asked x4.00 (79 % of the change)"


def test_counts_that_make_much_of_it_both_are_named_the_larger_first():
    assert why((1.0, 10.0), (2.0, 30.0)).split(" because of ")[1] == (
        "candidates checked x3.00 (67 % of the change) and slots asked x2.00 (33 % of the change)"
    )


def test_slots_that_differ_more_are_a_cause_too():
    assert why((1.0, 10.0), (1.0, 10.0), skew=(1.0, 1.5)) == (
        "its work rises from 1 to 5 because of slowest slot to mean x1.50 (100 % of the change), "
        "while slots asked x1.00 stay"
    )


def test_a_curve_stays_by_what_is_most_of_its_work():
    assert why((9.0, 10.0), (9.0, 15.0)) == "its work stays from 1 to 5 because of slots asked x1.00 (88 % of the work)"


def test_no_cause_is_made_up():
    not_of_work = {"a": {1.0: {"moved": 1.0}, 5.0: {"moved": 2.0}}}

    assert why((1.0, 10.0), (2.0, 1.0)) == UNEXPLAINED, "it stays, and no count does"
    assert cause(Finding("", series="a", span=(1.0, 5.0)), not_of_work, {}) == UNEXPLAINED


def test_a_summary_says_each_pair_once():
    found = [Finding("one", 1.0, ("a", "b")), Finding("two", 2.0, ("a", "b")), Finding("three")]

    assert summary(found, ["why", "why", ""]) == "one (why), and in 1 more points; three"


# ----------------------------------------------------------------------------------------------------------- measuring


def counted(digest=1.0):
    """Stands for a measurement."""
    names = ("work_slowest", "visited_slowest", "cpu_slowest", "throughput", "cpu_throughput")
    return dict.fromkeys(names, 1.0) | {"digest": digest}


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    measured = []

    def measure(point, scale):
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append(point)
        return counted()

    monkeypatch.setattr(engine, "measure", measure)
    figure = FIGURES["9"]
    results = Results(tmp_path, 1.0, 1)
    with pytest.raises(KeyboardInterrupt):
        results.fill([figure])
    done = measured.copy()
    monkeypatch.setattr(engine, "measure", lambda point, scale: (measured.append(point), counted())[1])

    Results(tmp_path, 1.0, 1).fill([figure])

    assert len(done) == 3
    assert sorted(map(name_of, measured)) == sorted(map(name_of, results.points([figure])))
    assert results.panel(figure.panels[0])["QT-tree"][40]["work_slowest"] == 1.0


def test_other_code_or_another_scale_is_measured_again(tmp_path, monkeypatch):
    folders = {Results(tmp_path, 1.0, 1).folder, Results(tmp_path, 0.5, 1).folder}
    monkeypatch.setattr(engine, "code_digest", lambda: "other")

    assert len(folders | {Results(tmp_path, 1.0, 1).folder}) == 3


def test_figures_share_points():
    results = [point for panel in FIGURES["8"].panels for point in panel.points(1, 1.0)]

    assert len(results) == 5 * 3 + 3 * 3
    assert len(set(results)) == len(results) - 3  # 0.01 % and one keyword are in both


def test_methods_with_different_answers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "measure", lambda point, scale: counted(digest=float(len(point.method))))
    results = Results(tmp_path, 1.0, 1)
    results.fill([FIGURES["9"]])

    with pytest.raises(ValueError, match="9a at 10: answers differ"):
        results.panel(FIGURES["9"].panels[0])


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("paper")


def short(panel):
    """With two x only."""
    first = panel.claims.chosen or panel.xs[0]
    return replace(panel, xs=(first, panel.xs[-1]))


# the quick ones with each change: what figures differ in is their settings
@pytest.mark.parametrize("name", FIGURES if AT_LENGTH else ["8", "10", "13", "14", "text"])
def test_a_tiny_run_of_each_figure(name, output, monkeypatch):
    figure = FIGURES[name]
    for each in list(FIGURES.values()):
        monkeypatch.setitem(command.FIGURES, each.name, replace(each, panels=tuple(map(short, each.panels))))
    before = json.loads((output / "paper.json").read_text()) if (output / "paper.json").exists() else []

    command.main([name, "--scale", "0.002", "--seeds", "1", "--output", str(output)])

    verdicts = json.loads((output / "paper.json").read_text())
    numbers = json.loads((output / "paper" / "results.json").read_text())
    assert all(each in verdicts for each in before), "those of earlier runs are kept"
    assert name in OWN or json.loads(name) in [each["figure"] for each in verdicts]
    assert all(each["verdict"] in ("agrees", "disagrees") for each in verdicts)
    assert all((each["verdict"] == "disagrees") == bool(each["cause"]) for each in verdicts)
    assert list(numbers[name]) == [panel.name for panel in figure.panels]
    assert (output / "paper" / f"paper-{name}.svg").stat().st_size > 1000
    assert figure.panels[0].says in (output / "paper" / "paper.md").read_text()
    assert pq.read_table(output / "paper" / "points.parquet").num_rows > 0


def test_the_page_of_all_figures_is_not_written_of_some(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command.Results, "fill", lambda self, figures: None)
    with pytest.raises(SystemExit):
        command.main(["8", "--docs", "--output", str(tmp_path)])
    assert "not all have been measured" in capsys.readouterr().err

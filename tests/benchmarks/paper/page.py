"""``docs/paper.md``, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.paper import text
from tests.benchmarks.paper.counting import WORTH, Counts
from tests.benchmarks.paper.specs import OWN, Figure, Panel
from tests.benchmarks.paper.verdicts import FACTOR, FLAT, TIE, Finding

PanelCounts = Mapping[str, Mapping[float, Counts]]


@dataclass(frozen=True)
class Judged:
    """A figure, what was counted for its panels, and in what they disagree.

    Attributes:
        figure: which.
        counts: panel -> series -> x -> name -> value.
        findings: panel -> measure -> findings; the panel's own measure first.
        cause: a sentence on why it disagrees; "" if it agrees.
    """

    figure: Figure
    counts: Mapping[str, PanelCounts]
    findings: Mapping[str, Mapping[str, Sequence[Finding]]]
    cause: str

    @property
    def verdict(self) -> str:
        """``agrees`` or ``disagrees``, by the measures that the panels are judged by."""
        wrong = any(self.findings[panel.name][panel.measure] for panel in self.figure.panels)
        return "disagrees" if wrong else "agrees"

    def by(self, panel: Panel) -> dict[str, str]:
        """The verdicts on a panel by each of its measures."""
        return {name: "disagrees" if found else "agrees" for name, found in self.findings[panel.name].items()}


HEAD = """\
# The paper's experiments

<!-- Written by `make paper ARGS=--docs`; the words are in tests/benchmarks/paper/page.py. -->

Every experiment of SSTD (PVLDB 13(11), 2020), section 7, is a command: `make paper FIG=8`, `7` to `15` and `7.7`, the
parameters; `FIG=cost`, `leaves`, `text` and `rivals` are the project's own. `make paper` runs all of them. Measurements
are kept, so a stopped run continues; they are repeated when the code that they depend on has changed. `SCALE=0.1` runs
a small version. Verdicts are written to `bench-output/paper.json`; all points (`points.parquet`), the results derived
from them (`results.json`), a chart of each figure and this page are written to `bench-output/paper/`.

## How it is measured

The paper's workers are eight machines. Here the slots work one after the other on one core, and a batch of queries, or
a stream, takes as long as its *slowest slot*. The comparison uses **counted work**, which is the same on every machine
and at every load: the number of operations of a slot, each weighted with about the µs that it takes on one machine.

| µs for | a query at a slot | an object of the stream | a candidate | a result |
|---|---|---|---|---|
{worth}

Two other measures are judged too: the CPU time of the slowest slot, the least of several tries; and the number of
objects in the visited leaves, in the slot that has most. The latter is the paper's own cost (Eqn 2), as if a worker
looked at all objects of each leaf that has the keywords. It is counted on queries other than those from which the index
was built.

*Methods.* All global indexes use the product's slot indexes, as all methods share the same ones in the paper. QT-tree,
Quadtree and Text are Algorithm 1 with both kinds of split, with spatial splits only, and with textual splits only. Of
the other papers' indexes, Tornado's A-Grid is compared in [Which index?](which-index.md) with figures of its own paper,
PS2Stream's kd^t-tree [below](#ps2stream-s-figures). There are 8 slots, θ is 64, unless varied.

*Data.* TW: objects around real cities by population, with 5 to 15 words by Zipf's law; 60 % of the words belong to the
object's topic. Uni and Gau: the same words at other places. Queries are drawn from objects: 1 keyword, 0.01 % of the
space, k = 10, 72 hours, unless varied. The paper has 50 million objects of a month, and a query of 72 hours looks at a
tenth of them; here there are {objects:,} objects of 72 hours. An index is built from a history of other objects, and of
as many queries of each type over all of the paper's ranges.

*The paper's values.* The project has the paper's text without its pictures. So this page compares with values from the
prose; it does not judge what the prose leaves open.

*Verdicts.* A panel agrees if the methods keep their order at each x (within {tie:.0%} is a tie), if curves go the same
way ("no effect": within a factor of {flat:g}), and if the ratio of the best to the next, where it is known, is within a
factor of {factor:g} of the paper's. A figure agrees if its panels do. The counts show the cause of a disagreement: for
two methods, the ratio of each count; for a curve, the count that makes the work of the slowest slot change along it, or
how much more work that slot has than the mean. Without equal answers of all methods there is no verdict.

Measured with {seeds} (figures 14 and 15, text and rivals: one), at scale {scale:g}.{small}

## Agreement

| figure | | verdict | by other measures |
|---|---|---|---|
"""

ONE_TREE = """ In figures {figures} Algorithm 1 has chosen no textual split: the QT-tree is the quadtree, and does the
same work. Agreement there is a tie, and differences of their processor times are noise. """

SMALL = """ That is a run **in small**: asking a slot weighs more than
at full size, and CPU times, by which figures 14 and 15 are judged, are short. What counts is a whole run
(`make paper ARGS=--docs`) on a machine that does nothing else."""

_COLUMNS = ("slots", "objects", "candidates", "results")


DKM, PASTRI = (Path(__file__).with_name(name) for name in ("dkm.md", "pastri.md"))
"""What is said of the figures of other papers, which :mod:`.dkm` and :mod:`.pastri` measure; written by hand."""

PS2STREAM = Path(__file__).with_name("ps2stream.md")
"""Likewise of :mod:`.ps2stream`."""


def page(judged: Sequence[Judged], scale: float, seeds: int) -> str:
    """The page."""
    head = HEAD.format(
        worth="\n".join(
            f"| {kind} | {' | '.join(f'{weights[name]:g}' if name in weights else '' for name in _COLUMNS)} |"
            for kind, weights in WORTH.items()
        ),
        tie=TIE - 1, flat=FLAT, factor=FACTOR, scale=scale, objects=round(1_000_000 * scale),
        small=SMALL if scale < 1.0 else "",
        seeds="1 seed" if seeds == 1 else f"the median of {seeds} seeds",
    )  # fmt: skip
    parts = [head + "".join(_line(each) for each in judged if each.figure.name not in OWN)]
    if same := [each.figure.name for each in judged if each.figure.name not in OWN and _is_one_tree(each)]:
        parts[-1] += ONE_TREE.format(figures=", ".join(same))
    for each in judged:
        name = each.figure.name
        if name in TABLES:
            parts.append(TABLES[name](each))
            continue
        parts.append(_section(each, _TITLES.get(name, f"Figure {name}")))
        parts[-1] += _CONCLUSIONS[name](each) if name in _CONCLUSIONS else ""
    return "\n".join(parts) + DKM.read_text() + PASTRI.read_text() + PS2STREAM.read_text()


TABLES = {"text": text.section}
"""Experiments that are a table of the page, without a picture."""

_TITLES = {"7.7": "Section 7.7", "cost": "Why", "leaves": "Pruning by leaf", "rivals": "Rivals"}


def _is_one_tree(judged: Judged) -> bool:
    """Whether QT-tree and quadtree have the same counts, wherever both are."""
    both = [
        (found["QT-tree"], found["Quadtree"])
        for found in judged.counts.values()
        if {"QT-tree", "Quadtree"} <= found.keys()
    ]
    names = ("leaves", "slots", "candidates", "bytes")
    return bool(both) and all(
        one[x].get(name) == other[x].get(name) for one, other in both for x in one for name in names
    )


def _line(judged: Judged) -> str:
    own = {panel.measure for panel in judged.figure.panels}
    others = [f"`{measure}`: {verdict}" for measure, verdict in _combined(judged).items() if measure not in own]
    return f"| {judged.figure.name} | {judged.figure.title} | **{judged.verdict}** | {', '.join(others)} |\n"


def _combined(judged: Judged) -> dict[str, str]:
    """By each measure, whether all panels agree."""
    result: dict[str, str] = {}
    for panel in judged.figure.panels:
        for measure, verdict in judged.by(panel).items():
            result[measure] = "disagrees" if "disagrees" in (verdict, result.get(measure)) else "agrees"
    return result


def _section(judged: Judged, title: str) -> str:
    figure = judged.figure
    lines = [f"\n## {title}: {figure.title}\n", f"![{figure.title}](images/paper-{figure.name}.svg)\n"]
    if judged.cause and figure.name not in OWN:
        lines += [f"**Disagrees**: {judged.cause}.\n"]
    for panel in figure.panels:
        lines += [f"**{panel.name}, {panel.title}.** {'' if figure.name in OWN else 'The paper: '}{panel.says}"]
        if panel.papers_x:
            lines[-1] += f" ({panel.label.capitalize()}: {panel.papers_x}.)"
        lines += ["", *_table(panel, judged.counts[panel.name]), ""]
        for measure, findings in judged.findings[panel.name].items():
            lines += [f"- `{measure}`: {'; '.join(finding.text for finding in findings) or 'agrees'}."]
        lines += [""]
    return "\n".join(lines)


def _table(panel: Panel, counts: PanelCounts) -> Iterator[str]:
    """A row for each series and measure, a column for each x."""
    yield f"| {panel.label} | | {' | '.join(f'{x:,.10g}' for x in panel.xs)} |"
    yield "|" + "---|" * (2 + len(panel.xs))
    for name in (panel.measure, *panel.measures, *_beside(panel)):
        for series in panel.series:
            values = [counts[series][x].get(name) for x in panel.xs]
            if None not in values:
                yield f"| `{name}` | {series} | {' | '.join(_figure(value or 0.0) for value in values)} |"
    for series, points in panel.paper.items():
        shown = [_figure(points[x]) if x in points else "" for x in panel.xs]
        yield f"| paper, {panel.paper_unit} | {series} | {' | '.join(shown)} |"


def _beside(panel: Panel) -> tuple[str, ...]:
    if not panel.across:
        return ("expected", "measured") if panel.measure == "latency" else ()
    return ("leaves", "covering", "slots", "candidates", "results", "bytes", "skew")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratios(judged: Judged, name: str, series: str, to: str, where: str = "") -> str:
    """The range of the ratio of a count of two series, over the panels that have them."""
    found = [
        counts[series][x][name] / counts[to][x][name]
        for panel, counts in judged.counts.items()
        if where in panel and series in counts
        for x in counts[series]
    ]
    return f"{min(found):.2f} to {max(found):.2f}"


def _on_leaves(judged: Judged) -> str:
    """What pruning by leaf gives."""
    return LEAVES.format(
        candidates=_ratios(judged, "candidates", "sorted", "slot"),
        best=_ratios(judged, "work_slowest", "sorted", "slot"),
        leaf=_ratios(judged, "work_slowest", "leaf", "slot"),
        cpu=_ratios(judged, "cpu_slowest", "leaf", "slot"),
        stq=_ratios(judged, "results", "leaf", "slot", "STQ"),
    )


def _on_cost(judged: Judged) -> str:
    """What the cost model promises, and what comes of it."""
    return COST.format(
        predicted=_ratios(judged, "predicted", "QT-tree", "Quadtree"),
        visited=_ratios(judged, "visited", "QT-tree", "Quadtree"),
        slots=_ratios(judged, "slots", "QT-tree", "Quadtree"),
    )


def _on_rivals(judged: Judged) -> str:
    """How partitions of space compare."""
    others = ("A-Grid", "Grid", "k-d tree", "R-tree")
    ratios = "; ".join(f"{each} {_ratios(judged, 'throughput', each, 'QT-tree')}" for each in others)
    return RIVALS.format(ratios=ratios)


_CONCLUSIONS = {"cost": _on_cost, "leaves": _on_leaves, "rivals": _on_rivals}

# Whoever writes the page again looks whether these words still follow from its figures.
COST = """ By the cost model a QT-tree visits {predicted} times as many objects as a quadtree (`predicted`). On queries
from which it was not built, it visits {visited} times as many (`visited`), and the ratio grows with the number of
leaves: textual splits gain less than J predicts, because leaves have more words than the sample from which the tree was
built, and queries have other words than its history. The model also leaves out one cost: queries are routed by space
alone, so all leaves of a textual node are asked, which makes {slots} times as many slots. """

RIVALS = """ So many times the throughput of a QT-tree: {ratios}. """

LEAVES = """ *slot* is the product: the indexes of a slot do not know its leaves. *leaf*: each leaf has an index, and a
query asks only those whose objects have all the keywords. *sorted*: each slot has one index in the order of its leaves,
which looks at the same candidates as *leaf* and is asked once a query; only its work is counted, without the cost of
finding the leaves, so no such order can do better.

With pruning an index looks at {candidates} times as many candidates. But there are few candidates either way (the
postings of the rarest keyword in the ranges of the region): they take a few µs, while asking an index takes tens of µs.
So *sorted* has {best} times the work of *slot*, and *leaf* {leaf} times ({cpu} times the CPU): more where it asks
several indexes at a slot; less where no leaf of a slot has the keywords, because such a slot counts as not asked. Only
a router that knew the words of leaves could achieve that. An STQ has no keywords to prune by, and counts terms once in
each leaf: *leaf* returns {stq} times as many rows.

This was not built: with leaves in the sort order, segments would also depend on the routing version, and would have to
be sorted again whenever FG changes the tree. A textual split makes a query at its place ask up to four slots, not one.
"""

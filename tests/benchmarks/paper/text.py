"""The page's section on ``FIG=text``: what might make splits by text pay, and what comes of each.

A panel compares a tree with splits by text, its first series, with one without, its second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tests.benchmarks.paper.counting import Counts
from tests.benchmarks.paper.specs import Panel
from tests.benchmarks.paper.verdicts import TIE

if TYPE_CHECKING:
    from tests.benchmarks.paper.page import Judged, PanelCounts

Pairs = Mapping[float, tuple[Counts, Counts]]
"""x -> counts with splits by text, and without."""


def pairs(panel: Panel, counts: PanelCounts) -> Pairs:
    """What a panel compares."""
    with_text, without = (counts[series] for series in panel.series)
    return {x: (with_text[x], without[x]) for x in panel.xs}


def gains(found: Pairs, measure: str) -> list[float]:
    """How many times less the tree with splits by text has of a measure, at each x."""
    return [without[measure] / max(with_text[measure], 1e-9) for with_text, without in found.values()]


def split(found: Pairs, least: float = 0.0) -> bool:
    """Whether there are splits by text, wherever x is no less."""
    return all(with_text["tree_textual"] > 0 for x, (with_text, _) in found.items() if x >= least)


def fan_out(found: Pairs) -> list[float]:
    """How many times fewer objects the slowest machine looks at if it has one leaf, without splits by text."""
    return [without["longest_slot"] / max(without["longest_leaf"], 1e-9) for _, without in found.values()]


HOLDS: Mapping[str, Callable[[Pairs], bool]] = {
    "estimator": lambda found: split(found) and max(gains(found, "visited")) < 1.0,
    "mix": lambda found: (
        split(found)
        and all(1 / 0.85 <= gain <= 1 / 0.75 for gain in gains(found, "visited"))
        and max(gains(found, "slots")) < 1.0
    ),
    "regions": lambda found: split(found, 256) and max(gains(found, "visited")) < 1 / 0.8,
    "data: no stop words": lambda found: max(gains(found, "visited")) < 1.3,
    "data: languages": lambda found: max(gains(found, "visited")) > 1.3,
    "measure": lambda found: (
        max(gains(found, "scan")) < 1.5
        and all(1 / TIE < a / b < TIE for a, b in zip(gains(found, "scan"), gains(found, "visited"), strict=True))
    ),
    "learning lists": lambda found: (
        max(gains(found, "coverage")) < 1.0
        and next(iter(found.values()))[0]["coverage"] < list(found.values())[-1][0]["coverage"]
    ),
    "fan-out": lambda found: min(fan_out(found)) > max(gains(found, "longest_leaf")),
}
"""Panel -> whether that is so which its :attr:`~tests.benchmarks.paper.specs.Panel.says` expects."""


def section(judged: Judged) -> str:
    """The section: the table, and what follows from it."""
    panels = judged.figure.panels
    found = {panel.name: pairs(panel, judged.counts[panel.name]) for panel in panels}
    rows = [line for panel in panels for line in _lines(panel, found[panel.name])]
    most, where = max((gain, name) for name in PRUNING for gain in gains(found[name], "visited"))
    fans = fan_out(found["fan-out"])
    words = WORDS.format(most=most, where=where, least=min(fans), fan=max(fans))
    return "\n".join([f"\n## Text: {judged.figure.title}\n", INTRODUCTION, *rows, "", words])


PRUNING = ("estimator", "mix", "regions", "data: no stop words", "data: languages")
"""Panels that are about the objects visited."""


def _lines(panel: Panel, found: Pairs) -> Iterator[str]:
    """A row for each x."""
    verdict = "as expected" if HOLDS[panel.name](found) else "**not as expected**"
    ends = panel.says, verdict
    what = panel.name, panel.title
    for (x, both), gain in zip(found.items(), gains(found, panel.measure), strict=True):
        shown = [f"{panel.label} = {x:,.10g}", *(_against(both, name) for name in ("visited", "covering", "slots"))]
        shown += [f"{both[0]['tree_textual']:,.0f} of {both[0]['tree_leaves']:,.0f}", f"{gain:.2f}"]
        yield f"| {' | '.join((*what, *shown, *ends))} |"
        what = ends = "", ""


def _against(both: tuple[Counts, Counts], name: str) -> str:
    return " / ".join(f"{each[name]:,.0f}" if each[name] >= 100 else f"{each[name]:.3g}" for each in both)


# Whoever writes the page again looks whether these words still follow from its figures.
INTRODUCTION = """In the paper an SRQ is 2.5 to 4.1 times as fast under a QT-tree as under a quadtree (figure 8). Here
are seven reasons why it may not be so in this project, each as an experiment (`make paper FIG=text`; *data* is two of
them). Each cell has the figure of the tree with splits by text, and after the slash that of the tree without. *Leaves*
are those that are reached and have the keywords; *by text* are the leaves below a split by text, of all leaves. *Gain*
is how many times less the tree with splits by text has of what the experiment is about: the objects visited; in
*measure* the work of the slowest slot; in *learning lists* the part of the leaves reached that have the keyword; in
*fan-out* the objects that the slowest machine looks at. What is expected follows from arithmetic: an object goes to the
leaf of one of its words, and takes the others there too.

| cause | what was run | | visited | leaves | slots | by text | gain | expected | |
|---|---|---|---|---|---|---|---|---|---|"""

WORDS = """No cause makes splits by text pay as in the paper: the most that they save is a factor of {most:.2f}
(*{where}*). With SKQs alone and with languages they gain less than expected. Lists that learn are no worse than frozen
ones. With a machine for each leaf in place of eight in all, the slowest one looks at {least:.1f} to {fan:.1f} times
fewer objects for a query if machines scan, with any tree: such a gain may be in the paper's figures, and is none of
pruning.
"""

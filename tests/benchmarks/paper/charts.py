"""Pictures in the paper's form: what was measured above, and below it what the paper's text says of the same."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.paper.specs import PLANS, Figure, Panel

COLOURS = {
    **dict.fromkeys(("QT-tree", "TW", "leaf", "FG", "In-sample", "Eager", "Learning"), "#b5482a"),
    **dict.fromkeys(("Quadtree", "slot", "FM"), "#2a5f8f"),
    **dict.fromkeys(("Uni", "sorted", "PM+FM+FG"), "#2a7f62"),
    **dict.fromkeys(("Text", "none"), "#888888"),
    **{"A-Grid": "#2a5f8f", "Grid": "#888888", "k-d tree": "#7a5195", "R-tree": "#2a7f62"},
    **{"TW'": "#d99a5b", "Gau": "#7a5195", "PM": "#9ec5e8", "PM+FM": "#a8d5ba"},
}
MARKERS = "osD^vP"

Values = Mapping[str, Mapping[float, float]]


def draw(figure: Figure, values: Mapping[str, Values], path: Path) -> None:
    """One picture of a figure's panels.

    Args:
        figure: which.
        values: panel -> series -> x -> value of its measure.
        path: of the file, ``.svg`` or ``.png``.
    """
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "spatialstream", "font.size": 8})
    from matplotlib import pyplot

    n, with_values = len(figure.panels), any(panel.paper for panel in figure.panels)
    picture, grid = pyplot.subplots(
        2, n, figsize=(3.3 * n, 4.6 if with_values else 3.4), layout="constrained", squeeze=False,
        height_ratios=(2, 1.5 if with_values else 0.4),
    )  # fmt: skip
    for panel, above, below in zip(figure.panels, *grid, strict=True):
        _curves(above, panel, values[panel.name])
        above.set(title=f"{panel.name}  {panel.title}", ylabel=panel.unit, xlabel=panel.label)
        _paper(below, panel)
    if figure.panels[0].across:
        for axes in grid[0]:
            axes.legend(frameon=False, fontsize=7)
    else:
        handles = grid[0][0].get_legend_handles_labels()
        picture.legend(*handles, loc="outside lower center", ncols=len(PLANS), frameon=False)
    picture.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=90)
    pyplot.close(picture)


def _label(x: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:g}{unit}"
    return f"{x:g}"


def _curves(axes: Any, panel: Panel, values: Values) -> None:
    """Lines, or bars where plans are compared; the x stand evenly apart."""
    places = {x: i for i, x in enumerate(panel.xs)}
    bars, width = not panel.across, 0.8 / len(panel.series)
    for i, series in enumerate(panel.series):
        points = values.get(series, {})
        xs = np.array([places[x] for x in points], float)
        ys = list(points.values())
        if bars:
            axes.bar(
                xs + (i - (len(panel.series) - 1) / 2) * width, ys, 0.9 * width, color=COLOURS[series], label=series
            )
        elif points:
            axes.plot(xs, ys, color=COLOURS[series], marker=MARKERS[i], markersize=4, linewidth=1.4, label=series)
    axes.set_xticks(range(len(panel.xs)), [_label(x) for x in panel.xs])
    axes.set_xlim(-0.5, len(panel.xs) - 0.5)
    every = [y for points in values.values() for y in points.values() if y > 0]
    if not bars and every and max(every) > 100 * min(every):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)


def _paper(axes: Any, panel: Panel) -> None:
    """The paper's values, where its text gives some, and what it says."""
    says = "\n".join(textwrap.wrap(panel.says, 52))
    if panel.paper:
        _curves(axes, panel, panel.paper)
        axes.set(ylabel=panel.paper_unit)
        axes.set_title(says, fontsize=6.5, loc="left")
        return
    axes.axis("off")
    axes.text(0.0, 1.0, says, fontsize=7, va="top", transform=axes.transAxes)
